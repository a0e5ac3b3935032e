"""The dynamic loss scale, skipped iterations and losses that are not a number, from step lines and optimizers."""

from typing import ClassVar

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LossScale
from nccl_doctor.inputs import prefixes

_OVERFLOW = compiled(
    rb"reducing (?:loss scale )?to +([\d.e+-]+)|Reducing dynamic loss scale from [\d.e+-]+ to ([\d.e+-]+)"
)
_SKIPPED = compiled(rb"skipped iterations: +(\d+)")
_SKIPPED_SO_FAR = compiled(
    rb"step=\d{1,18}, skipped=(\d{1,18})(?!\d)"
)  # of DeepSpeed, since the first start of the run
_NAN = compiled(rb"nan iterations: +(\d+)")
_NOTHING_LOST = b"skipped iterations:   0 | number of nan iterations:   0"


class Losses:
    """The loss scale and the losses of one series."""

    LITERALS: ClassVar[tuple[bytes, ...]] = (
        b"reducing loss scale to",
        b", reducing to ",
        b"Reducing dynamic loss scale from",
        b", skipped=",
    )

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.lowest: float | None = None
        self.halvings = 0
        self.longest = 0
        self.skipped = 0
        self._counted = 0  # of these lines, those before the last count
        self._skipped_so_far: tuple[int, int] | None = None  # the lowest and the highest count that was printed
        self.nan = 0
        self.last_step: int | None = None
        self._fall = 0
        self._text = b""
        self._place: tuple[int, bytes] | None = None

    def line(self, tool: str, step: int | None, line: bytes, number: int) -> None:
        """Take a step line of Megatron or fairseq."""
        key = b"loss scale: " if tool == "megatron" else b'"loss_scale": "'
        at = line.find(key)
        if at >= 0:
            at += len(key)
            text = line[at : at + 14]
            if text != self._text:
                self._text = text
                self._value(text.split(b" ", 1)[0].split(b'"', 1)[0], step, number, line)
        if tool != "megatron":
            self._not_a_number(b'"loss": "nan"' in line, 1, number, line)
            return
        if _NOTHING_LOST in line:
            return
        if (match := _SKIPPED.search(line)) and match[1] != b"0":
            self.skipped += int(match[1])
            self._place = self._place or (number, line)
        if match := _NAN.search(line):
            self._not_a_number(match[1] != b"0", int(match[1]), number, line)
        if b"loss: NAN" in line or b"loss: nan" in line:
            self._not_a_number(True, 1, number, line)

    def _not_a_number(self, seen: bool, times: int, number: int, line: bytes) -> None:
        if seen:
            self.nan += times
            self._place = self._place or (number, line)

    def overflow(self, line: bytes, number: int) -> None:
        """Take a line of an optimizer that lowers its scale, or counts the steps that it skipped."""
        match = _OVERFLOW.search(line)
        if match is not None:
            self.skipped += 1
            self._value(match[1] or match[2], None, number, line)
        elif match := _SKIPPED_SO_FAR.search(line):
            count = int(match[1])
            self._counted = self.skipped
            low, high = self._skipped_so_far or (count, count)
            self._skipped_so_far = min(low, count), max(high, count)
            if low != count or high != count:
                self._place = self._place or (number, line)

    def _value(self, text: bytes, step: int | None, number: int, line: bytes) -> None:
        try:
            value = float(text.rstrip(b"."))
        except ValueError:
            return
        if self.first is None:
            self.first = value
        if self.last is not None and value < self.last:
            self.halvings += 1
            self._fall += 1
            self.longest = max(self.longest, self._fall)
            self.last_step = step
            self._place = number, line
        elif self.last is not None and value > self.last:
            self._fall = 0
        self.last = value
        self.lowest = value if self.lowest is None else min(self.lowest, value)

    def row(self, facts: Facts, file: str, run: int) -> LossScale | None:
        """The row of the run; None where nothing was lowered, skipped or lost."""
        if self._place is None:
            return None
        number, line = self._place
        low, high = self._skipped_so_far or (0, 0)
        # each rank prints its own lines of one step, and the count of them all comes later
        skipped = max(min(self._counted, high), high - low) + self.skipped - self._counted
        ref = facts.evidence(file, number, prefixes.clean(line[:600].decode("utf-8", "replace")))
        return LossScale(
            run=run, first=self.first, last=self.last, lowest=self.lowest, halvings=self.halvings,
            longest_fall=self.longest, skipped=skipped, nan=self.nan, last_step=self.last_step, ref=ref,
        )  # fmt: skip
