"""Screens above the main one: a page of text, charts, the choice of a signal; and the field for the filter."""

import signal
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from nccl_doctor.watch.view.cells import Line, Look
from nccl_doctor.watch.view.chart import Panel, side_by_side
from nccl_doctor.watch.view.findings import Group, full_text
from nccl_doctor.watch.view.widgets import Lines, Pager

HELP = """\
Select
  1-6, Tab     overview, GPUs, network, processes, findings, nodes
  arrows, j k  move; PgUp PgDn a page; Home End, g G first or last row
  Enter        charts of a GPU or port, the whole of a finding, the stacks of a
               process, the GPUs of a node
  mouse        tabs, keys, rows; a title sorts, a finding opens
Rows
  /            filter while you type; Enter keeps it, Esc clears it
  o + letter   sort by the column whose letter is marked; again reverses
  O            reverse the order
  t            processes as a tree: each below the one that started it
  u            only your own processes, or all
Act
  s            stacks of all ranks of this node, or of the selected process
  r            ask NCCL's RAS which ranks do not answer (port 28028)
  x            signal the selected process: t, c or 9, then y
Time
  Space        pause: values and clock stop; nothing is lost
  + -          redraw more or less often
  left right   replay: 5 s back or on; , and . 30 s; { and } start and end
  n N          replay: the next or the last finding
  [ ]          replay: slower, faster
  q  Ctrl-Z    quit; suspend

Rows in grey are out of date; "-42s" is their age, and sums leave them out.
GPUs that differ from the others of the job come first; "note" says why.
"waits": busy at 25 % of the power limit or less, as NCCL's kernels are while
they wait. "own": CPU use of this program, in percent of one core.
"""
SIGNALS = (
    ("t", signal.SIGTERM, "ask it to exit"),
    ("c", signal.SIGINT, "like Ctrl-C"),
    ("9", signal.SIGKILL, "kill it at once"),
)


class Box(Vertical):
    """A frame with a title."""

    DEFAULT_CSS = """
    Box { width: 100%; height: 100%; max-width: 120; border: solid ansi_bright_blue; padding: 0 1; background: ansi_default; }
    Box.-ascii { border: ascii ansi_bright_blue; }
    """

    def __init__(self, look: Look, title: str) -> None:
        super().__init__(classes="-ascii" if look.ascii else "")
        self.border_title = look.clean(title).replace("[", "(")


class Page(ModalScreen[None]):
    """A page of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "dismiss", "close")]
    DEFAULT_CSS = "Page { align: center middle; }"

    def __init__(self, look: Look, text: str, title: str) -> None:
        super().__init__()
        self._look, self._title = look, title
        self.pager = Pager(look, text, id="page")

    def compose(self) -> ComposeResult:
        with Box(self._look, f"{self._title} (Esc closes)"):
            yield self.pager

    def draw(self) -> None:
        """Draw what changed; plain text does not change."""


def finding_page(look: Look, group: Group) -> Page:
    """Returns the page of a finding: messages of all nodes, why, fix and evidence."""
    return Page(look, full_text(group), group.finding.name)


class Chart(ModalScreen[None]):
    """The history of a GPU or a port, updated live."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "dismiss", "close")]
    DEFAULT_CSS = "Chart { align: center middle; } Chart Box { max-width: 200; } Chart Lines { height: 1fr; }"

    def __init__(self, look: Look, title: str, panels: Callable[[], Sequence[Panel]], now: Callable[[], float]) -> None:
        super().__init__()
        self._look, self._title, self._panels, self._now = look, title, panels, now

    def compose(self) -> ComposeResult:
        with Box(self._look, f"{self._title} (Esc closes)"):
            yield Lines(self._look, id="chart")

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw the newest values."""
        width, height = max(self.app.size.width - 4, 20), max(self.app.size.height - 2, 4)
        width = min(width, 196)
        lines = side_by_side(self._look, self._panels(), self._now(), width, height)
        empty: list[Line] = [(("no value yet", "dim"),)]
        self.query_one("#chart", Lines).show(lines or empty)


class SignalDialog(ModalScreen[signal.Signals | None]):
    """Asks which signal to send, then whether to send it; returns None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"choose({int(number)})", number.name) for key, number, _ in SIGNALS),
        Binding("y", "confirm", "yes"),
        Binding("n,escape,enter,q", "cancel", "no"),
    ]
    DEFAULT_CSS = """
    SignalDialog { align: center middle; }
    SignalDialog > Box { height: 9; max-width: 76; border: solid ansi_red; padding: 1 2; }
    SignalDialog > Box.-ascii { border: ascii ansi_red; }
    """

    def __init__(self, look: Look, question: str) -> None:
        super().__init__()
        self._look, self._question = look, question
        self._chosen: signal.Signals | None = None

    def compose(self) -> ComposeResult:
        choices = "\n".join(f"  {key}  {number.name[3:]:5} {words}" for key, number, words in SIGNALS)
        with Box(self._look, "send a signal"):
            yield Pager(self._look, f"{self._question}\n{choices}\n  n  cancel (also Esc, Enter)", id="ask")

    def action_choose(self, number: int) -> None:
        self._chosen = signal.Signals(number)
        question = f"{self._question}\n\n  Send {self._chosen.name}?  y  yes   n  no (also Esc, Enter)"
        self.query_one("#ask", Pager).show(question)

    def action_confirm(self) -> None:
        if self._chosen is not None:
            self.dismiss(self._chosen)

    def action_cancel(self) -> None:
        self.dismiss(None)


class FilterBar(Horizontal):
    """The field for the filter in the last line; hidden until it is opened."""

    DEFAULT_CSS = """
    FilterBar { height: 1; background: ansi_default; display: none; }
    FilterBar Lines { width: 8; }
    FilterBar Input, FilterBar Input:focus { width: 1fr; height: 1; border: none; padding: 0; background: ansi_default; }
    """

    def __init__(self, look: Look) -> None:
        super().__init__(id="filter")
        self._look = look

    def compose(self) -> ComposeResult:
        title = Lines(self._look)
        title.show([(("filter /", "bold"),)])
        yield title
        field = Input(select_on_focus=False)
        field.cursor_blink = False
        yield field

    def open(self, text: str) -> None:
        """Show the field and put the cursor into it."""
        self.display = True
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)
        field.focus()
