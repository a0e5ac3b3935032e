"""The live screen. Feeds run in threads and leave records, a timer adds them to the state and draws what changed."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.message import Message

from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.watch.cost import Cost
from nccl_doctor.watch.hands import Hands
from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.settings import Settings
from nccl_doctor.watch.sources.replay import Mark, Replay, find_marks
from nccl_doctor.watch.state import State
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.painter import TABS, Painter
from nccl_doctor.watch.view.screens import Chart, FilterBar
from nccl_doctor.watch.view.tables import Filter, Tables
from nccl_doctor.watch.view.widgets import Grid, Lines

if TYPE_CHECKING:
    from nccl_doctor.watch.sources.logs import LogSource

RULES_EVERY = 10.0  # seconds between two rule runs, at least
RULES_FIRST = 4.0  # seconds before the first rule run
RULES_PAUSE = 10.0  # pause after a rule run, as a multiple of its CPU time
MESSAGE_SECONDS = 4.0  # seconds for which the answer to a key is shown
ALL_ROWS = Filter()
HELD = 5000  # records that wait for the next drawing or the end of a pause; older ones are dropped


class Source(Protocol):
    """A source of records that can be started and stopped."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pids(self) -> list[int]: ...


class RulesFinished(Message):
    """A rule run ended; `cpu_seconds` is its CPU time, `problem` why it failed."""

    def __init__(self, cpu_seconds: float, problem: str = "") -> None:
        super().__init__()
        self.cpu_seconds = cpu_seconds
        self.problem = problem


class LogsRead(Message):
    """The findings of the logs that are followed, or why these cannot be read."""

    def __init__(self, findings: list[Finding] | None, text: str) -> None:
        super().__init__()
        self.findings, self.text = findings, text


class Marks(Message):
    """The marks of a recording that were found so far."""

    def __init__(self, marks: list[Mark]) -> None:
        super().__init__()
        self.marks = marks


class Watch(Hands):
    """The live screen of `nccl-doctor watch`."""

    TITLE = "nccl-doctor watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; overflow: hidden hidden; }
    ModalScreen { background: transparent; }
    """

    def __init__(
        self, source: Callable[[Callable[[dict[str, Any]], None]], Source], *, interval: float = 1.0, look: Look | None = None,
        readonly: bool = False, title: str = "", replay: Replay | None = None, invented: bool = False, via: str = "ssh",
        nodes: tuple[str, ...] = (), clock: Callable[[], float] = time.time, rows: Filter = ALL_ROWS,
        answer: Callable[[str], str] | None = None, logs: tuple[str, ...] = (),
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
        self.speed = 1.0
        self.marks = []
        self.label = title or "nccl-doctor"
        self.recorded = replay is not None or invented  # the screen shows the time of the records, not ours
        self.answer = answer
        self.via = via
        self.hostname = os.uname().nodename
        self.rules_problem = ""
        self._expected = nodes
        self._clock = clock
        self._paused_at = 0.0
        self._held: deque[tuple[dict[str, Any], float | None]] = deque(maxlen=HELD)
        self._source = source(self.receive)
        self._logs = self._follow(logs) if logs else None
        self._cost = Cost(self._source.pids)
        self._dirty = True
        self._rules_running = False
        self._rules_due = time.monotonic() + (0.0 if invented else RULES_FIRST)
        self._message = ("", 0.0)
        self.tables = Tables(lambda: self.state, lambda: self.diagnosis.episodes, self.now, lambda: self.rules_problem)
        self.tables.filter = rows
        self.painter = Painter(self)

    def _follow(self, paths: tuple[str, ...]) -> "LogSource":
        """Returns what follows the logs; `analyze`, which it needs, takes a while to import."""
        from nccl_doctor.watch.sources.logs import LogSource

        return LogSource(self.receive, self._of_logs, partial(self._of_logs, None), paths)

    def receive(self, record: dict[str, Any]) -> None:
        """Leave a record for the screen's thread, which takes it before it draws: a message for each would cost more."""
        self._held.append((record, None if self.recorded else self._clock()))

    def compose(self) -> ComposeResult:
        yield Lines(self.look, id="head")
        yield Lines(self.look, id="headline")
        yield Lines(self.look, id="time")
        yield Lines(self.look, id="tabs")
        yield Grid(self.look, id="grid")
        for name in ("detail", "alerts", "hosts", "ports", "keys"):
            yield Lines(self.look, id=name)
        yield FilterBar(self.look)

    def on_mount(self) -> None:
        for name in self._expected:
            self.state.expect(name, self._clock())
        self._source.start()
        if self._logs is not None:
            self._logs.start()
        for number in (signal.SIGTERM, signal.SIGHUP):  # the terminal is restored before the process ends
            with suppress(RuntimeError, ValueError):  # not in the main thread
                asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)
        self.timer = self.set_interval(self.interval, self._tick)
        self.query_one(Grid).focus()
        self.draw()

        if self.replay is not None:
            self.run_worker(self._find_marks, thread=True, group="marks", exit_on_error=False)

    def _find_marks(self) -> None:
        assert self.replay is not None
        for marks in find_marks(self.replay.records, lambda: self.is_running):
            self.post_message(Marks(marks))

    def on_marks(self, message: Marks) -> None:
        self.marks = message.marks
        self._dirty = True

    def on_unmount(self) -> None:
        self._source.stop()
        if self._logs is not None:
            self._logs.stop()

    # records and findings

    def add_record(self, record: dict[str, Any], received_at: float | None = None) -> None:
        """Add one record, during a pause after it; only the screen's thread may call it."""
        if self.paused and self.replay is None:
            self._held.append((record, received_at))
            return
        self.state.add_record(record, received_at)
        self.diagnosis.add_record(record, received_at)
        self._dirty = True

    def set_paused(self, paused: bool) -> None:
        """Stop the clock and the values, or catch up with what arrived meanwhile."""
        self._paused_at = self.now()
        self.paused = paused
        if not paused:
            self._take_records()

    def _take_records(self) -> None:
        while self._held:
            self.add_record(*self._held.popleft())

    def _of_logs(self, findings: list[Finding] | None, text: str = "") -> None:
        """Hand what was found in the logs, or why they cannot be read, to the screen's thread."""
        with suppress(RuntimeError):  # the screen is closed
            self.post_message(LogsRead(findings, text))

    def on_logs_read(self, message: LogsRead) -> None:
        if message.findings is not None:
            self.diagnosis.set_log_findings(message.findings)
        if message.text:
            self.show_message(message.text)

    def on_rules_finished(self, message: RulesFinished) -> None:
        self._rules_running = False
        self.rules_problem = message.problem
        self._rules_due = time.monotonic() + max(RULES_EVERY, RULES_PAUSE * message.cpu_seconds)
        self._dirty = True

    def _run_rules(self) -> None:
        if self._rules_running or time.monotonic() < self._rules_due or not self.state.now:
            return
        if not self.rules_problem and not self.diagnosis.due(self.state):
            self._rules_due = time.monotonic() + 1.0
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

    def apply(self, settings: Settings) -> None:
        """Take over what was remembered from the last start."""
        self.active = settings.tab if settings.tab in TABS else self.active
        self.tables.own_only, self.tables.tree = settings.own_processes, settings.tree
        for tab, key in settings.sort.items():
            if tab in self.tables.by_tab:
                self.tables.by_tab[tab].sort = key
                self.tables.by_tab[tab].reverse = settings.reverse.get(tab, False)

    def settings(self) -> Settings:
        """Returns what is remembered for the next start."""
        tables = self.tables.by_tab
        return Settings(
            tab=self.active, interval=self.interval, light=self.look.light, own_processes=self.tables.own_only, tree=self.tables.tree,
            sort={tab: table.sort for tab, table in tables.items() if table.sort is not None},
            reverse={tab: True for tab, table in tables.items() if table.reverse},
        )  # fmt: skip

    def diagnose_now(self) -> None:
        """Run the rules and wait for them: after a jump in a replay, and in tests."""
        self.diagnosis.diagnose(self.state)
        self.redraw()

    # drawing

    @property
    def cost_percent(self) -> float:
        """CPU time of this program and its children, in percent of one core."""
        return self._cost.percent

    def now(self) -> float:
        """Returns the time that the screen shows: that of the records in a replay or demo, else ours; it stops on pause."""
        if self.paused:
            return self._paused_at
        return self.state.now if self.recorded else self._clock()

    def restart_timer(self) -> None:
        """Draw in the new interval."""
        self.timer.stop()
        self.timer = self.set_interval(self.interval, self._tick)

    def _tick(self) -> None:
        if not self.paused:
            self._take_records()
            if self.replay is not None:
                self.replay.forward(self.interval * self.speed)
            self._run_rules()
        self._cost.measure()
        if self._dirty or not self.recorded:
            self.draw()

    def message(self) -> str:
        """Returns the answer to the last key, as long as it is shown."""
        return self._message[0] if time.monotonic() < self._message[1] else ""

    def show_message(self, text: str) -> None:
        """Show the answer to a key in the last line."""
        self._message = (text, time.monotonic() + MESSAGE_SECONDS)
        self.draw()

    def draw(self) -> None:
        """Draw what changed, unless paused or hidden by another screen."""
        screen = self.screen
        if isinstance(screen, Chart):
            screen.draw()
        if self.screen_stack[0] is not screen:
            return
        try:
            if not self.paused:
                self.painter.body()
                self._dirty = False
            self.painter.bars()
        except NoMatches:  # the screen is closing
            return

    def redraw(self) -> None:
        """Draw after a key, also while paused."""
        with suppress(NoMatches):
            self.painter.body()
            self.painter.bars()

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)
