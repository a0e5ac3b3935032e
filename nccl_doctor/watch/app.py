"""The live screen. Feeds run in threads and post records, handlers add them to the state, a timer draws what changed."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.message import Message

from nccl_doctor.watch import actions
from nccl_doctor.watch.cost import Cost
from nccl_doctor.watch.feed import Replay
from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.state import State
from nccl_doctor.watch.view import bars, overview, panes
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.screens import HELP, Chart, Filter, Page, finding_page
from nccl_doctor.watch.view.tables import Tables
from nccl_doctor.watch.view.widgets import Grid, Lines

RULES_EVERY = 10.0  # seconds between two rule runs, at least
RULES_FIRST = 4.0  # seconds before the first rule run
RULES_PAUSE = 250.0  # pause after a rule run, as a multiple of its CPU time
MESSAGE_SECONDS = 4.0  # seconds for which the answer to a key is shown
TABS = ("overview", "GPUs", "network", "processes", "findings", "nodes")
INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0)
STEPS = {"left": -5.0, "right": 5.0, "comma": -30.0, "full_stop": 30.0, "home": float("-inf"), "end": float("inf")}


class Source(Protocol):
    """A source of records that can be started and stopped."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pids(self) -> list[int]: ...


class Record(Message):
    """A record of a feed and when it arrived; None in a replay."""

    def __init__(self, record: dict[str, Any], received_at: float | None) -> None:
        super().__init__()
        self.record, self.received_at = record, received_at


class RulesFinished(Message):
    """A rule run ended; `cpu_seconds` is its CPU time, `problem` why it failed."""

    def __init__(self, cpu_seconds: float, problem: str = "") -> None:
        super().__init__()
        self.cpu_seconds = cpu_seconds
        self.problem = problem


class Watch(App[None]):
    """The live screen of `nccl-doctor watch`."""

    TITLE = "nccl-doctor watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; overflow: hidden hidden; }
    ModalScreen { background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"tab('{name}')", name) for number, name in enumerate(TABS, 1)),
        Binding("tab", "next_tab(1)", "pane", priority=True),
        Binding("shift+tab", "next_tab(-1)", "pane", priority=True),
        Binding("question_mark,h,f1", "help", "help"),
        Binding("slash", "filter", "filter"),
        Binding("o,f6", "sort", "sort"),
        Binding("O", "reverse", "reverse"),
        Binding("t,f5", "tree", "tree"),
        Binding("u", "own", "own"),
        Binding("s", "stacks", "stacks"),
        Binding("K,f9", "kill", "signal"),
        Binding("r", "ras", "RAS"),
        Binding("space", "pause", "pause"),
        Binding("plus,equals_sign", "interval(-1)", "faster"),
        Binding("minus", "interval(1)", "slower"),
        *(Binding(key, f"seek('{key}')", "seek") for key in STEPS),
        Binding("q,f10", "quit", "leave"),
        Binding("ctrl+c", "quit", "leave", priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", priority=True),
    ]

    def __init__(
        self, source: Callable[[Callable[[dict[str, Any]], None]], Source], *, interval: float = 1.0, look: Look | None = None,
        readonly: bool = False, title: str = "", replay: Replay | None = None, invented: bool = False, via: str = "ssh",
        nodes: tuple[str, ...] = (), clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.state = State()
        self.diagnosis = LiveDiagnosis()
        self.look = look or Look()
        self.readonly = readonly
        self.replay = replay
        self.active = TABS[0]
        self.paused = False
        self.interval = interval
        self.filter_text = ""
        self.label = title or "nccl-doctor"
        self._recorded = replay is not None or invented  # the screen shows the time of the records, not ours
        self._expected = nodes
        self._via = via
        self._hostname = os.uname().nodename
        self._clock = clock
        self._source = source(self._put)
        self._cost = Cost(self._source.pids)
        self._dirty = True
        self._rules_running = False
        self.rules_problem = ""
        self._rules_due = time.monotonic() + RULES_FIRST
        self._message = ("", 0.0)
        self.tables = Tables(lambda: self.state, lambda: self.diagnosis.episodes, self.now)

    def _put(self, record: dict[str, Any]) -> None:
        self.post_message(Record(record, None if self._recorded else self._clock()))

    def compose(self) -> ComposeResult:
        yield Lines(id="head")
        yield Lines(id="tabs")
        yield Grid(self.look, id="grid")
        yield Lines(id="hosts")
        yield Lines(id="ports")
        yield Lines(id="alerts")
        yield Lines(id="keys")

    def on_mount(self) -> None:
        for name in self._expected:
            self.state.expect(name, self._clock())
        self._source.start()
        for number in (signal.SIGTERM, signal.SIGHUP):  # the terminal is restored before the process ends
            with suppress(RuntimeError, ValueError):  # not in the main thread
                asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)
        self._timer = self.set_interval(self.interval, self._tick)
        self.query_one(Grid).focus()
        self.draw()

    def on_unmount(self) -> None:
        self._source.stop()

    # records and findings

    def on_record(self, message: Record) -> None:
        self.add_record(message.record, message.received_at)

    def add_record(self, record: dict[str, Any], received_at: float | None = None) -> None:
        """Add one record; only the screen's thread may call it."""
        self.state.add_record(record, received_at)
        self.diagnosis.add_record(record, received_at)
        self._dirty = True

    def on_rules_finished(self, message: RulesFinished) -> None:
        self._rules_running = False
        self.rules_problem = message.problem
        self._rules_due = time.monotonic() + max(RULES_EVERY, RULES_PAUSE * message.cpu_seconds)
        self._dirty = True

    def _run_rules(self) -> None:
        if self._rules_running or time.monotonic() < self._rules_due or not self.state.now:
            return
        self._rules_running = True
        spins, now = self.diagnosis.spinning_nodes(self.state), self.state.now
        diagnosis = self.diagnosis

        def work() -> None:
            started = time.thread_time()
            problem = ""
            try:
                diagnosis.run_rules(spins, now)
            except Exception as error:  # a node can send anything; the screen must say that it does not judge any more
                problem = f"{type(error).__name__}: {error}"
            self.post_message(RulesFinished(time.thread_time() - started, problem))

        self.run_worker(work, thread=True, group="rules", exit_on_error=False)

    def diagnose_now(self) -> None:
        """Run the rules and wait for them: after a jump in a replay, and in tests."""
        self.diagnosis.diagnose(self.state)
        self.draw()

    # drawing

    def now(self) -> float:
        """Returns the time that the screen shows: that of the records in a replay or demo, else ours."""
        return self.state.now if self._recorded else self._clock()

    def _tick(self) -> None:
        if self.replay is not None and not self.paused:
            self.replay.forward(self.interval)
        if not self.paused:
            self._run_rules()
        self._cost.measure()
        if self._dirty or not self._recorded:
            self.draw()

    def show_message(self, text: str) -> None:
        """Show the answer to a key in the last line."""
        self._message = (text, time.monotonic() + MESSAGE_SECONDS)
        self.draw()

    def draw(self) -> None:
        """Draw what changed, unless paused or hidden by another screen."""
        screen = self.screen
        if isinstance(screen, Page):
            screen.draw()
        if self.screen_stack[0] is not screen:
            return
        try:
            if not self.paused:
                self._draw_overview()
                self._draw_table()
                self._dirty = False
            self._draw_bars()
        except NoMatches:  # the screen is closing
            return

    def redraw(self) -> None:
        """Draw after a key, also while paused."""
        self._draw_overview()
        self._draw_table()
        self._draw_bars()

    def _draw_bars(self) -> None:
        width = self.size.width
        self.query_one("#head", Lines).show([bars.status_line(self, self._cost.percent, width)])
        tabs = self.query_one("#tabs", Lines)
        line, tabs.click_areas = bars.tab_line(TABS, self.active, self.query_one(Grid).visible_range, width)
        tabs.show([line])
        text = self._message[0] if time.monotonic() < self._message[1] else ""
        keys = self.query_one("#keys", Lines)
        line, keys.click_areas = bars.key_line(self.readonly, self.replay is not None, text, self.look, width)
        keys.show([line])

    def _draw_overview(self) -> None:
        """Draw the lines below the GPUs of the first tab: hosts, ports and alerts, each at most a third of the screen."""
        visible = self.active == "overview"
        width, height = self.size
        free = max(height - 6, 0)  # lines below the three bars at the top, the title and the bars at the bottom
        alerts = overview.alert_lines(
            self.state,
            self.diagnosis.episodes,
            self.look,
            self.now(),
            width,
            min(max(free // 4, 2), 8),
            self.rules_problem,
        )
        hosts = [
            overview.host_line(node, self.look, width, self.now())
            for node in panes.bad_first(self.state, self.now())[: min(max(free // 8, 1), 8)] if node.host.now
        ]  # fmt: skip
        gpus = sum(len(node.gpus) for node in self.state.nodes.values())
        most = min(max(free - len(alerts) - len(hosts) - gpus, 3), max(free // 3, 1))
        ports = overview.port_lines(self.state, self.look, width, most)
        for name, lines in (("#alerts", alerts), ("#hosts", hosts), ("#ports", ports)):
            self.query_one(name, Lines).show(lines if visible else [])

    def _draw_table(self) -> None:
        self.query_one(Grid).show(*self.tables.draw(self.active, self.look, self.size.width, self.filter_text))

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    # keys

    def selected(self) -> Any:
        """Returns the row under the cursor: a device, a process, an episode or a node; None if there is none."""
        shown, row = self.tables.by_tab[self.active].shown, self.query_one(Grid).cursor
        return shown[row] if 0 <= row < len(shown) else None

    def action_tab(self, name: str) -> None:
        if name != self.active:
            self.active = name
            self.query_one(Grid).cursor = 0
        self.redraw()

    def action_next_tab(self, step: int) -> None:
        if self.screen_stack[0] is self.screen:
            self.action_tab(TABS[(TABS.index(self.active) + step) % len(TABS)])

    def action_help(self) -> None:
        self.push_screen(Page(self.look, HELP, "keys"))

    def action_filter(self) -> None:
        def typed(value: str | None) -> None:
            if value is not None:
                self.filter_text = value.strip()
            self.redraw()

        self.push_screen(Filter(self.filter_text), typed)

    def action_sort(self) -> None:
        title = self.tables.by_tab[self.active].sort_by_next()
        self.show_message(f"sorted by {title}; press O to reverse")
        self.redraw()

    def action_reverse(self) -> None:
        self.tables.by_tab[self.active].reverse = not self.tables.by_tab[self.active].reverse
        self.redraw()

    def action_tree(self) -> None:
        self.tables.grouped = not self.tables.grouped
        self.show_message("processes sorted by node and job" if self.tables.grouped else "processes unsorted")
        self.action_tab("processes")

    def action_own(self) -> None:
        self.tables.own_only = not self.tables.own_only
        self.show_message("own processes only" if self.tables.own_only else "processes of all users")
        self.action_tab("processes")

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.redraw()

    def action_interval(self, step: int) -> None:
        index = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self.interval)) + step
        self.interval = INTERVALS[min(max(index, 0), len(INTERVALS) - 1)]
        self._timer.stop()
        self._timer = self.set_interval(self.interval, self._tick)
        self.redraw()

    def action_seek(self, key: str) -> None:
        grid = self.query_one(Grid)
        if self.replay is None:
            {"home": grid.action_first, "end": grid.action_last}.get(key, lambda: None)()
            return
        at = min(max(self.replay.time + STEPS[key], self.replay.start_time), self.replay.end_time)
        if at < self.replay.time:
            self.state, self.diagnosis = State(), LiveDiagnosis()
            self.replay.seek(at)
        else:
            self.replay.forward(at - self.replay.time)
        self.diagnose_now()

    def on_grid_moved(self) -> None:
        self._draw_bars()

    def on_grid_chosen(self) -> None:
        row = self.selected()
        if row is None:
            return
        if self.active in ("overview", "GPUs"):
            self.push_screen(Chart(self.look, *row))
        elif self.active == "findings":
            self.push_screen(finding_page(self.look, row))
        elif self.active == "processes":
            self.action_stacks()
        elif self.active == "nodes":
            self.filter_text = row.name
            self.action_tab("GPUs")

    def action_stacks(self) -> None:
        if self.readonly:
            self.show_message("stacks are disabled (--readonly, replay or demo)")
            return
        row = self.selected() if self.active == "processes" else None
        actions.show_output(self, self.look, "stacks", actions.stacks_command(row, self._hostname, self._via))

    def action_ras(self) -> None:
        if self._recorded:
            self.show_message("RAS is not available in a replay or demo")
            return
        actions.show_output(self, self.look, "RAS", actions.RAS)

    def action_kill(self) -> None:
        row = self.selected() if self.active == "processes" else None
        if self.readonly:
            self.show_message("signals are disabled (--readonly, replay or demo)")
        elif row is None:
            self.show_message("select a process first: press 4")
        elif row[0].name != self._hostname:
            self.show_message(f"the process is on {row[0].name}; signals can be sent on this node only")
        else:
            actions.send_signal(self, self.look, row[1], self.show_message)
