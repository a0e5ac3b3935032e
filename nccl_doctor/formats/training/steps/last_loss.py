"""The loss that the last step line of a log tells, of programs whose lines name it in their own ways.

step:3125/3175 val_loss:3.2797 train_time:2031.8s
iteration 120/ 500 | lm loss: 2.31E+00 | grad norm: 1.1
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Numbers
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.training.steps.scalars import Place, Scalars

LINES = 16  # from the end of a block, of which one tells a loss
_LOSS = compiled(
    rb"(?i)(?<![a-z_])((?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test|lm|total|reduced_train|avg)?[ _/-]?loss|"
    rb"l_(?:g_)?(?:pix|total))\b"  # the second: BasicSR and what came of it
    rb"[\"']?(?: so far)?(?: is\b)?[ \t]{0,3}[:=]?[ \t\"']{0,6}"
    rb"(-?\d{1,12}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?|nan|[+-]?inf)(?![\w%/])"
)


def loss_of(line: bytes) -> tuple[str, float] | None:
    """The name and value of the first loss of a line: `lm loss: 2.31E+00`, `Loss 3.19 (3.03)`, `'train_loss': 1.2`."""
    found = loss_span(line)
    return (found[0], float(line[found[1] : found[2]])) if found is not None else None


def loss_span(line: bytes) -> tuple[str, int, int] | None:
    """The name of the first loss of a line, and where its value begins and ends."""
    if b"oss" not in line and b"OSS" not in line and b" l_" not in line:
        return None
    found = _LOSS.search(line)
    if found is None:
        return None
    name = found[1].decode().strip(" _/-").replace(" ", "_").lower()
    return "loss" if name == "lm_loss" or name.startswith("l_") else name, *found.span(2)


class LastLoss:
    """The loss of the last line so far."""

    def __init__(self) -> None:
        self._last: tuple[str, float, Place] | None = None

    def take(self, rows: Sequence[int], text: Callable[[int], bytes], numbers: Numbers) -> None:
        """Take the last step lines of a block; `text` gives one of them, and `numbers` are those of all lines."""
        for row in reversed(rows):
            line = text(row)
            if (found := loss_of(line)) is not None:
                self._last = *found, (line, int(numbers[row]))
                return

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """One scalar, where a line told a loss."""
        if self._last is not None:
            name, value, place = self._last
            scalars = Scalars()
            scalars.note_scalar(name, value, None, place)
            yield from scalars.rows(facts, file)
