"""Lines that tell the time of an epoch, of programs that print no steps: nnU-Net, PyTorch-Ignite and many loops of people's own.

Source: nnU-Net `nnUNetTrainer.py`; the word is that of people::

    2026-11-02 09:32:23.401: Epoch time: 143.21 s
    [epoch 12] train_loss 0.31 epoch_time: 31.2s
    2026-11-24 03:11:53,066 trainer INFO: Epoch[1] Complete. Time taken: 00:00:01.946
"""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.training.steps.step_formats import Fields, Tool

NAME = "epochs"
UNIT = "epochs/s"
_TIME = compiled(
    rb"(?i)epoch[ _]?(?:time|duration|took)\W{1,4}(?P<value>\d{1,9}(?:\.\d{1,20})?) ?(?P<unit>ms|s|secs?|seconds|min|minutes)?(?![\w.:%/])"
)
_CLOCK = compiled(  # `Epoch[3] Complete. Time taken: 00:01:31.946`
    rb"(?i)epoch\W{0,4}\d{1,9}\W{1,4}(?:[a-z]{1,20}\W{1,3}){0,4}time(?: taken)?\W{1,4}(?P<hours>\d{1,4}):(?P<minutes>\d\d):"
    rb"(?P<seconds>\d\d(?:\.\d{1,9})?)(?![\w.:%/])"
)
_FACTORS = {b"ms": 1e-3, b"min": 60.0, b"minutes": 60.0}
_NUMBER = compiled(rb"(?i)(?<![a-z])epoch[\"']?\s{0,3}[:=#]?\s{0,3}\[?\s{0,3}(\d{1,9})(?![\d.]*\.\d)")


def _find(line: bytes) -> Fields | None:
    match = _TIME.search(line)
    if match is None:
        return _clock(line)
    number = _NUMBER.search(line)
    step = (("step", *number.span(1), 1.0),) if number is not None else ()
    start = min(match.start(), number.start()) if number is not None else match.start()
    return Fields(start, (*step, ("seconds", *match.span("value"), _FACTORS.get(match["unit"] or b"", 1.0))))


def _clock(line: bytes) -> Fields | None:
    match = _CLOCK.search(line)
    if match is None:
        return None
    number = _NUMBER.search(line, match.start())
    step = (("step", *number.span(1), 1.0),) if number is not None else ()
    times = (("took_hours", *match.span("hours"), 1.0), ("took_minutes", *match.span("minutes"), 1.0))
    return Fields(match.start(), (*step, *times, ("took", *match.span("seconds"), 1.0)))


LITERALS = (b"ime taken: ", b"poch time", b"poch_time", b"poch duration", b"poch took")
TOOLS = tuple(Tool(literal, NAME, UNIT, "job", _find, is_guess=True) for literal in LITERALS)
