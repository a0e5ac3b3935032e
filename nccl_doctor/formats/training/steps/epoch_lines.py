"""Lines that tell the time of an epoch, of programs that print no steps: nnU-Net, fastai's and many loops of people's own.

Source: nnU-Net `nnUNetTrainer.py`; the word is that of people::

    2026-11-02 09:32:23.401: Epoch time: 143.21 s
    [epoch 12] train_loss 0.31 epoch_time: 31.2s
"""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.training.steps.step_formats import Fields, Tool

NAME = "epochs"
UNIT = "epochs/s"
_TIME = compiled(
    rb"(?i)epoch[ _]?(?:time|duration|took)\W{1,4}(?P<value>\d{1,9}(?:\.\d{1,20})?) ?(?P<unit>ms|s|secs?|seconds|min|minutes)?(?![\w.:%/])"
)
_FACTORS = {b"ms": 1e-3, b"min": 60.0, b"minutes": 60.0}
_NUMBER = compiled(rb"(?i)(?<![a-z])epoch[\"']?\s{0,3}[:=#]?\s{0,3}\[?\s{0,3}(\d{1,9})(?![\d.]*\.\d)")


def _find(line: bytes) -> Fields | None:
    match = _TIME.search(line)
    if match is None:
        return None
    number = _NUMBER.search(line)
    step = (("step", *number.span(1), 1.0),) if number is not None else ()
    start = min(match.start(), number.start()) if number is not None else match.start()
    return Fields(start, (*step, ("seconds", *match.span("value"), _FACTORS.get(match["unit"] or b"", 1.0))))


LITERALS = (b"poch time", b"poch_time", b"poch duration", b"poch took")
TOOLS = tuple(Tool(literal, NAME, UNIT, "job", _find, is_guess=True) for literal in LITERALS)
