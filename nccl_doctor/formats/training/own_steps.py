"""Step lines of a training loop that somebody wrote himself: a number of a step, and a rate or a time with a name that says so.

No program stands behind them, so a line counts only if it names a step (`step 120`, `iter: 7/900`, `[120]` in front, a batch of an
epoch) or is a dictionary, and a rate (`1820.4 tokens/s`, `images/sec: 812`, `tokens_per_second=9e4`) or the time of a step
(`0.51 s/it`, `step_time: 0.5`, `time: 512ms`). What was printed by a validation loop is left out.
"""

from collections.abc import Callable
from itertools import pairwise

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.training.step_formats import Point, Tool
from nccl_doctor.formats.training.step_series import Series

NAME = "own-loop"
_LEAST, _MOST = 1e-6, 1e12  # of a rate or a time; 1e999 is no number
LEAST = 8  # lines from which on such a series is taken for a training loop
_VALUE = rb"[\"']?[ \t]{0,3}[:=]?[ \t]{0,3}[\"']?(\d[\d,]{0,18}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?)[ \t]?([kKM](?![A-Za-z])|ms\b)?"
_THOUSANDS = compiled(rb"[1-9]\d{0,2}(?:,\d{3}){1,6}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?")
_OWN_STEP = compiled(
    rb"(?i)(?<![a-z])(?:global[_ ]?|train[_ ]?)?(?:step|iteration|iter|it|batch|update)s?[\"']?\s{0,3}[:=#|]?\s{0,3}\[?\s{0,8}"
    rb"(\d{1,15})(?![\d.]*\d?\s?(?:ms|s|sec|it)\b)(?:\s?/\s?(\d{1,15}))?(?!\.\d)"
)
_OWN_FRONT = compiled(rb"\[\s{0,8}(\d{1,15})(?:\s?/\s?(\d{1,15}))?[\s\]]")
_KERAS_BAR = compiled(rb"(?<![\d/])(\d{1,15})/(\d{1,15}) (?:\[[=>. ]|\xe2\x94\x81)")
_OWN_EPOCH = compiled(rb"(?i)(?<![a-z])epoch[\"']?\s{0,3}[:=#]?\s{0,3}\[?\s{0,3}(\d{1,9})(?![\d.]*\.\d)")
_OTHER_LOOP = compiled(rb"(?i)(?<![a-z])(?:val|valid|validation|eval|evaluation|test|testing)(?![a-z])")


def _place(line: bytes) -> tuple[int, int | None] | None:
    """Where the program's own text starts, and the number of the step; batches of an epoch that tells their number go on counting."""
    if _OTHER_LOOP.search(line):
        return None
    found = _OWN_STEP.search(line) or _OWN_FRONT.search(line) or _KERAS_BAR.search(line)
    epoch = _OWN_EPOCH.search(line)
    if found is None:
        return (line.find(b"{"), None) if b"{" in line and (b"'epoch'" in line or b'"epoch"' in line) else None
    step, total = int(found[1]), found[2]
    start = min(found.start(), epoch.start()) if epoch is not None else found.start()
    brace = line.find(b"{", 0, start)
    start = brace if brace >= 0 else start
    if epoch is not None:
        return start, int(epoch[1]) * int(total) + step if total else None
    return start, step


def _number(value: bytes, scale: bytes | None) -> float:
    if b"," in (value := value.rstrip(b",")):
        # `1,820` has its thousands apart; `0,51` and `12,5` have a comma as decimal sign.
        value = value.replace(b",", b"" if _THOUSANDS.fullmatch(value) else b".")
    number = float(value) if value.count(b".") < 2 else 0.0
    return number if scale is None else number * {b"ms": 1e-3, b"M": 1e6}.get(scale, 1e3)


_NUMBER_BEFORE = compiled(rb"(\d[\d,]{0,18}(?:\.\d{1,12})?)([kKM])?\Z")
_NUMBER_AFTER = compiled(_VALUE)
_UNIT_BEHIND = compiled(rb"[ \t]?(?:m?s|secs?|seconds|%|[GMK]i?B|it|steps?|tokens?|tok|samples?)(?![A-Za-z])")


def _beside(line: bytes, at: int, size: int, *, only_after: bool = False) -> float | None:
    """The number that belongs to the unit at a place: `tokens/s: 1820`, `1820 tokens/s`; of two, that which no other unit follows."""
    end = at + size
    while line[end : end + 1].isalpha():  # `tokens/s` is also in `tokens/sec`
        end += 1
    found = _NUMBER_AFTER.match(line, end)
    if not only_after and (found is None or line[end : end + 1] not in b":=\"'"):
        words = line[max(at - 24, 0) : at].rsplit(None, 1)
        before = _NUMBER_BEFORE.search(words[-1]) if words else None
        if before is not None and (found is None or _UNIT_BEHIND.match(line, found.end())):
            found = before
    number = _number(found[1], found[2]) if found is not None else 0.0
    return number if _LEAST <= number <= _MOST else None


def _rate(literal: bytes) -> Callable[[bytes], Point | None]:
    def read(line: bytes) -> Point | None:
        place = _place(line)
        rate = _beside(line, line.find(literal), len(literal)) if place is not None else None
        return (*place, None, rate, None) if place is not None and rate else None

    return read


def _speed(literal: bytes) -> Callable[[bytes], Point | None]:
    """Steps per second: the time of a step is what one is compared by."""

    def read(line: bytes) -> Point | None:
        place = (line.find(literal), None) if literal == _ESTIMATOR else _place(line)
        rate = _beside(line, line.find(literal), len(literal)) if place is not None else None
        return (*place, 1 / rate, None, None) if place is not None and rate else None

    return read


_WAITED = compiled(
    rb"(?i)(?<![a-z_])data(?:[_ ]?(?:time|wait|load(?:ing)?))?[\"']?\s?[:=]?\s?(\d{1,9}(?:\.\d{1,12})?)\s?(ms\b)?(?![\w.%/])"
)


def _waited(line: bytes, seconds: float) -> float | None:
    """The part of a step that waited for data (`data 0.31 s`, `data_time: 310ms`), where the line tells it."""
    found = _WAITED.search(line)
    waited = _number(found[1], found[2]) if found is not None else 0.0
    return waited if 0 < waited <= seconds else None


def _seconds(literal: bytes, scale: float = 1.0, *, only_after: bool = False) -> Callable[[bytes], Point | None]:
    def read(line: bytes) -> Point | None:
        place = _place(line)
        seconds = _beside(line, line.find(literal), len(literal), only_after=only_after) if place is not None else None
        if place is None or not seconds:
            return None
        return *place, seconds * scale, None, _waited(line, seconds * scale)

    return read


def _milliseconds(line: bytes) -> Point | None:
    """`step 12  loss 8.9  3912.7 ms`: the only time of the line, without a name."""
    return _seconds(_LONE, 1e-3)(line) if line.count(_LONE) == 1 else None


_RATES = {
    "tokens/s": (b"tokens/s", b"tok/s", b"tokens_per_s", b"toks/s", b" tps ", b"tps="),
    "samples/s": (
        b"samples/s", b"sample/s", b"images/s", b"imgs/s", b"img/s", b"examples/s", b"ex/s", b"seq/s", b"seqs/s",
        b"sequences/s", b"samples_per_s", b"images_per_s", b"examples_per_s",
    ),
}  # fmt: skip
_ESTIMATOR = b"global_step/sec"  # of TensorFlow, alone on its line
_SPEEDS = (b"steps/s", b"step/s", b"iter/s", b"iters/s", b"batches/s", b"steps_per_s", b" it/s", _ESTIMATOR)
_TIMES = (
    b"step_time", b"step time", b"iter_time", b"iter time", b"batch_time", b"batch time", b"time/step", b"time_per_step",
    b" time: ", b" time=", b" took ", b"time per step",
)  # fmt: skip
_LONE = b" ms"
_PER_STEP = (
    (b"s/step", 1.0),
    (b" s/it", 1.0),
    (b"s/iter", 1.0),
    (b"s/batch", 1.0),
    (b"sec/step", 1.0),
    (b"ms/step", 1e-3),
    (b"ms/iter", 1e-3),
)


def _quick(literal: bytes, *, only_after: bool = False) -> Callable[[bytes, int], float]:
    size = len(literal)

    def read(block: bytes, at: int) -> float:
        found = _beside(block, at + 1 - size, size, only_after=only_after)
        if found is None:
            raise ValueError("no number beside it")
        return found

    return read


TOOLS = (
    *(Tool(word, NAME, unit, "job", _rate(word), _quick(word)) for unit, words in _RATES.items() for word in words),
    *(Tool(word, NAME, "samples/s", "job", _speed(word), _quick(word)) for word in _SPEEDS),
    *(
        Tool(
            word,
            NAME,
            "samples/s",
            "job",
            _seconds(word, only_after=True),
            _quick(word, only_after=True),
            quick_is_rate=False,
        )
        for word in _TIMES
    ),
    *(
        Tool(word, NAME, "samples/s", "job", _seconds(word, scale), _quick(word), quick_is_rate=False)
        for word, scale in _PER_STEP
    ),
    Tool(_LONE, NAME, "samples/s", "job", _milliseconds, _quick(_LONE), quick_is_rate=False),
)


def is_loop(series: Series) -> bool:
    """Whether a series is that of a training loop: long enough, and no clock that counts up to the end or down to it."""
    seconds = [row.seconds for row in series.rows if row.seconds is not None]
    clock = len(seconds) >= LEAST and (
        all(a < b for a, b in pairwise(seconds)) or all(a > b for a, b in pairwise(seconds))
    )
    return series.points >= LEAST and not clock
