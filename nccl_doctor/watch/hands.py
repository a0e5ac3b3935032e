"""What the keys and the mouse do on the live screen."""

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Input

from nccl_doctor.watch import actions
from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.sources.replay import Replay
from nccl_doctor.watch.state import State
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.detail import gpu_panels, node_panels, port_panels
from nccl_doctor.watch.view.painter import TABS, Painter
from nccl_doctor.watch.view.screens import HELP, Chart, FilterBar, Page, finding_page
from nccl_doctor.watch.view.tables import Tables
from nccl_doctor.watch.view.widgets import Grid

INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0)
SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STEPS = {"left": -5.0, "right": 5.0, "comma": -30.0, "full_stop": 30.0, "left_curly_bracket": float("-inf"),
         "right_curly_bracket": float("inf")}  # fmt: skip
JUDGED_BEFORE = 30.0  # seconds: a mark is set when a finding is found, which is some time after its cause


class Hands(App[None]):
    """The actions of keys; what they act on is set by `Watch`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"tab('{name}')", name) for number, name in enumerate(TABS, 1)),
        Binding("tab", "next_tab(1)", "pane", priority=True),
        Binding("shift+tab", "next_tab(-1)", "pane", priority=True),
        Binding("question_mark,h,f1", "help", "help"),
        Binding("slash,f4", "filter", "filter"),
        Binding("escape", "clear_filter", "clear the filter"),
        Binding("o,f6", "sort", "sort"),
        Binding("O", "reverse", "reverse"),
        Binding("t,f5", "tree", "tree"),
        Binding("u", "own", "own"),
        Binding("s", "stacks", "stacks"),
        Binding("x,f9", "kill", "signal"),
        Binding("r", "ras", "RAS"),
        Binding("space", "pause", "pause"),
        Binding("plus,equals_sign", "interval(-1)", "faster"),
        Binding("minus", "interval(1)", "slower"),
        Binding("n", "find(1)", "next finding"),
        Binding("N", "find(-1)", "last finding"),
        Binding("right_square_bracket", "speed(1)", "faster"),
        Binding("left_square_bracket", "speed(-1)", "slower"),
        *(Binding(key, f"seek('{key}')", "seek") for key in STEPS),
        Binding("q,f10", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", priority=True),
    ]

    state: State
    diagnosis: LiveDiagnosis
    look: Look
    tables: Tables
    painter: Painter
    replay: Replay | None
    active: str
    readonly: bool
    paused: bool
    interval: float
    speed: float
    marks: list[tuple[float, str]]
    hostname: str
    via: str
    recorded: bool
    answer: Callable[[str], str] | None  # of the demo, to the keys for stacks and RAS
    timer: Timer

    def now(self) -> float:
        raise NotImplementedError

    def redraw(self) -> None:
        raise NotImplementedError

    def show_message(self, text: str) -> None:
        raise NotImplementedError

    def set_paused(self, paused: bool) -> None:
        raise NotImplementedError

    def restart_timer(self) -> None:
        raise NotImplementedError

    def diagnose_now(self) -> None:
        raise NotImplementedError

    def disabled(self) -> tuple[str, ...]:
        """Returns the actions that do nothing here."""
        if not self.readonly:
            return ()
        return ("kill",) if self.answer is not None else ("kill", "stacks", "ras")

    def selected(self) -> Any:
        """Returns the row under the cursor: a device, a process, a finding or a node; None if there is none."""
        shown, row = self.tables.by_tab[self.active].shown, self.painter.grid.cursor
        return shown[row] if 0 <= row < len(shown) else None

    # tabs and rows

    def action_tab(self, name: str) -> None:
        if name != self.active:
            self.active = name
            self.painter.grid.cursor = 0
        self.redraw()

    def action_next_tab(self, step: int) -> None:
        if self.screen_stack[0] is self.screen:
            self.action_tab(TABS[(TABS.index(self.active) + step) % len(TABS)])

    def action_help(self) -> None:
        self.push_screen(Page(self.look, HELP, "keys"))

    def action_filter(self) -> None:
        self.query_one(FilterBar).open(self.tables.filter.text)
        self.redraw()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._set_filter(event.value)

    def on_input_submitted(self) -> None:
        self._close_filter()

    def action_clear_filter(self) -> None:
        self._set_filter("")
        self._close_filter()

    def _set_filter(self, text: str) -> None:
        self.tables.filter = self.tables.filter._replace(text=text.strip())
        self.redraw()

    def _close_filter(self) -> None:
        self.query_one(FilterBar).display = False
        self.painter.grid.focus()
        self.redraw()

    def action_sort(self) -> None:
        self.painter.grid.waits_for_letter = True
        self.show_message("press the marked letter of a column to sort by it; Esc for the usual order")
        self.redraw()

    def on_grid_letter(self, message: Grid.Letter) -> None:
        table = self.tables.by_tab[self.active]
        title = table.sort_by(None) if message.key == "escape" else table.sort_by_letter(message.key)
        self.show_message(f"sorted by {title}; O reverses" if title else f"no column has the letter {message.key}")
        self.redraw()

    def action_sort_by(self, key: str) -> None:
        self.show_message(f"sorted by {self.tables.by_tab[self.active].sort_by(key)}; O reverses")
        self.redraw()

    def action_reverse(self) -> None:
        self.tables.by_tab[self.active].reverse = not self.tables.by_tab[self.active].reverse
        self.redraw()

    def action_tree(self) -> None:
        self.tables.tree = not self.tables.tree
        self.show_message("processes as a tree" if self.tables.tree else "processes without those that started them")
        self.action_tab("processes")

    def action_own(self) -> None:
        self.tables.own_only = not self.tables.own_only
        self.show_message("own processes only" if self.tables.own_only else "processes of all users")
        self.action_tab("processes")

    # time

    def action_pause(self) -> None:
        self.set_paused(not self.paused)
        self.redraw()

    def action_interval(self, step: int) -> None:
        index = min(range(len(INTERVALS)), key=lambda n: abs(INTERVALS[n] - self.interval)) + step
        self.interval = INTERVALS[min(max(index, 0), len(INTERVALS) - 1)]
        self.restart_timer()
        self.redraw()

    def action_speed(self, step: int) -> None:
        if self.replay is not None:
            self.speed = SPEEDS[min(max(SPEEDS.index(self.speed) + step, 0), len(SPEEDS) - 1)]
            self.redraw()

    def action_seek(self, key: str) -> None:
        if self.replay is not None:
            self._seek(self.replay.time + STEPS[key])

    def _seek(self, at: float) -> None:
        """Go to a time of the replay and judge what is known then."""
        replay = self.replay
        assert replay is not None
        at = min(max(at, replay.start_time), replay.end_time)
        if at < replay.time:
            self.state, self.diagnosis = State(), LiveDiagnosis()
            replay.seek(at)
        else:
            replay.forward(at - replay.time)
        self.diagnose_now()

    def action_find(self, step: int) -> None:
        """Jump to the next or the last time at which a finding began."""
        if self.replay is None:
            return
        here = self.replay.time
        times = sorted({at for at, severity in self.marks if severity != "note"})
        found = [at for at in times if (at > here + 0.5 if step > 0 else at < here - 0.5)]
        if found:
            self._seek(found[0] if step > 0 else found[-1])
        else:
            self.show_message("no finding after this time" if step > 0 else "no finding before this time")

    # details and actions outside

    def on_grid_moved(self) -> None:
        self.redraw()

    def on_grid_resized(self) -> None:
        self.painter.bars()

    def on_grid_chosen(self) -> None:
        row = self.selected()
        if row is None:
            return
        if self.active in ("overview", "GPUs"):
            node, gpu = row
            self._show_chart(f"{node.name} {gpu.name} {gpu.now.get('name') or ''}", lambda: gpu_panels(gpu))
        elif self.active == "network":
            node, port = row
            self._show_chart(f"{node.name} {port.name}", lambda: port_panels(port))
        elif self.active == "findings":
            self.push_screen(finding_page(self.look, row))
        elif self.active == "processes":
            self.action_stacks()
        elif row.gpus:
            self.tables.filter = self.tables.filter._replace(text=row.name)
            self.action_tab("GPUs")
        else:
            self._show_chart(row.name, lambda: node_panels(row))

    def _show_chart(self, title: str, panels: Any) -> None:
        self.push_screen(Chart(self.look, title, panels, self.now))

    def action_open_alert(self, number: int) -> None:
        group = self.painter.alert_groups[number]
        if group is not None:
            self.push_screen(finding_page(self.look, group))

    def action_stacks(self) -> None:
        if self.answer is not None:
            self.push_screen(Page(self.look, self.answer("stacks"), "stacks of the invented job"))
            return
        if self.readonly:
            self.show_message("stacks are disabled (--readonly or replay)")
            return
        row = self.selected() if self.active == "processes" else None
        command = actions.stacks_command(row, self.hostname, self.via)
        actions.show_answer(self, self.look, "stacks", lambda: actions.run_program(command))

    def action_ras(self) -> None:
        if self.answer is not None:
            self.push_screen(Page(self.look, self.answer("RAS"), "RAS of the invented job"))
            return
        if self.recorded:
            self.show_message("RAS is not available in a replay")
            return
        actions.show_answer(self, self.look, "RAS", actions.ask_ras)

    def action_kill(self) -> None:
        row = self.selected() if self.active == "processes" else None
        if self.readonly:
            self.show_message("signals are disabled (--readonly, replay or demo)")
        elif row is None:
            self.show_message("select a process first: press 4")
        elif row[0].name != self.hostname:
            self.show_message(f"the process is on {row[0].name}; signals can be sent on this node only")
        else:
            actions.send_signal(self, self.look, row[1], self.show_message)
