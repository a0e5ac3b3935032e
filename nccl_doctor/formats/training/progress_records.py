"""Records of LLaMA-Factory (`trainer_log.jsonl`): steps, tokens and seconds since the start; its own rate is that of the whole time.

{"current_steps": 20, "total_steps": 900, "loss": 1.41, "lr": 4e-05, "elapsed_time": "0:01:02", "total_tokens": 327680}
"""

import re
from functools import lru_cache
from typing import Any

from nccl_doctor.formats.training.metrics import number
from nccl_doctor.formats.training.record_series import At, RecordSeries
from nccl_doctor.formats.training.steps.scalars import Place

_LOSSES = ("loss", "eval_loss", "lr", "reward", "accuracy")
_CLOCK = re.compile(r"(?:(\d{1,4}) days?, )?(\d{1,2}):(\d\d):00")


class ProgressRecords:
    """The pace of such a run, from one record to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None  # seconds, step and tokens of the last record

    def take(self, read: list[tuple[dict[str, Any], Place]], series: RecordSeries) -> int:
        """Take records with their places. Returns how many were understood."""
        losses, places = [], []
        paces: list[dict[str, Any]] = []  # of those that say how long their steps took
        paced: list[At] = []
        for record, place in read:
            step, when = number(record["current_steps"]), _elapsed(record.get("elapsed_time"))
            if step is None or when is None:
                continue
            losses.append({"_step": step, **{key: record[key] for key in _LOSSES if key in record}})
            places.append(place)
            tokens = number(record.get("total_tokens")) or 0.0
            before, self._before = self._before, (when, step, tokens)
            if before is None or step <= before[1] or when <= before[0]:
                continue
            passed = when - before[0]
            rates = {"tokens_per_second": (tokens - before[2]) / passed} if tokens > before[2] > 0 else {}
            paces.append({"step_time": passed / (step - before[1]), **rates})
            paced.append(At(int(step), None, place))
        if losses:
            series.scalars.note_all(losses, "_step", places.__getitem__)
        series.record_all("llama-factory", paces, paced.__getitem__)
        return len(losses)


def _elapsed(clock: Any) -> float | None:
    """The seconds of `1:02:03` or `1 day, 1:02:03`; None of anything else."""
    last = clock[-2:] if type(clock) is str and len(clock) < 40 else ""
    minutes = _to_the_minute(clock[:-2]) if len(last) == 2 and last.isdecimal() else None
    return None if minutes is None else minutes + int(last)


@lru_cache(1 << 8)
def _to_the_minute(clock: str) -> float | None:
    found = _CLOCK.fullmatch(f"{clock}00")
    days, hours, minutes = map(int, found.groups("0")) if found is not None else (0, 0, 0)
    return None if found is None else 86_400.0 * days + 3600 * hours + 60 * minutes
