"""Screens above the main one: help, one finding, one GPU, stacks, and the question before a signal."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Sparkline, Static

from nccl_doctor.watch.judge import Episode
from nccl_doctor.watch.panes import Look, clock
from nccl_doctor.watch.state import Device, Node

CLOSE: list[BindingType] = [Binding("escape,q,enter", "dismiss", "close")]


class Page(ModalScreen[None]):
    """Text that is read and closed."""

    BINDINGS: ClassVar[list[BindingType]] = CLOSE
    DEFAULT_CSS = """
    Page { align: center middle; }
    Page > VerticalScroll { width: 90%; height: 90%; max-width: 110; border: solid $accent; padding: 0 1; background: $surface; }
    """

    def __init__(self, text: str, title: str) -> None:
        super().__init__()
        self._text, self._title = text, title

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self._title
            yield Static(self._text, markup=False, id="page")

    def show(self, text: str) -> None:
        """Replace the text, where it comes later."""
        self.query_one("#page", Static).update(text)


def about(episode: Episode) -> Page:
    """A finding in full."""
    finding = episode.finding
    places = "\n".join(f"  {place.file}:{place.line} {place.text[:300]}" for place in finding.evidence[:6])
    seen = f"since {clock(episode.first)}" + (f", over at {clock(episode.last)}" if episode.over else "")
    text = (
        f"{finding.severity}, {finding.confidence}, {finding.rule}, {seen}\n{finding.hosts}\n\n{finding.message}\n\n"
        f"Why\n{finding.why}\n\nNext\n{finding.fix}\n\nSeen in\n{places}\n"
    )
    return Page(text, f"{finding.name} (Esc closes)")


class Chart(ModalScreen[None]):
    """History of one GPU."""

    BINDINGS: ClassVar[list[BindingType]] = CLOSE
    DEFAULT_CSS = """
    Chart { align: center middle; }
    Chart > VerticalScroll { width: 90%; height: 90%; border: solid $accent; padding: 0 1; background: $surface; }
    Chart Sparkline { height: 3; margin-bottom: 1; }
    """
    SERIES = (
        ("util", "utilisation, %"), ("power", "power, W"), ("memory", "memory, MiB"), ("temperature", "temperature, C"),
        ("clock", "clock of the SMs, MHz"), ("nvlink_rx", "NVLink received, bytes/s"), ("pcie_rx", "PCIe received, bytes/s"),
    )  # fmt: skip

    def __init__(self, node: Node, gpu: Device, look: Look) -> None:
        super().__init__()
        self._node, self._gpu, self._look = node, gpu, look

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = f"{self._node.name} {self._gpu.name} {self._gpu.now.get('name') or ''} (Esc closes)"
            for name, title in self.SERIES:
                values = [
                    v for v in (self._gpu.series[name].values if name in self._gpu.series else ()) if v is not None
                ]
                if not values:
                    continue
                yield Label(f"{title}: now {values[-1]:.0f}, lowest {min(values):.0f}, highest {max(values):.0f}")
                if self._look.ascii:
                    yield Static(self._look.spark(values, max(values) or 1, 60), markup=False)
                else:
                    yield Sparkline(values)


class Ask(ModalScreen[bool]):
    """Yes or no; Enter alone is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,enter,q", "answer(False)", "no"),
    ]
    DEFAULT_CSS = """
    Ask { align: center middle; }
    Ask > Label { border: solid $error; padding: 1 2; background: $surface; max-width: 90%; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Label(f"{self._question}\n\ny yes   n no", markup=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Filter(ModalScreen[str | None]):
    """A line to type a filter into."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "keep the old one")]
    DEFAULT_CSS = """
    Filter { align: center bottom; }
    Filter > Input { width: 100%; }
    """

    def __init__(self, value: str) -> None:
        super().__init__()
        self._value = value

    def compose(self) -> ComposeResult:
        yield Input(self._value, placeholder="show rows that contain this; empty shows all", id="filter")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
