"""The screen. Feeds run in threads and post records; handlers take them in; a timer draws what changed."""

import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import psutil
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.message import Message

from nccl_doctor.watch import actions
from nccl_doctor.watch.cost import Cost
from nccl_doctor.watch.feed import Replay
from nccl_doctor.watch.live_diagnosis import Judge
from nccl_doctor.watch.state import Device, Node, State
from nccl_doctor.watch.view import bars, overview, panes
from nccl_doctor.watch.view.cells import Column, Look, choose, row_line, title_line
from nccl_doctor.watch.view.screens import HELP, Chart, Filter, Page, about
from nccl_doctor.watch.view.widgets import Grid, Lines

JUDGE_EVERY = 10.0  # seconds
JUDGE_FIRST = 4.0
JUDGE_SHARE = 250.0  # the rules rest so many times as long as they took
SAID = 4.0  # seconds for which an answer to a key is shown
TABS = ("overview", "GPUs", "network", "processes", "findings", "nodes")
INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0)
STEPS = {"left": -5.0, "right": 5.0, "comma": -30.0, "full_stop": 30.0, "home": float("-inf"), "end": float("inf")}


class Source(Protocol):
    """What starts and stops to hand on records."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pids(self) -> list[int]: ...


class Record(Message):
    """A record of a feed, and when it came."""

    def __init__(self, record: dict[str, Any], came: float | None) -> None:
        super().__init__()
        self.record, self.came = record, came


class Judged(Message):
    """The rules have answered, after so many seconds."""

    def __init__(self, took: float) -> None:
        super().__init__()
        self.took = took


@dataclass
class Table:
    """A table of the screen: its columns, its rows, what a row is known by, and what is said where there is none."""

    columns: Callable[[], tuple[Column, ...]]
    rows: Callable[[], list[Any]]
    key: Callable[[Any], Hashable]
    empty: str
    sort: str | None = None  # key of a column; None is the order of `rows`
    reverse: bool = False
    shown: list[Any] = field(default_factory=list)


def _device(row: tuple[Node, Device]) -> Hashable:
    return row[0].name, row[1].name


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
        Binding("k,f9", "kill", "signal"),
        Binding("r", "ras", "RAS"),
        Binding("space", "pause", "pause"),
        Binding("plus,equals_sign", "interval(-1)", "faster"),
        Binding("minus", "interval(1)", "slower"),
        *(Binding(key, f"seek('{key}')", "seek") for key in STEPS),
        Binding("q,f10", "quit", "leave"),
        Binding("ctrl+c", "quit", "leave", priority=True),
    ]

    def __init__(
        self, source: Callable[[Callable[[dict[str, Any]], None]], Source], *, interval: float = 1.0, look: Look | None = None,
        readonly: bool = False, title: str = "", replay: Replay | None = None, invented: bool = False, via: str = "ssh",
        nodes: tuple[str, ...] = (), clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.state = State()
        self.judge = Judge()
        self.look = look or Look()
        self.readonly = readonly
        self.replay = replay
        self.active = TABS[0]
        self.paused = False
        self.interval = interval
        self.filtered = ""
        self.own = False
        self.nested = False
        self.label = title or "nccl-doctor"
        self._recorded = replay is not None or invented  # the time is that of the records
        self._expected = nodes
        self._via = via
        self._here = os.uname().nodename
        self._clock = clock
        self._source = source(self._put)
        self._cost = Cost(self._source.pids)
        self._dirty = True
        self._judging = False
        self._judge_at = time.monotonic() + JUDGE_FIRST
        self._said = ("", 0.0)
        self.tables = {
            "GPUs": Table(lambda: panes.GPUS, lambda: list(self.state.gpus()), _device, "no GPU is known"),
            "network": Table(lambda: panes.PORTS, self._ports, _device, "no network port is known"),
            "processes": Table(lambda: panes.PROCESSES, self._processes, lambda row: (row[0].name, row[1].get("pid")),
                               "no rank of a job runs here (processes with RANK or the like in their environment)"),
            "findings": Table(lambda: panes.FINDINGS, lambda: panes.episodes(self.judge.episodes), id,
                              "the rules have found nothing"),
            "nodes": Table(lambda: panes.node_columns(self.now()), lambda: panes.worst_first(self.state, self.now()),
                           lambda node: node.name, "no node has answered"),
        }  # fmt: skip
        self.tables["overview"] = Table(lambda: panes.GPUS, self.tables["GPUs"].rows, _device, "no GPU is known")

    def _put(self, record: dict[str, Any]) -> None:
        self.post_message(Record(record, None if self._recorded else self._clock()))

    def compose(self) -> ComposeResult:
        yield Lines(id="head")
        yield Lines(id="tabs")
        yield Grid(self.look, id="grid")
        yield Lines(id="hosts")
        yield Lines(id="ports")
        yield Lines(id="news")
        yield Lines(id="keys")

    def on_mount(self) -> None:
        for name in self._expected:
            self.state.expect(name, self._clock())
        self._source.start()
        self._timer = self.set_interval(self.interval, self._tick)
        self.query_one(Grid).focus()
        self.draw()

    def on_unmount(self) -> None:
        self._source.stop()

    # records and findings

    def on_record(self, message: Record) -> None:
        self.take(message.record, message.came)

    def take(self, record: dict[str, Any], came: float | None = None) -> None:
        """Take in one record; only the thread of the screen may call it."""
        self.state.take(record, came)
        self.judge.take(record, came)
        self._dirty = True

    def on_judged(self, message: Judged) -> None:
        self._judging = False
        self._judge_at = time.monotonic() + max(JUDGE_EVERY, JUDGE_SHARE * message.took)
        self._dirty = True

    def _ask(self) -> None:
        if self._judging or time.monotonic() < self._judge_at or not self.state.now:
            return
        self._judging = True
        spins, now = self.judge.spins(self.state), self.state.now
        judge = self.judge

        def work() -> None:
            started = time.thread_time()
            try:
                judge.judge(spins, now)
            finally:
                self.post_message(Judged(time.thread_time() - started))

        self.run_worker(work, thread=True, group="judge", exit_on_error=False)

    def ask_now(self) -> None:
        """Judge at once, for a replay that was moved and for tests."""
        self.judge.ask(self.state)
        self.draw()

    # drawing

    def now(self) -> float:
        """The time that the screen shows: that of the records in a replay, else the clock's."""
        return self.state.now if self._recorded else self._clock()

    def _tick(self) -> None:
        if self.replay is not None and not self.paused:
            self.replay.forward(self.interval)
        if not self.paused:
            self._ask()
        self._cost.measure()
        if self._dirty or not self._recorded:
            self.draw()

    def say(self, words: str) -> None:
        """Answer a key in the last line."""
        self._said = (words, time.monotonic() + SAID)
        self.draw()

    def draw(self) -> None:
        """Bring what is seen up to date."""
        screen = self.screen
        if isinstance(screen, Page):
            screen.draw()
        if self.screen_stack[0] is not screen:
            return
        try:
            if not self.paused:
                self._below()
                self._fill()
                self._dirty = False
            self._bars()
        except NoMatches:  # the screen is being taken down
            return

    def redraw(self) -> None:
        """Draw after a key, also while paused."""
        self._below()
        self._fill()
        self._bars()

    def _bars(self) -> None:
        width = self.size.width
        self.query_one("#head", Lines).show([bars.head(self, self._cost.percent, width)])
        tabs = self.query_one("#tabs", Lines)
        line, tabs.hot = bars.tabs(TABS, self.active, self.query_one(Grid).part, width)
        tabs.show([line])
        words = self._said[0] if time.monotonic() < self._said[1] else ""
        keys = self.query_one("#keys", Lines)
        line, keys.hot = bars.keys(self.readonly, self.replay is not None, words, self.look, width)
        keys.show([line])

    def _below(self) -> None:
        """The lines under the GPUs of the first pane, a third of the screen at most for findings and for ports."""
        shown = self.active == "overview"
        width, height = self.size
        room = max(height - 6, 0)
        news = overview.news(self.state, self.judge.episodes, self.look, self.now(), width, min(max(room // 4, 2), 8))
        hosts = [
            overview.host_line(node, self.look, width)
            for node in panes.bad_first(self.state, self.now())[: min(max(room // 8, 1), 8)] if node.host.now
        ]  # fmt: skip
        gpus = sum(len(node.gpus) for node in self.state.nodes.values())
        most = min(max(room - len(news) - len(hosts) - gpus, 3), max(room // 3, 1))
        ports = overview.port_lines(self.state, self.look, width, most)
        for name, lines in (("#news", news), ("#hosts", hosts), ("#ports", ports)):
            self.query_one(name, Lines).show(lines if shown else [])

    def _fill(self) -> None:
        table, grid = self.tables[self.active], self.query_one(Grid)
        columns = [c for c in table.columns() if c.key != "node" or self.active == "nodes" or len(self.state.nodes) > 1]
        rows = table.rows()
        fitted = choose(columns, self.size.width, rows, self.look)
        column = next((c for c in columns if c.key == table.sort), None)
        if column is not None:
            order = column.order
            rows = sorted(rows, key=lambda row: _sortable(order(row)), reverse=table.reverse)
        drawn = [[column.cell(row, self.look) for column, _ in fitted] for row in rows]
        if self.filtered:
            wanted = self.filtered.lower()
            kept = [n for n, cells in enumerate(drawn) if wanted in " ".join(c.plain for c in cells).lower()]
            rows, drawn = [rows[n] for n in kept], [drawn[n] for n in kept]
        table.shown = rows
        rights = [cell.right for cell in drawn[0]] if drawn else [False] * len(fitted)
        empty = f"no row contains {self.filtered}; / changes the filter" if self.filtered else table.empty
        grid.show(
            title_line(fitted, self.look, rights), [row_line(cells, fitted, self.look) for cells in drawn],
            [table.key(row) for row in rows], empty,
        )  # fmt: skip

    def _ports(self) -> list[tuple[Node, Device]]:
        return [(node, port) for node in self.state.nodes.values() for port in node.ports.values()]

    def _processes(self) -> list[tuple[Node, dict[str, Any]]]:
        found = [(node, one) for node in self.state.nodes.values() for one in node.ranks]
        if self.own:
            me = psutil.Process().username()
            found = [row for row in found if row[1].get("user") == me]
        if self.nested:
            found.sort(key=lambda row: (row[0].name, str(row[1].get("job")), _sortable(row[1].get("rank"))))
        return found

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    # keys

    def selected(self) -> Any:
        """What the row under the cursor stands for."""
        shown, row = self.tables[self.active].shown, self.query_one(Grid).cursor
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
                self.filtered = value.strip()
            self.redraw()

        self.push_screen(Filter(self.filtered), typed)

    def action_sort(self) -> None:
        table = self.tables[self.active]
        keys = [None, *(column.key for column in table.columns())]
        table.sort = keys[(keys.index(table.sort) + 1) % len(keys)]
        title = next((column.title for column in table.columns() if column.key == table.sort), "nothing")
        self.say(f"sorted by {title}; O turns it round")
        self.redraw()

    def action_reverse(self) -> None:
        self.tables[self.active].reverse = not self.tables[self.active].reverse
        self.redraw()

    def action_tree(self) -> None:
        self.nested = not self.nested
        self.say("processes by node and job" if self.nested else "processes as they come")
        self.action_tab("processes")

    def action_own(self) -> None:
        self.own = not self.own
        self.say("own processes only" if self.own else "processes of all users")
        self.action_tab("processes")

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.redraw()

    def action_interval(self, step: int) -> None:
        place = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self.interval)) + step
        self.interval = INTERVALS[min(max(place, 0), len(INTERVALS) - 1)]
        self._timer.stop()
        self._timer = self.set_interval(self.interval, self._tick)
        self.redraw()

    def action_seek(self, key: str) -> None:
        grid = self.query_one(Grid)
        if self.replay is None:
            {"home": grid.action_first, "end": grid.action_last}.get(key, lambda: None)()
            return
        at = min(max(self.replay.moment + STEPS[key], self.replay.start_time), self.replay.end_time)
        if at < self.replay.moment:
            self.state, self.judge = State(), Judge()
            self.replay.seek(at)
        else:
            self.replay.forward(at - self.replay.moment)
        self.ask_now()

    def on_grid_moved(self) -> None:
        self._bars()

    def on_grid_chosen(self) -> None:
        row = self.selected()
        if row is None:
            return
        if self.active in ("overview", "GPUs"):
            self.push_screen(Chart(self.look, *row))
        elif self.active == "findings":
            self.push_screen(about(self.look, row))
        elif self.active == "processes":
            self.action_stacks()
        elif self.active == "nodes":
            self.filtered = row.name
            self.action_tab("GPUs")

    def action_stacks(self) -> None:
        if self.readonly:
            self.say("processes are left alone here (--readonly, replay or demo)")
            return
        row = self.selected() if self.active == "processes" else None
        actions.ask(self, self.look, "stacks", actions.stacks(row, self._here, self._via))

    def action_ras(self) -> None:
        if self._recorded:
            self.say("a replay or demo has no RAS to ask")
            return
        actions.ask(self, self.look, "RAS", actions.RAS)

    def action_kill(self) -> None:
        row = self.selected() if self.active == "processes" else None
        if self.readonly:
            self.say("no signals here (--readonly, replay or demo)")
        elif row is None:
            self.say("select a process first: 4")
        elif row[0].name != self._here:
            self.say(f"{row[0].name} is another node: signals go to processes of this one only")
        else:
            actions.send(self, self.look, row[1], self.say)


def _sortable(value: Any) -> tuple[bool, Any, str]:
    """Numbers before words, what is missing first: values of records may be of any kind."""
    if isinstance(value, tuple):
        return True, float(value[0]), str(value[1:])
    known = isinstance(value, int | float)
    return value is not None, float(value) if known else 0.0, "" if known else str(value)
