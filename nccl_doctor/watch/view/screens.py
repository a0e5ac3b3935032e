"""Screens above the main one: a page of text, the history of a GPU, the choice of a signal, and the filter."""

import signal
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from nccl_doctor.watch.live_diagnosis import Episode
from nccl_doctor.watch.state import Device, Node
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.panes import clock
from nccl_doctor.watch.view.widgets import Lines, Pager

HELP = """\
1-6, Tab   select a tab: overview, GPUs, network, processes, findings,
           nodes
arrows     move, also j and k. Enter opens the history of a GPU, a finding with its
           fix, the stacks of a process, the GPUs of a node
/          show only rows that contain a text; empty shows all
o  O       sort by the next column; reverse the order
t          sort processes by node and job, or not
u          show your own processes only, or all
s          stacks of all ranks on this node, or of the selected process
K          send a signal to the selected process; asks twice
r          ask NCCL's RAS which ranks do not answer (port 28028)
Space      pause
+  -       redraw more or less often
left right replay: 5 s back or forth; , and . 30 s; Home, End
?  q       this help; quit

"util" is green while a GPU works, yellow while it draws so little power
that it only waits. "throttled by": the driver's reason for lower clocks.
"low": the least busy GPU of a node. "own": CPU use of this program, in
percent of one core.
"""
SIGNALS = (
    ("t", signal.SIGTERM, "ask it to exit"),
    ("i", signal.SIGINT, "like Ctrl-C"),
    ("k", signal.SIGKILL, "kill it at once"),
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


def finding_page(look: Look, episode: Episode) -> Page:
    """Returns the page of a finding: message, why, fix and evidence."""
    finding = episode.finding
    evidence = "\n".join(f"  {place.file}:{place.line} {place.text[:300]}" for place in finding.evidence[:6])
    seen = f"since {clock(episode.first)}" + (f", over at {clock(episode.last)}" if episode.over else "")
    text = (
        f"{finding.severity}, {finding.confidence}, {finding.rule}, {seen}\n{finding.hosts}\n\n{finding.message}\n\n"
        f"Why\n  {finding.why}\n\nNext\n  {finding.fix}\n\nEvidence\n{evidence}\n"
    )
    return Page(look, text, finding.name)


class Chart(Page):
    """The history of one GPU, updated live."""

    SERIES = (
        ("util", "utilisation, %"), ("power", "power, W"), ("memory", "memory, MiB"), ("temperature", "temperature, C"),
        ("clock", "clock of the SMs, MHz"), ("nvlink_rx", "NVLink received, MB/s"), ("pcie_rx", "PCIe received, MB/s"),
    )  # fmt: skip

    def __init__(self, look: Look, node: Node, gpu: Device) -> None:
        super().__init__(look, "", f"{node.name} {gpu.name} {gpu.now.get('name') or ''}")
        self._gpu = gpu

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        width = max(self.pager.size.width, 20)
        rows = []
        for name, title in self.SERIES:
            unit = 1e6 if name.endswith("_rx") else 1.0
            values = list(self._gpu.series[name].values) if name in self._gpu.series else []
            known = [value / unit for value in values if value is not None]
            if known:
                rows.append(f"{title}: now {known[-1]:.0f}, lowest {min(known):.0f}, highest {max(known):.0f}")
                rows += [row.rstrip() for row in self._look.chart(values, self._top(name, known, unit), width, 3)]
        self.pager.show("\n".join(rows) or "no sample of this GPU yet")

    def _top(self, name: str, known: list[float], unit: float) -> float:
        return 100.0 if name == "util" else (max(known) or 1.0) * unit


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


class Filter(ModalScreen[str | None]):
    """Asks for the text that rows must contain; returns None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "keep the old one")]
    DEFAULT_CSS = """
    Filter { align: center bottom; }
    Filter > Horizontal { height: 1; background: ansi_default; }
    Filter Lines { width: 9; }
    Filter Input, Filter Input:focus { width: 1fr; height: 1; border: none; padding: 0; background: ansi_default; }
    """

    def __init__(self, value: str) -> None:
        super().__init__()
        self._value = value

    def compose(self) -> ComposeResult:
        with Horizontal():
            title = Lines()
            title.show([(("filter /", "bold"),)])
            yield title
            field = Input(self._value, id="filter", select_on_focus=False)
            field.cursor_blink = False
            yield field

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
