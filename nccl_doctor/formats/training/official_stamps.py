"""The time stamps that TensorFlow's official models print at the end of a run, all in one line."""

from itertools import pairwise
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled

_ITEMS = compiled(rb"BatchTimestamp<batch_index: (\d+), timestamp: (\d+(?:\.\d+)?)>")
_OVERALL = compiled(rb"'avg_exp_per_second': (\d+(?:\.\d+)?)")
_FINISH = compiled(rb"'train_finish_time': (\d+(?:\.\d+)?)")


class Stamps(NamedTuple):
    """The time stamps that TensorFlow's official models print at the end of a run."""

    points: list[tuple[int, float, float]]  # step, seconds a step since the one before, when
    batch: int | None
    overall: float | None  # samples/s as printed


def stamps(line: bytes) -> Stamps | None:
    """Read the list `step_timestamp_log`. The batch follows from the overall rate, which spans first step to finish."""
    items = [(int(step), float(when)) for step, when in _ITEMS.findall(line)]
    if len(items) < 2:
        return None
    points = [
        (step, (when - before) / (step - old), when)
        for (old, before), (step, when) in pairwise(items)
        if step > old and when > before
    ]
    overall, finish = _OVERALL.search(line), _FINISH.search(line)
    batch = None
    if overall and finish and items[-1][0] > items[0][0]:
        span = float(finish[1]) - items[0][1]
        batch = round(float(overall[1]) * span / (items[-1][0] - items[0][0]))
    return Stamps(points, batch, float(overall[1]) if overall else None)
