"""What the metrics of a training library mean: which key is a rate, of what, and which is the time of a step.

Libraries log numbers under keys of their own; what is measured stands in the key (`train/tokens_per_second_per_gpu`).
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled

_OTHER = compiled(r"(?i)eval|val[./_]|valid|test|infer|predict|_std|peak|flop")
_TOKENS = r"(?:tok|tokens?|words)(?:_per_|/|_)?(?:train_)?(?:per_)?s(?:ec(?:ond)?s?)?"
_SAMPLES = r"(?:samples?|images?|imgs?|img|examples?|seq(?:uence)?s?)(?:_per_|/|_)s(?:ec(?:ond)?s?)?"
_RATES = (  # pattern, unit, what one number counts
    (
        compiled(
            rf"(?i)(?:(?:device|gpu)[/_]{_TOKENS}$|{_TOKENS}(?:_per_|/)(?:gpu|device)$|\btps_per_gpu$|^throughput\(tps\)$)"
        ),
        "tokens/s",
        "gpu",
    ),
    (compiled(rf"(?i)(?:(?:device|gpu)[/_]{_SAMPLES}$|{_SAMPLES}(?:_per_|/)(?:gpu|device)$)"), "samples/s", "gpu"),
    (compiled(rf"(?i)(?:^|[./_-]){_TOKENS}$"), "tokens/s", "job"),
    (compiled(rf"(?i)(?:^|[./_-])(?:{_SAMPLES}|total_ips|compute_ips|throughput(?:_train)?)$"), "samples/s", "job"),
)
_SECONDS = compiled(
    r"(?i)(?:^|[./_ -])(?:(?:train_)?step[_ -]?tim(?:e|ing)|iter(?:ation)?[_ -]time|time[/_]step|sec(?:ond)?s?_per_step"
    r"|step_seconds|time_metrics/end_to_end)"
    r"(?:[_ ]?(?:in_|in |\()?(?P<unit>s|sec|seconds|ms|msec)\)?)?$"
)
_SPEED = compiled(r"(?i)(?:^|[./_ -])(?:batches|steps|iterations|iters|updates|its?)(?:_per_|/)s(?:ec(?:ond)?s?)?$")
_DATA = compiled(r"(?i)(?:(?:^|[./_ -])data(?:_load(?:ing)?|_wait)?[_ -]time(?:_s)?|^time_metrics/data_loading\(s\))$")
_GPUS = compiled(r"(?i)(?:^|[./_-])(?:num[_-]?gpus?|n[_-]?gpus?|gpus|world[_-]?size|num_devices|device_count)$")
_BATCH = compiled(r"(?i)(?:^|[./_-])(?:global_batch_size|total_batch_size|train_global_batch_size)$")


class Speed(NamedTuple):
    """What one record says about speed; None where it does not."""

    rate: float | None
    unit: str | None
    scope: str | None
    seconds: float | None
    data: float | None


def number(value: Any) -> float | None:
    """A finite number, also where it was written as text; None for anything else."""
    if type(value) is float:
        return value if -math.inf < value < math.inf else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


class _Meaning(NamedTuple):
    """What a key says."""

    what: str  # seconds, data, rate, or speed in steps a second
    factor: float = 1.0  # of seconds
    unit: str = ""  # of a rate
    scope: str = ""


@lru_cache(maxsize=4096)
def _meaning(key: str) -> _Meaning | None:
    """What a metric of this name is; None for one that does not tell a speed."""
    if _OTHER.search(key):
        return None
    if match := _SECONDS.search(key):
        return _Meaning("seconds", 0.001 if (match["unit"] or "").startswith("ms") else 1.0)
    if _DATA.search(key):
        return _Meaning("data")
    if _SPEED.search(key):
        return _Meaning("speed")
    return next((_Meaning("rate", unit=unit, scope=scope) for one, unit, scope in _RATES if one.search(key)), None)


def is_speed(key: str) -> bool:
    """Whether a metric of this name is a rate, the time of a step, or a time that waited for data."""
    return _meaning(key) is not None


def speed_key(metrics: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The key by which steps are compared, the time of a step or else a rate, and whether it is a rate."""
    for what in ("seconds", "rate"):
        for key in metrics:
            if (meaning := _meaning(key)) is not None and meaning.what == what:
                return key, what == "rate"
    return None


def speed_of(metrics: Mapping[str, Any], units: Mapping[str, str] | None = None) -> Speed:
    """Rate and times among the metrics of a step; `units` are those that the library declared, by key."""
    rate = unit = scope = seconds = speed = data = None
    for key, raw in metrics.items():
        meaning = _meaning(key)
        if meaning is None or (value := number(raw)) is None or value <= 0:
            continue
        if meaning.what == "seconds":
            seconds = seconds or value * meaning.factor
        elif meaning.what == "data":
            data = value
        elif meaning.what == "speed":
            speed = speed or value
        elif rate is None:
            rate, unit, scope = value, meaning.unit, meaning.scope
            if "tok" in (units or {}).get(key, "").lower():
                unit = "tokens/s"
    return Speed(rate, unit, scope, seconds or (1 / speed if speed else None), data)


def setting_of(metrics: Mapping[str, Any], *, gpus: bool) -> int | None:
    """The number of GPUs, or the global batch size, among the parameters of a run."""
    pattern = _GPUS if gpus else _BATCH
    values = [number(value) for key, value in metrics.items() if pattern.search(key)]
    known = [int(value) for value in values if value is not None and 1 <= value < 1 << 40]
    return known[0] if known else None
