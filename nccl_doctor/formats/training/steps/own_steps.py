"""Step lines of a training loop that somebody wrote himself: a number of a step, and a rate or a time with a name that says so.

No program stands behind them, so a line counts only if it names a step (`step 120`, `iter: 7/900`, `[120]` in front, a batch of an
epoch) or is a dictionary, and a rate (`1820.4 tokens/s`, `images/sec: 812`, `tokens_per_second=9e4`) or the time of a step
(`0.51 s/it`, `step_time: 0.5`, `time: 512ms`). What was printed by a validation loop is left out.
"""

from itertools import pairwise

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.training.steps.step_formats import Fields, Find, Place, Tool, without
from nccl_doctor.formats.training.steps.step_series import Series

NAME = "own-loop"
_EPOCH = 5  # lines that an epoch has at least
LEAST = 8  # lines from which on such a series is taken for a training loop
_VALUE = rb"[\"']?[ \t]{0,3}[:=]?[ \t]{0,3}[\"']?(\d[\d,]{0,18}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)[ \t]?([kKM](?![A-Za-z])|ms\b)?"
_OWN_STEP = compiled(
    rb"(?i)(?<![a-z])(?:global[_ ]?|train[_ ]?)?(?:step|iteration|iter|it|batch|update)s?[\"']?\s{0,3}[:=#|]?\s{0,3}\[?\s{0,8}"
    rb"(\d{1,15})(?![\d.]*\d?\s?(?:ms|s|sec|it)\b)(?:\s?/\s?(\d{1,15}))?(?!\.\d)"
)
_STEP_BEHIND = compiled(  # `5-8batch: `, `100 steps, `: the number stands in front of its word
    rb"(?i)(?<![\w.,/])(?:\d{1,15}-)?(\d{1,15})(?:\s?/\s?(\d{1,15}))?\s?(?:step|iteration|iter|batch|update)(?:e?s)?(?=[:,|\])])"
)
_OWN_FRONT = compiled(rb"\[\s{0,8}(\d{1,15})(?:\s?/\s?(\d{1,15}))?[\s\]](?!\s?\d\d:\d\d)")
_OWN_OF = compiled(rb"\[\s{0,8}(\d{1,15})\s?/\s?(\d{1,15})[\s\]](?!\s?\d\d:\d\d)")
_KERAS_BAR = compiled(rb"(?<![\d/])(\d{1,15})/(\d{1,15}) (?:\[[=>. ]|\xe2\x94\x81)")
_OWN_EPOCH = compiled(rb"(?i)(?<![a-z])epoch[\"']?\s{0,3}[:=#]?\s{0,3}\[?\s{0,3}(\d{1,9})(?![\d.]*\.\d)")
_EPOCH_BEHIND = compiled(rb"(?i)(?<![\w.,/])(\d{1,9})\s?epoch(?=[:,|\])])")
_OTHER_LOOP = compiled(
    rb"(?i)(?<![a-z])(?:val|valid|validation|eval|evaluation|test|testing)(?![a-z]|\W{1,3}(?:n/a|none|-)(?![\w.]))"
)
_TRAINS = compiled(rb"(?i)(?<![a-z])(?:train(?:ing)?[_ ]loss|loss[_ ]train)")  # and a validation beside it


def _step(line: bytes) -> Fields | None:
    """Where the number of the step is; batches of an epoch that tells their number go on counting."""
    if _OTHER_LOOP.search(line) and not _TRAINS.search(line):
        return None
    epoch = _OWN_EPOCH.search(line) or _EPOCH_BEHIND.search(line)
    front = (epoch is not None and _OWN_OF.search(line, epoch.end())) or _OWN_FRONT.search(line)
    found = _OWN_STEP.search(line) or _STEP_BEHIND.search(line) or front or _KERAS_BAR.search(line)
    if found is None:
        return Fields(line.find(b"{"), ()) if b"{" in line and (b"'epoch'" in line or b'"epoch"' in line) else None
    start = min(found.start(), epoch.start()) if epoch is not None else found.start()
    brace = line.find(b"{", 0, start)
    step = ("step", *found.span(1), 1.0)
    if epoch is None:
        places: tuple[Place, ...] = (step,)
    elif found[2]:
        places = step, ("epoch", *epoch.span(1), 1.0), ("total", *found.span(2), 1.0)
    else:
        places = ()
    return Fields(brace if brace >= 0 else start, places)


_SCALES = {None: 1.0, b"ms": 1e-3, b"M": 1e6, b"k": 1e3, b"K": 1e3}
_NUMBER_BEFORE = compiled(rb"(\d[\d,]{0,18}(?:\.\d{1,20})?)([kKM])?\Z")
_NUMBER_AFTER = compiled(_VALUE)
_UNIT_BEHIND = compiled(rb"[ \t]?(?:m?s|secs?|seconds|%|[GMK]i?B|it|steps?|tokens?|tok|samples?)(?![A-Za-z])")


def _beside(line: bytes, at: int, size: int, *, only_after: bool = False) -> tuple[int, int, float] | None:
    """Where the number is that belongs to the unit at a place (`tokens/s: 1820`, `1820 tokens/s`), and its factor.

    Of two numbers it is that which no other unit follows.
    """
    end = at + size
    while line[end : end + 1].isalpha():  # `tokens/s` is also in `tokens/sec`
        end += 1
    found, offset = _NUMBER_AFTER.match(line, end), 0
    if not only_after and (found is None or line[end : end + 1] not in b":=\"'"):
        from_ = max(at - 24, 0)
        words = line[from_:at].rstrip()
        before = _NUMBER_BEFORE.search(words)
        if before is not None and (found is None or _UNIT_BEHIND.match(line, found.end())):
            found, offset = before, from_
    if found is None:
        return None
    return found.start(1) + offset, found.end(1) + offset, _SCALES[found[2]]


_WAITED = compiled(
    rb"(?i)(?<![a-z_])(?:data|reader)(?:[_ ]?(?:wait|load(?:ing|er)?|fetch|cost))?(?:[_ ]?time)?[\"']?\s?[:=]?\s?"
    rb"(\d{1,9}(?:\.\d{1,20})?)\s?(ms\b)?(?![\w.%/])"
)


_TOOK = compiled(  # names that are those of one step, whatever else the line tells
    rb"(?i)(?<![a-z_])(?:(?:(?:step|iter|iteration|batch)[_ ]?(?:time|duration)|time[_ ]per[_ ]step|time/step|dt)"
    rb"(?:[_ (]{1,2}(?P<in>ms|s|secs?|seconds)\)?)?|(?:step|iter|iteration|batch)_(?P<unit>ms|s|secs?|seconds))"
    rb"[\"']?\s{0,3}[:=]?\s{0,3}(?P<value>\d[\d,]{0,18}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)\s?(?P<behind>ms|s|secs?|seconds)?(?![\w.%/]|,\d)"
)


def _took(line: bytes) -> Place | None:
    """Where the time of a step is that is named as such (`step_time_ms=512`, `dt: 0.51s`)."""
    found = _TOOK.search(line)
    if found is None:
        return None
    unit = found["behind"] or found["in"] or found["unit"]
    return "seconds", *found.span("value"), _SCALES.get(unit, 1.0)


_IN_MS = compiled(rb"(?i)(?:\A|[,;|] {1,4}| {2})time\s?[:=]\s?(\d[\d,]{0,12}(?:\.\d{1,9})?)\s?ms(?![\w/])")


def _per_step(line: bytes) -> Place | None:
    """Where the time of a step is that its unit names (`512 ms/batch`, `s/it: 0.51`, `time: 512 ms`)."""
    for literal, scale in reversed(_PER_STEP):  # milliseconds first: `s/it` is also in `ms/it`
        if (at := line.find(literal)) >= 0 and (number := _beside(line, at, len(literal))) is not None:
            start, end, factor = number
            return "seconds", start, end, factor * scale
    found = _IN_MS.search(line)
    return ("seconds", *found.span(1), 1e-3) if found is not None else None


def _with_wait(line: bytes, places: tuple[Place, ...]) -> tuple[Place, ...]:
    """The part of the step that waited for data (`data 0.31 s`, `data_time: 310ms`) beside what is known of it."""
    found = _WAITED.search(line)
    return (*places, ("data", *found.span(1), _SCALES[found[2]])) if found is not None else places


def _rate(literal: bytes, name: str = "rate") -> Find:
    def find(line: bytes) -> Fields | None:
        fields = Fields(line.find(literal), ()) if literal == _ESTIMATOR else _step(line)
        number = _beside(line, line.find(literal), len(literal)) if fields is not None else None
        if fields is None or number is None:
            return None
        places = (*fields.places, (name, *number))
        if name == "rate" and (took := _took(line) or _per_step(line)) is not None:
            places = (*places, took)
        return fields._replace(places=_with_wait(line, places))

    return find


def _seconds(literal: bytes, scale: float = 1.0, *, only_after: bool = False) -> Find:
    def find(line: bytes) -> Fields | None:
        fields = _step(line)
        number = _beside(line, line.find(literal), len(literal), only_after=only_after) if fields is not None else None
        if fields is None or number is None:
            return None
        start, end, factor = number
        return fields._replace(places=_with_wait(line, (*fields.places, ("seconds", start, end, factor * scale))))

    return find


_RUNNING = compiled(
    rb"(?i)(?:elapsed|wall|total|remaining|estimated|eta)(?: used)?\Z"
)  # in front of ` time: `: no time of a step


def _of_step(literal: bytes) -> Find:
    """The time with this name, unless the line tells one that holds it: `iter_time` of the data beside `train_time`."""
    find = _seconds(literal, only_after=True)

    def found(line: bytes) -> Fields | None:
        at = line.find(literal)
        return None if _RUNNING.search(line, max(at - 12, 0), max(at, 0)) is not None else find(line)

    return find if literal == _WHOLE else without(_WHOLE, found)


def _named(literal: bytes) -> Find:
    """The time of a step by its name, else by what stands beside the literal."""
    find = _of_step(literal)

    def found(line: bytes) -> Fields | None:
        took = _took(line)
        fields = _step(line) if took is not None and _WHOLE not in line else None
        if fields is None or took is None:
            return find(line)
        return fields._replace(places=_with_wait(line, (*fields.places, took)))

    return found


def _lone_seconds(line: bytes) -> Fields | None:
    """`iteration 12: 0.513 sec`: the only time of the line, without a name."""
    found = _SECONDS.findall(line)
    fields = _step(line) if len(found) == 1 and _CLOCK.search(line) is None else None
    at = _SECONDS.search(line)
    if fields is None or at is None:
        return None
    return fields._replace(places=(*fields.places, ("seconds", *at.span(1), 1.0)))


def _milliseconds(line: bytes) -> Fields | None:
    """`step 12  loss 8.9  3912.7 ms`: the only time of the line, without a name. ` msg=` is none."""
    return _LONE_TIME(line) if line.count(LONE) == 1 and _MILLISECONDS.search(line) is not None else None


_RATES = {
    "tokens/s": (b"tokens/s", b"Tokens/s", b"tok/s", b"tokens_per_s", b"toks/s", b"tks/s", b" tps ", b"tps=", b" wps"),
    "samples/s": (
        b"samples/s", b"Samples/s", b"sample/s", b"images/s", b"imgs/s", b"img/s", b"examples/s", b"ex/s", b"seq/s", b"seqs/s", b"sents/s",
        b"sequences/s", b"samples_per_s", b"images_per_s", b"examples_per_s",
    ),
}  # fmt: skip
_ESTIMATOR = b"global_step/sec"  # of TensorFlow, alone on its line
_SPEEDS = (b"steps/s", b"step/s", b"iter/s", b"iters/s", b"batches/s", b"steps_per_s", b" it/s", _ESTIMATOR)
_WHOLE = b"train_time"
BARE = b" time ", b" dt "  # words that are names where a digit follows
_NAMED = (
    b"step_time", b"step time", b"iter_time", b"iter time", b"batch_time", b"batch time", b"time/step", b"time_per_step",
    b"time per step", b" dt: ", b" dt=", b" dt ", b"_ms", b"_duration",
)  # fmt: skip
_TIMES = (
    b" time: ", b" time=", b" Time: ", b" Time=", b" time ", b" took ", b"batch_cost", _WHOLE, b"step_total",
)  # fmt: skip
LONE = b" ms"
_MILLISECONDS = compiled(rb"[\dkKM][ \t]{0,8} ms(?![A-Za-z])")
LONE_SECONDS = b" sec"
_SECONDS = compiled(rb"(?<![\w.:/])(\d{1,9}(?:\.\d{1,20})?) sec(?:s|onds?)?(?![A-Za-z/])")
_CLOCK = compiled(rb"(?i)elapsed|total|remain|since|\beta\b|left|so far|wait|sleep")
_PER_STEP = (
    (b"s/step", 1.0),
    (b" s/it", 1.0),
    (b"s/iter", 1.0),
    (b"s/batch", 1.0),
    (b"sec/step", 1.0),
    (b"ms/step", 1e-3),
    (b"ms/iter", 1e-3),
    (b"ms/batch", 1e-3),
    (b"s per step", 1.0),
    (b"s per iteration", 1.0),
    (b"sec per step", 1.0),
    (b"ms per step", 1e-3),
)


_LATER = frozenset(
    (*_NAMED, *_TIMES, *(word for word, _ in _PER_STEP), LONE, LONE_SECONDS)
)  # a rate beside them tells both

_LONE_TIME = _seconds(LONE, 1e-3)
TOOLS = tuple(
    Tool(word, NAME, unit, "job", find, is_guess=True, is_later=word in _LATER)
    for word, unit, find in (
        *((word, unit, _rate(word)) for unit, words in _RATES.items() for word in words),
        *((word, "samples/s", _rate(word, "speed")) for word in _SPEEDS),
        *((word, "samples/s", _named(word)) for word in _NAMED),
        *((word, "samples/s", _of_step(word)) for word in _TIMES),
        *((word, "samples/s", _seconds(word, scale)) for word, scale in _PER_STEP),
        (LONE, "samples/s", _milliseconds),
        (LONE_SECONDS, "samples/s", _lone_seconds),
    )
)


def is_loop(series: Series) -> bool:
    """Whether a series is that of a training loop: long enough, and no clock that counts up to the end or down to it.

    A clock may begin again with each epoch.
    """
    seconds = series.seconds()
    if len(seconds) < LEAST:
        return series.points >= LEAST
    falls = [(a, b) for a, b in pairwise(seconds) if a >= b]
    counts_up = _EPOCH * len(falls) < len(seconds) and all(b < a / 2 for a, b in falls)
    return not counts_up and not all(a > b for a, b in pairwise(seconds))
