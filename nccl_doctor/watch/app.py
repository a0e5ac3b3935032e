"""The screen. Feeds run in threads and post records; handlers take them in; a timer draws what changed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import psutil
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.css.query import NoMatches
from textual.events import Resize
from textual.message import Message
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from nccl_doctor.report import Finding
from nccl_doctor.watch import panes
from nccl_doctor.watch.judge import Judge
from nccl_doctor.watch.panes import Column, Look
from nccl_doctor.watch.screens import Ask, Chart, Filter, Page, about
from nccl_doctor.watch.state import Device, Node, State

JUDGE_EVERY = 5.0  # seconds
TABS = ("overview", "gpus", "network", "processes", "findings", "nodes")
INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0)
STEPS = {"left": -5.0, "right": 5.0, "comma": -30.0, "full_stop": 30.0, "home": float("-inf"), "end": float("inf")}

HELP = """\
1-6, Tab    panes: overview, GPUs, network, processes, findings, nodes
arrows      move; Enter shows the GPU's history, the finding with its fix, the process's stacks, the node
/           show only rows that contain a text
o  O        sort by the next column; the other way round
t           processes below their node and job, or in one list
u           own processes only
s           stacks of all ranks, or of the selected process
k           send a signal to the selected process, after a question
r           RAS: ask NCCL who does not answer (port 28028)
Space       pause
+  -        draw more or less often
left right  in a replay: 5 s back and forth; , and . 30 s; Home and End
?           this help
q           leave

A GPU is green from 80 % utilisation on. "held by" is the driver's reason for lower clocks.
Findings come from the same rules as `nccl-doctor analyze`; Enter shows why and what to type.
"""


class Source(Protocol):
    """What starts and stops to hand on records."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Record(Message):
    """A record of a feed."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__()
        self.record = record


class Judged(Message):
    """What the rules said."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__()
        self.findings = findings


@dataclass
class Table:
    """A table of the screen: its columns, its rows, and what each row stands for."""

    widget: str
    columns: Callable[[], tuple[Column, ...]]
    rows: Callable[[], list[Any]]
    sort: int | None = None  # column; None is the order of `rows`
    reverse: bool = False
    shown: list[Any] = field(default_factory=list)
    drawn: list[list[Text]] = field(default_factory=list)
    keys: tuple[str, ...] = ()


class Watch(App[None]):
    """The live screen of `nccl-doctor watch`."""

    TITLE = "nccl-doctor watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; text-style: bold; }
    #news { height: auto; max-height: 4; }
    #hosts { height: auto; max-height: 3; }
    DataTable { height: auto; max-height: 100%; scrollbar-size: 1 1; }
    #overview-gpus { max-height: 60%; }
    TabPane { padding: 0; }
    ContentTabs Tab { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"tab('{name}')", name, show=False) for number, name in enumerate(TABS, 1)),
        Binding("tab", "next_tab", "pane", show=False, priority=True),
        Binding("question_mark,h,f1", "help", "help", key_display="?"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("o", "sort", "sort"),
        Binding("O", "reverse", "reverse", show=False),
        Binding("t", "tree", "tree", show=False),
        Binding("u", "own", "own", show=False),
        Binding("s", "stacks", "stacks"),
        Binding("k", "kill", "signal"),
        Binding("r", "ras", "RAS", show=False),
        Binding("space", "pause", "pause"),
        Binding("plus", "interval(-1)", "faster", show=False),
        Binding("minus", "interval(1)", "slower", show=False),
        *(Binding(key, f"seek('{key}')", "seek", show=False, priority=key in ("left", "right")) for key in STEPS),
        Binding("q,ctrl+c", "quit", "leave", priority=True),
    ]

    def __init__(
        self, source: Callable[[Callable[[dict[str, Any]], None]], Source], *, interval: float = 1.0, ascii_only: bool = False,
        readonly: bool = False, title: str = "", replay: Any = None, demo: bool = False, clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        super().__init__()
        self.state = State()
        self.judge = Judge()
        self.look = Look(ascii_only)
        self.readonly = readonly
        self.replay = replay
        self._demo = demo
        self._source = source(self._put)
        self._interval = interval
        self._clock = clock
        self._name = title
        self._paused = False
        self._filter = ""
        self._own = False
        self._tree = False
        self._dirty = True
        self._judging = False
        self._self = psutil.Process()
        self._cost = 0.0
        self._tables = {
            "overview": Table("overview-gpus", lambda: panes.GPUS, self._gpus),
            "gpus": Table("all-gpus", lambda: panes.GPUS, self._gpus),
            "network": Table("all-ports", lambda: panes.PORTS, self._ports),
            "processes": Table("all-processes", lambda: panes.PROCESSES, self._processes),
            "findings": Table("all-findings", lambda: panes.FINDINGS, lambda: panes.episodes(self.judge.episodes)),
            "nodes": Table("all-nodes", lambda: panes.node_columns(self._now()), lambda: panes.worst_first(self.state)),
        }

    def _put(self, record: dict[str, Any]) -> None:
        self.post_message(Record(record))

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="news", markup=False)
        with TabbedContent(initial="overview"):
            for name in TABS:
                with TabPane(name.replace("gpus", "GPUs"), id=name), Vertical():
                    table: DataTable[Text] = DataTable(
                        id=self._tables[name].widget, cursor_type="row", zebra_stripes=False, cell_padding=1
                    )
                    yield table
                    if name == "overview":
                        yield Static(id="hosts")
                        yield Static(id="ports")
        yield Footer()

    def on_mount(self) -> None:
        self._source.start()
        self._timer = self.set_interval(self._interval, self._tick)
        self.set_interval(JUDGE_EVERY, self._ask)
        self.set_interval(2.0, self._measure)
        self._focus()
        self._tick()

    def on_unmount(self) -> None:
        self._source.stop()

    # records and findings

    def on_record(self, message: Record) -> None:
        if not self._paused:
            self.take(message.record)

    def take(self, record: dict[str, Any]) -> None:
        """Take in one record; only the thread of the screen may call it."""
        self.state.take(record)
        self.judge.take(record)
        self._dirty = True

    def on_judged(self, message: Judged) -> None:
        self._judging = False
        self._dirty = True

    def _ask(self) -> None:
        if not self._judging and not self._paused and self.state.nodes:
            self._judging = True
            self.run_worker(self._judge, thread=True, group="judge")

    def _judge(self) -> None:
        findings: list[Finding] = []
        try:
            findings = self.judge.ask(self.state)
        finally:
            self.post_message(Judged(findings))

    def ask_now(self) -> None:
        """Judge at once, for a replay that was moved and for tests."""
        self.judge.ask(self.state)
        self._dirty = True

    # drawing

    def _now(self) -> float:
        """The time that the screen shows: that of the records in a replay, else the clock's."""
        return self.state.now if self.replay is not None or self._demo else self._clock()

    def _tick(self) -> None:
        if self.replay is not None and not self._paused:
            self.replay.forward(self._interval)
        self._head()
        if self._dirty or self.replay is None:
            self._dirty = False
            self._draw()

    def _draw(self) -> None:
        if isinstance(self.screen, Page | Chart | Ask | Filter):
            return
        try:
            active = self.query_one(TabbedContent).active
            self._news()
            if active == "overview":
                self._overview()
            self._fill(self._tables[active])
        except NoMatches:  # the screen is being taken down
            return

    def _head(self) -> None:
        nodes = len(self.state.nodes)
        gpus = sum(len(node.gpus) for node in self.state.nodes.values())
        parts = [
            self._name or "nccl-doctor", f"{nodes} node{'s' if nodes != 1 else ''}", f"{gpus} GPUs", panes.clock(self._now()),
            f"{self._interval:g} s", f"own {self._cost:.1f} %",
        ]  # fmt: skip
        if self._paused:
            parts.append("PAUSED")
        if self._filter:
            parts.append(f"/{self._filter}")
        separator = " | " if self.look.ascii else " · "
        self.query_one("#head", Static).update(Text(separator.join(parts), no_wrap=True, overflow="ellipsis"))

    def _news(self) -> None:
        """The gravest findings, and what does not answer."""
        lines = []
        for node in panes.worst_first(self.state):
            bad, words = panes.node_state(node, self._now())
            if bad:
                lines.append(Text(f"{node.name}  {words}", style=panes.FAIR if bad == 1 else panes.BAD))
        for episode in panes.episodes(self.judge.episodes):
            if not episode.over and episode.finding.severity != "note":
                style = panes.STYLES[episode.finding.severity]
                lines.append(
                    Text(
                        f"{episode.finding.severity.upper()} {episode.finding.name}: {episode.finding.message}",
                        style=style,
                    )
                )
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        self.query_one("#news", Static).update(Text("\n").join(lines[:4]))

    def _overview(self) -> None:
        width = self.size.width
        hosts = [panes.host_line(node, self.look) for node in list(self.state.nodes.values())[:3]]
        self.query_one("#hosts", Static).update(Text("\n").join(hosts))
        ports = []
        for node in self.state.nodes.values():
            for port in node.ports.values():
                rx, tx = port.last("rx"), port.last("tx")
                state = port.now.get("state")
                errors = sum(port.errors.values())
                text = f"{node.name} {port.name} {state or ''} {rx or 0:.1f}/{tx or 0:.1f} Gb/s" + (
                    f" errors +{errors}" if errors else ""
                )
                ports.append(
                    Text(text[: width - 1], style=panes.BAD if errors or state not in ("ACTIVE", "UP") else "")
                )
        self.query_one("#ports", Static).update(Text("\n").join(ports[: max(self.size.height - 16, 2)]))

    def _gpus(self) -> list[tuple[Node, Device]]:
        return list(self.state.gpus())

    def _ports(self) -> list[tuple[Node, Device]]:
        return [(node, port) for node in self.state.nodes.values() for port in node.ports.values()]

    def _processes(self) -> list[tuple[Node, dict[str, Any]]]:
        found = [(node, one) for node in self.state.nodes.values() for one in node.ranks]
        if self._own:
            me = self._self.username()
            found = [row for row in found if row[1].get("user") == me]
        if self._tree:
            found.sort(key=lambda row: (row[0].name, str(row[1].get("job")), row[1].get("rank") or 0))
        return found

    def _fill(self, table: Table) -> None:
        """Bring a table up to date; cells that did not change are left alone."""
        widget: DataTable[Text] = self.query_one(f"#{table.widget}", DataTable)
        columns = [column for column in table.columns() if self.size.width >= column.least]
        rows = table.rows()
        if table.sort is not None:
            column = table.columns()[table.sort]
            rows = sorted(
                rows, key=lambda row: (column.order(row) is not None, column.order(row)), reverse=table.reverse
            )
        drawn = [[column.cell(row, self.look) for column in columns] for row in rows]
        if self._filter:
            kept = [
                n for n, cells in enumerate(drawn) if self._filter.lower() in " ".join(c.plain for c in cells).lower()
            ]
            rows, drawn = [rows[n] for n in kept], [drawn[n] for n in kept]
        keys = tuple(column.key for column in columns)
        table.shown = rows
        if keys != table.keys or len(drawn) != len(table.drawn):
            cursor = widget.cursor_row
            widget.clear(columns=True)
            for column in columns:
                widget.add_column(column.title, width=column.width, key=column.key)
            for cells in drawn:
                widget.add_row(*cells)
            widget.move_cursor(row=min(cursor, max(len(drawn) - 1, 0)))
        else:
            for number, (cells, old) in enumerate(zip(drawn, table.drawn, strict=True)):
                for place, (cell, before) in enumerate(zip(cells, old, strict=True)):
                    if cell.plain != before.plain or cell.style != before.style:
                        widget.update_cell_at((number, place), cell)  # type: ignore[arg-type]
        table.keys, table.drawn = keys, drawn

    def _measure(self) -> None:
        """What we and our children cost, in percent of one processor."""
        try:
            self._cost = self._self.cpu_percent(None) + sum(child.cpu_percent(None) for child in self._children())
        except psutil.Error:
            return

    def _children(self) -> list[psutil.Process]:
        known = {child.pid: child for child in getattr(self, "_known_children", [])}
        self._known_children = [known.get(child.pid, child) for child in self._self.children(recursive=True)]
        return self._known_children

    def on_resize(self, _: Resize) -> None:
        self._dirty = True

    # keys

    def _table(self) -> Table:
        return self._tables[self.query_one(TabbedContent).active]

    def _selected(self) -> Any:
        table = self._table()
        row = self.query_one(f"#{table.widget}", DataTable).cursor_row
        return table.shown[row] if 0 <= row < len(table.shown) else None

    def _focus(self) -> None:
        self.query_one(f"#{self._table().widget}", DataTable).focus()

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        self._draw()
        self._focus()

    def action_next_tab(self) -> None:
        active = self.query_one(TabbedContent).active
        self.action_tab(TABS[(TABS.index(active) + 1) % len(TABS)])

    def on_tabbed_content_tab_activated(self) -> None:
        self._draw()

    def action_help(self) -> None:
        self.push_screen(Page(HELP, "keys (Esc closes)"))

    def action_filter(self) -> None:
        self.push_screen(Filter(self._filter), self._filtered)

    def _filtered(self, value: str | None) -> None:
        if value is not None:
            self._filter = value.strip()
        self._draw()

    def action_sort(self) -> None:
        table = self._table()
        table.sort = 0 if table.sort is None else table.sort + 1
        if table.sort >= len(table.columns()):
            table.sort = None
        self.notify(
            "sorted by " + (table.columns()[table.sort].title if table.sort is not None else "nothing"), timeout=2
        )
        self._draw()

    def action_reverse(self) -> None:
        table = self._table()
        table.reverse = not table.reverse
        self._draw()

    def action_tree(self) -> None:
        self._tree = not self._tree
        self.action_tab("processes")

    def action_own(self) -> None:
        self._own = not self._own
        self.action_tab("processes")

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._head()

    def action_interval(self, step: int) -> None:
        place = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self._interval)) + step
        self._interval = INTERVALS[min(max(place, 0), len(INTERVALS) - 1)]
        self._timer.stop()
        self._timer = self.set_interval(self._interval, self._tick)
        self._head()

    def action_seek(self, key: str) -> None:
        if self.replay is None:
            table = self.query_one(f"#{self._table().widget}", DataTable)
            {"home": table.action_scroll_top, "end": table.action_scroll_bottom}.get(key, lambda: None)()
            return
        at = min(max(self.replay.moment + STEPS[key], self.replay.start_time), self.replay.end_time)
        self.state, self.judge = State(), Judge()
        self.replay.seek(at)
        self.call_later(self.ask_now)

    def on_data_table_row_selected(self) -> None:
        row = self._selected()
        name = self.query_one(TabbedContent).active
        if row is None:
            return
        if name in ("overview", "gpus"):
            self.push_screen(Chart(row[0], row[1], self.look))
        elif name == "findings":
            self.push_screen(about(row))
        elif name == "processes":
            self.action_stacks()
        elif name == "nodes":
            self._filter = row.name
            self.action_tab("gpus")

    def action_stacks(self) -> None:
        if self.readonly:
            self.notify("--readonly: processes are left alone", severity="warning")
            return
        row = self._selected() if self.query_one(TabbedContent).active == "processes" else None
        pids = [f"--pid={row[1]['pid']}"] if row is not None and isinstance(row[1].get("pid"), int) else []
        self._ask_program("stacks", [sys.executable, "-m", "nccl_doctor", "stacks", *pids])

    def action_ras(self) -> None:
        self._ask_program("RAS", [sys.executable, "-m", "nccl_doctor.watch.ras"])

    def _ask_program(self, title: str, command: list[str]) -> None:
        page = Page(f"asking: {title} …", f"{title} (Esc closes)")
        self.push_screen(page)

        def work() -> None:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", timeout=60, check=False
                )
                text = (done.stdout + done.stderr).strip() or "no answer"
            except (OSError, subprocess.TimeoutExpired) as error:
                text = str(error)
            if page.is_attached:
                self.call_from_thread(page.show, text)

        self.run_worker(work, thread=True, group="ask")

    def action_kill(self) -> None:
        row = self._selected() if self.query_one(TabbedContent).active == "processes" else None
        if self.readonly or row is None:
            self.notify(
                "--readonly: no signals" if self.readonly else "select a process in pane 4 first", severity="warning"
            )
            return
        node, one = row
        if node.name != os.uname().nodename or self.replay is not None:
            self.notify(f"{node.name} is not this node", severity="warning")
            return

        def answered(yes: bool | None) -> None:
            if not yes:
                return
            try:
                os.kill(one["pid"], signal.SIGTERM)
                self.notify(f"SIGTERM sent to {one['pid']}")
            except OSError as error:
                self.notify(f"{one['pid']}: {error.strerror}", severity="error")

        self.push_screen(
            Ask(f"Send SIGTERM to process {one['pid']} (rank {one.get('rank')}, {one.get('user')})?"), answered
        )
