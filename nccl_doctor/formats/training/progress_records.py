"""Records of LLaMA-Factory (`trainer_log.jsonl`) and ms-swift (`logging.jsonl`): steps, tokens and seconds since the start.

Their own rate is that of the whole time, evaluations and all, so it falls with each evaluation of a run that is steady.

{"current_steps": 20, "total_steps": 900, "loss": 1.41, "lr": 4e-05, "elapsed_time": "0:01:02", "total_tokens": 327680}
{"loss": 1.41, "learning_rate": 4e-05, "global_step/max_steps": "20/900", "elapsed_time": "1m 2s", "train_speed(iter/s)": 0.322581}
"""

import re
from functools import lru_cache
from typing import Any

from nccl_doctor.formats.training.metrics import number
from nccl_doctor.formats.training.record_series import At, RecordSeries
from nccl_doctor.formats.training.steps.scalars import Place

_LOSSES = ("loss", "eval_loss", "lr", "reward", "accuracy")
_COARSE = 30.0  # seconds, after which a clock of whole seconds tells how long steps took
_OF = "global_step/max_steps"
_WORDS = re.compile(r"(?:(\d{1,4})d )?(?:(\d{1,3})h )?(?:(\d{1,2})m )?(\d{1,2})s")
_CLOCK = re.compile(r"(?:(\d{1,4}) days?, )?(\d{1,2}):(\d\d):00")


def tells_progress(record: dict[str, Any]) -> bool:
    """Whether a record is one of these."""
    return "current_steps" in record or (_OF in record and "elapsed_time" in record)


class ProgressRecords:
    """The pace of such a run, from one record to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None  # seconds, step and tokens of the last record

    def take(self, read: list[tuple[dict[str, Any], Place]], series: RecordSeries) -> int:
        """Take records with their places. Returns how many were understood."""
        losses, places = [], []
        tool = ""
        paces: list[dict[str, Any]] = []  # of those that say how long their steps took
        paced: list[At] = []
        for record, place in read:
            tool = "llama-factory" if "current_steps" in record else "ms-swift"
            said = record["current_steps"] if "current_steps" in record else str(record[_OF]).partition("/")[0]
            step, when = number(said), _elapsed(record.get("elapsed_time"))
            if step is None or when is None:
                continue
            losses.append({"_step": step, **{key: record[key] for key in _LOSSES if key in record}})
            places.append(place)
            tokens = number(record.get("total_tokens")) or 0.0
            before = self._before
            if before is not None and step > before[1] and 0 <= when - before[0] < _COARSE:
                continue
            self._before = when, step, tokens
            if before is None or step <= before[1] or when < before[0]:
                continue
            passed = when - before[0]
            evaluated = number(record.get("eval_runtime")) or 0.0
            if 0 < evaluated < passed:  # the evaluation at the end of these steps
                passed -= evaluated
            rates = {"tokens_per_second": (tokens - before[2]) / passed} if tokens > before[2] > 0 else {}
            paces.append({"step_time": passed / (step - before[1]), **rates})
            paced.append(At(int(step), None, place))
        if losses:
            series.scalars.note_all(losses, "_step", places.__getitem__)
        series.record_all(tool, paces, paced.__getitem__)
        return len(losses)


def _elapsed(clock: Any) -> float | None:
    """The seconds of `1:02:03`, `1 day, 1:02:03` or `1h 2m 3s`; None of anything else."""
    if type(clock) is str and clock[-1:] == "s" and (words := _WORDS.fullmatch(clock[:40])) is not None:
        return sum(int(part) * size for part, size in zip(words.groups("0"), (86_400.0, 3600, 60, 1), strict=True))
    last = clock[-2:] if type(clock) is str and len(clock) < 40 else ""
    minutes = _to_the_minute(clock[:-2]) if len(last) == 2 and last.isdecimal() else None
    return None if minutes is None else minutes + int(last)


@lru_cache(1 << 8)
def _to_the_minute(clock: str) -> float | None:
    found = _CLOCK.fullmatch(f"{clock}00")
    days, hours, minutes = map(int, found.groups("0")) if found is not None else (0, 0, 0)
    return None if found is None else 86_400.0 * days + 3600 * hours + 60 * minutes
