"""What the metrics of a training library mean: which key is a rate, of what, and which is the time of a step.

Libraries log numbers under keys of their own; what is measured stands in the key (`train/tokens_per_second_per_gpu`).
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled

_OTHER = compiled(r"(?i)eval|val[./_]|valid|test|infer|predict|_std|peak|flop")
_WORD = compiled(r"[A-Z]?[a-z]{1,40}|[A-Z]{1,40}(?![a-z])|/")
_THINGS = {
    "step",
    "steps",
    "iter",
    "iters",
    "iteration",
    "iterations",
    "batch",
    "batches",
    "minibatch",
    "update",
    "updates",
    "it",
    "its",
}
_DURATIONS = {"time", "times", "timing", "duration", "latency"}
_TOKENS = {
    "tok": 1,
    "toks": 1,
    "token": 1,
    "tokens": 1,
    "words": 1,
    "ktok": 1e3,
    "ktoks": 1e3,
    "ktokens": 1e3,
    "mtok": 1e6,
    "mtokens": 1e6,
}
_SAMPLES = {
    "sample", "samples", "image", "images", "img", "imgs", "example", "examples", "seq", "seqs", "sequence", "sequences", "frames",
    "items",
}  # fmt: skip
_UNITS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "usec": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
"""Words for units of time -> seconds."""
_PER = {"per", "/"}
_BESIDE = {  # words that leave open whether a time or rate is that of training steps: those change nothing
    "train", "training", "gpu", "device", "global", "local", "avg", "average", "mean", "median", "perf", "performance", "throughput",
    "speed", "timer", "timers", "time", "metrics", "total", "current", "last", "in", "num", "rank", "worker", "wall", "main", "trainer",
    "end", "to", "log", "logs", "logging", "stats", "optim", "host", "process", "interval", "full", "world", "cluster", "job", "node",
    "per", "/", "monitor", "system", "sys",
}  # fmt: skip
_CLOCKS = {
    "elapsed",
    "wall",
    "walltime",
    "wallclock",
    "clock",
    "runtime",
    "time",
    "duration",
    "train",
    "training",
    "total",
}
_SINCE = {"time", "elapsed", "wall", "walltime", "wallclock", "runtime"}
_NAMED = (  # what libraries call it
    (compiled(r"(?i)\btps_per_gpu$|^throughput\(tps\)$"), "tokens/s", "gpu"),
    (compiled(r"(?i)^(?:(?:train|training|perf|avg|mean|total)[._/-]?){0,3}fps$"), "samples/s", "job"),
    (compiled(r"(?i)(?:^|[./_-])(?:(?:total_|compute_)?ips|throughput(?:_train)?)$"), "samples/s", "job"),
)
_DATA = compiled(r"(?i)(?:(?:^|[./_ -])data(?:_load(?:ing)?|_wait)?[_ -]time(?:_s)?|^time_metrics/data_loading\(s\))$")
_DATA_MS = compiled(r"(?i)(?:^|[./_ -])data(?:_load(?:ing)?|_wait)?(?:[_ -]time)?_ms$")
_END_TO_END = compiled(r"(?i)^time_metrics/end_to_end\(s\)$")
_GPUS = compiled(r"(?i)(?:^|[./_-])(?:num[_-]?gpus?|n[_-]?gpus?|gpus|world[_-]?size|num_devices|device_count)$")
_BATCH = compiled(r"(?i)(?:^|[./_-])(?:global_batch_size|total_batch_size|train_global_batch_size)$")
MOST_WORLD = 1_000_000  # ranks, where nothing tells their number
_RANK = compiled(r"(?i)(?:^|[./])(?:(?:global|world)[_-]?)?rank$")


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


class Meaning(NamedTuple):
    """What a key says."""

    what: str  # seconds, data, rate, speed in steps a second, or clock: a time of training of which the key leaves open since when
    factor: float = 1.0  # to seconds, or to a rate a second
    unit: str = ""  # of a rate
    scope: str = ""
    open_unit: bool = False  # the key does not name the unit of time


@lru_cache(maxsize=4096)
def meaning_of(key: str) -> Meaning | None:
    """What a metric of this name is; None for one that does not tell a speed."""
    if _OTHER.search(key):
        return None
    if _DATA.search(key) or _DATA_MS.search(key):
        return Meaning("data", 1e-3 if _DATA_MS.search(key) else 1.0)
    if _END_TO_END.search(key):
        return Meaning("seconds")
    words = [word.lower() for word in _WORD.findall(key[:200])]
    return _by_words(words, key) or next(
        (Meaning("rate", unit=unit, scope=scope) for one, unit, scope in _NAMED if one.search(key)), None
    )


def _by_words(words: list[str], key: str) -> Meaning | None:
    """A time or rate by the words of its key: a quantity, `per` or `/`, a unit of time; the time of a step; a clock."""
    if not words:
        return None
    things = [word for word in words if word in _THINGS]
    units = [word for word in words if word in _UNITS]
    tokens = next((word for word in words if word in _TOKENS), None)
    samples = next((word for word in words if word in _SAMPLES), None)
    rest = [
        word
        for word in words
        if word not in _BESIDE and word not in _THINGS and word not in _UNITS and word not in _DURATIONS
    ]
    unit = units[-1] if units else None
    if tokens or samples:
        if unit is None or [word for word in rest if word not in (tokens, samples)] or _UNITS[unit] < 1 or things:
            return None
        if words.index(tokens or samples or "") > words.index(unit) or not _divided(words, unit, key):
            return None
        scope = "gpu" if {"gpu", "device"} & set(words) else "job"
        if tokens:
            return Meaning("rate", _TOKENS[tokens] / _UNITS[unit], "tokens/s", scope)
        return Meaning("rate", 1 / _UNITS[unit], "samples/s", scope)
    timed = [word for word in words if word in _DURATIONS]
    if set(rest) - _CLOCKS or len(set(units)) > 1:
        return None
    if things and unit is not None and not timed and _PER & set(words[words.index(things[0]) : words.index(unit)]):
        return Meaning("speed", 1 / _UNITS[unit]) if _UNITS[unit] >= 1 else None
    if unit in ("min", "h"):  # or a minimum
        return None
    if (
        things
        and not rest
        and (timed or (unit is not None and unit != "s") or (unit is not None and _PER & set(words)))
    ):
        return Meaning("seconds", _UNITS[unit] if unit else 1.0, open_unit=unit is None)
    if not things and set(words) <= _CLOCKS | set(units) | {"in"} and set(words) & _SINCE:
        return Meaning("clock", _UNITS[unit] if unit else 1.0, open_unit=unit is None)
    return None


def _divided(words: list[str], unit: str, key: str) -> bool:
    """Whether the unit of time divides the quantity: `per` or `/` between them, or `_` before a single unit (`img_s`)."""
    at = words.index(unit)
    return (
        words[at - 1] in _PER
        or (at == len(words) - 1 and not key.rstrip(")]").endswith(("ms", "us", "ns")))
        or ("per" in words[at + 1 :] and words[at - 1] in (_PER | set(_TOKENS) | _SAMPLES))
    )


def is_speed(key: str) -> bool:
    """Whether a metric of this name is a rate, the time of a step, or a time that waited for data."""
    return (meaning := meaning_of(key)) is not None and meaning.what != "clock"


def speed_key(metrics: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The key by which steps are compared, the time of a step or else a rate, and whether it is a rate."""
    for what in ("seconds", "rate"):
        for key in metrics:
            if (meaning := meaning_of(key)) is not None and meaning.what == what:
                return key, what == "rate"
    return None


def speed_of(metrics: Mapping[str, Any], units: Mapping[str, str] | None = None) -> Speed:
    """Rate and times among the metrics of a step; `units` are those that the library declared, by key."""
    rate = unit = scope = seconds = speed = data = None
    for key, raw in metrics.items():
        meaning = meaning_of(key)
        if meaning is None or (value := number(raw)) is None or value <= 0:
            continue
        if meaning.what == "seconds":
            declared = (units or {}).get(key, "") if meaning.open_unit else ""
            seconds = seconds or value * (_UNITS.get(declared.strip().lower(), 1.0) if declared else meaning.factor)
        elif meaning.what == "data":
            data = value * meaning.factor
        elif meaning.what == "speed":
            speed = speed or value * meaning.factor
        elif meaning.what == "rate" and rate is None:
            rate, unit, scope = value * meaning.factor, meaning.unit, meaning.scope
            if "tok" in (units or {}).get(key, "").lower():
                unit = "tokens/s"
    return Speed(rate, unit, scope, seconds or (1 / speed if speed else None), data)


def is_of_run(key: str) -> bool:
    """Whether a parameter of this name tells the size of a run, or the rank of the process that keeps the records."""
    return any(pattern.search(key) for pattern in (_GPUS, _BATCH, _RANK))


def setting_of(metrics: Mapping[str, Any], *, gpus: bool) -> int | None:
    """The number of GPUs, or the global batch size, among the parameters of a run."""
    pattern = _GPUS if gpus else _BATCH
    values = [number(value) for key, value in metrics.items() if pattern.search(key)]
    known = [int(value) for value in values if value is not None and 1 <= value < 1 << 40]
    return known[0] if known else None


def rank_of(metrics: Mapping[str, Any], world: int | None) -> int | None:
    """The rank that the parameters of a run of `world` ranks name as their own; without a world it may be one of LoRA."""
    if world is None:
        return None
    for key, value in metrics.items():
        if _RANK.search(key) and (rank := number(value)) is not None and 0 <= rank < world and rank.is_integer():
            return int(rank)
    return None
