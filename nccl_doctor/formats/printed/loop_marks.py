"""What a line of a training loop of anybody's own tells: a step, an epoch, a loss, how long something took."""

import re
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.text_keys import Flags, Numbers
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.steps.last_loss import loss_span

_STEP = compiled(
    rb"(?i)(?<![a-z])(?:global[_ ]?|train[_ ]?)?(?:step|iteration|iter|it|batch|update)s?[\"']?\s{0,3}[:=#|]?\s{0,3}\[?\s{0,6}"
    rb"(\d{1,3}(?:,\d{3}){1,3}(?![\d.])|\d{1,12})(?:\s?/\s?(\d{1,12}))?(?![\d.]*\.\d|\s?/s)"
)
_STEP_BEHIND = compiled(
    rb"(?i)(?<![\w.,/])(\d{1,12})(?:\s?/\s?(\d{1,12}))?\s?(?:steps?|iterations?|iters?)(?=[:,|\])])"
)
_OF = compiled(rb"[\[(]\s{0,6}(\d{1,12})\s?/\s?(\d{1,12})[\s\])]")
_EPOCH = compiled(
    rb"(?i)(?<![a-z])epochs?[\"']?\s{0,3}[:=#]?\s{0,3}[\[(]?\s{0,3}(\d{1,9})(?:\s?/\s?\d{1,9})?(?![\d.]*\.\d)"
)
# the form of PyTorch's examples, which count samples: `Train Epoch: 1 [6400/60000 (11%)]`
_SAMPLES = compiled(
    rb"(?i)\btrain epoch:? {0,3}\d{1,9} {0,3}\[ {0,9}\d{1,15}/\d{1,15} {1,3}\( {0,3}\d{1,9}(?:\.\d{1,15})?%\)\]"
)
_ELAPSED = compiled(
    rb"(?i)(?:elapsed|total[_ ](?:(?:used|run|wall|train(?:ing)?)[_ ])?time|since[_ ]start)(?:[_ ]?time)?[\"']?\s{0,3}[:=]?\s{0,3}"
    rb"(\d{1,9}(?:\.\d{1,20})?)\s?(ms|s|sec|secs|seconds|m|min|h)?(?![\w:.])"
)
_TOOK = compiled(
    rb"(?i)(?<![a-z])(?<!validation )(?<!val )(?<!evaluation )(?<!eval )(?<!test )(?<!inference )"
    rb"(?:time(?: taken)?(?: for epoch \d{1,9})?(?: is| was)?|took|duration|(?:finished|completed|done|ended) in|elapsed)\W{1,4}"
    rb"(?:(\d{1,9})\s?h(?:ours?)?\W{1,2})?(?:(\d{1,9})\s?m(?:in(?:utes)?)?\W{1,2})?(\d{1,9}(?:\.\d{1,20})?)"
    rb"\s?(s|sec|secs|seconds|min|minutes|m|ms)?(?![\w:.]|, ETA)"
)
_LONE = compiled(rb"(?<![\w.,:/+-])(?P<value>\d{1,9}\.\d{1,20})\s?(?P<unit>ms|s|secs?|seconds)(?![\w.:/])")
_NO_STEP = compiled(
    rb"(?i)elapsed|total|remain|since|\beta\b|left|so far|\bper\b|/"
)  # times of something else, or rates
_WRITER = compiled(rb"(?i)(?<!\S)\(\d{1,6}/\d{1,6}\)(?!\S)|(?<![a-z_])rank\W{0,2}\d{1,6}")  # icefall's `(3/8)`
_TIME = (
    rb"(?:(?P<hours>\d{1,5}):(?P<minutes>\d{1,2}):(?P<rest>\d{1,2}(?:\.\d{1,9})?)"
    rb"|(?P<value>\d{1,9}(?:\.\d{1,20})?)(?:\s?(?P<unit>ms|s|secs?|seconds|min|h)(?![a-z/]))?)"
)
_NAMED_CLOCK = compiled(
    rb"(?i)(?<![a-z])(?:(?:time )?elapsed|total[_ ]time|since[_ ]start|wall[_ -]?(?:clock|time)|run[_ ]?time|train(?:ing)?[_ ]time|time)"
    rb"(?:[_ ]time)?(?:[_ ]\(?(?P<in>ms|s|secs?|seconds)\)?)?[\"']?\s{0,3}[:=]?\s{0,3}" + _TIME + rb"(?![\w:.])"
)
_CLOCK_BEHIND = compiled(rb"(?i)(?<![\w.,:/+-])" + _TIME + rb"\s(?:elapsed|so far|since)\b")
_COLONS = compiled(rb"\d:\d{1,20}:\d")
WHOLE = ("epoch", "step", "total")
SUMS = (("took_hours", "took_minutes", "took"), ("clock_hours", "clock_minutes", "clock"))
ALONE = ("own", "elapsed")
CLOCK_WITHIN = 80  # bytes from the begin of a line in which its time stands
LLM_C = compiled(rb"s:(\d{1,12}) (trl|tel):(\d{1,9}\.\d{1,9})(?: |\s*\Z)")  # `main.log` of llm.c
_SECONDS = {None: 1.0, b"ms": 1e-3, b"m": 60.0, b"min": 60.0, b"minutes": 60.0, b"h": 3600.0}


class Number(NamedTuple):
    """Where a line tells a number."""

    name: str  # a part of `Mark`; of times in hours and minutes one of `SUMS`
    start: int
    end: int
    times: float = 1.0


class Places(NamedTuple):
    """Where a line tells what."""

    numbers: tuple[Number, ...]
    loss_name: str = ""
    counts_samples: bool = False
    has_writer: bool = False
    is_stamped: bool = False  # it may begin with the time of the day
    is_fine: bool = False  # the time since the start shows less than a second
    has_fine_clock: bool = False  # the clock does


class Mark(NamedTuple):
    """What a line tells."""

    epoch: int | None
    step: int | None
    total: int | None  # steps of an epoch
    loss: float | None
    took: float | None  # seconds of what ended, of a line that tells no step
    clock: float | None  # seconds of a time that may be a clock: one with such a name, or the only time of the line
    own: float | None  # seconds: the only time of the line, without a rate
    elapsed: float | None  # seconds since the start
    writer: bytes | None  # the rank or worker that printed the line, as it calls itself
    places: Places


class LoopLines(NamedTuple):
    """What lines tell that have a step and a loss, in columns; NaN for what a line does not tell."""

    number: Numbers
    line: list[bytes]
    loss_name: list[str]
    epoch: Floats
    step: Floats
    loss: Floats
    own: Floats  # seconds
    clock: Floats
    has_fine_clock: Flags
    when: Floats  # seconds by a clock since the start, or since the epoch
    is_fine: Flags  # that shows less than a second

    def cut(self, start: int, end: int) -> "LoopLines":
        """The lines from one to another."""
        return LoopLines._make(column[start:end] for column in self)

    def chosen(self, which: Flags) -> "LoopLines":
        """Some of the lines."""
        flags = which.tolist()
        return LoopLines._make(
            list(compress(column, flags)) if isinstance(column, list) else column[which] for column in self
        )


def places_of(line: bytes) -> Places:
    """Where a line tells what."""
    numbers = []
    epoch, step, loss = _EPOCH.search(line), _STEP.search(line) or _STEP_BEHIND.search(line), loss_span(line)
    if epoch is not None:
        numbers.append(Number("epoch", *epoch.span(1)))
    if step is None:
        if (took := _TOOK.search(line)) is not None:
            units = (("took_hours", 1, 3600.0), ("took_minutes", 2, 60.0), ("took", 3, _SECONDS.get(took[4], 1.0)))
            numbers += [
                Number(name, *took.span(group), times) for name, group, times in units if took[group] is not None
            ]
        step = _OF.search(line, epoch.end() if epoch is not None else 0)
    if step is not None:
        numbers.append(Number("step", *step.span(1)))
        if step[2] is not None:
            numbers.append(Number("total", *step.span(2)))
    if loss is not None:
        numbers.append(Number("loss", *loss[1:]))
    if loss is None and step is None:
        return Places(tuple(numbers))
    lone = list(_LONE.finditer(line))
    if len(lone) == 1 and _NO_STEP.search(line) is None:
        numbers.append(Number("own", *lone[0].span("value"), _SECONDS.get(lone[0]["unit"], 1.0)))
    clock = _NAMED_CLOCK.search(line) or _CLOCK_BEHIND.search(line) or (lone[0] if len(lone) == 1 else None)
    clocks = list(_clock_numbers(clock)) if clock is not None else []
    numbers += clocks
    if (elapsed := _ELAPSED.search(line)) is not None:
        numbers.append(Number("elapsed", *elapsed.span(1), _SECONDS.get(elapsed[2], 1.0)))
    return Places(
        tuple(numbers),
        loss[0] if loss is not None else "",
        step is not None and _SAMPLES.search(line) is not None,
        _WRITER.search(line) is not None,
        elapsed is None and _COLONS.search(line, 0, CLOCK_WITHIN) is not None,
        elapsed is not None and b"." in elapsed[1],
        any(b"." in line[one.start : one.end] or one.times < 1 for one in clocks),
    )


def _clock_numbers(clock: re.Match[bytes]) -> Iterator[Number]:
    parts = clock.groupdict()
    if parts.get("hours"):
        for part, times in (("hours", 3600.0), ("minutes", 60.0)):
            yield Number(f"clock_{part}", *clock.span(part), times)
        yield Number("clock", *clock.span("rest"))
    else:
        unit = (parts["unit"] or parts.get("in") or b"s").lower()
        yield Number("clock", *clock.span("value"), _SECONDS.get(unit, 1.0))


def mark_of(line: bytes) -> Mark:
    """What a line tells."""
    places = places_of(line)
    values = {name: float(line[start:end].replace(b",", b"")) * times for name, start, end, times in places.numbers}
    epoch, step, total = (int(values[name]) if name in values else None for name in WHOLE)
    took, clock = (
        sum(values[part] for part in parts if part in values) if parts[-1] in values else None for parts in SUMS
    )
    own, elapsed = map(values.get, ALONE)
    writer = writer_of(line) if places.has_writer else None
    return Mark(epoch, step, total, values.get("loss"), took, clock, own, elapsed, writer, places)


def writer_of(line: bytes) -> bytes | None:
    """The rank or worker that printed a line, as it calls itself."""
    found = _WRITER.search(line)
    return found[0] if found is not None else None


def may_be_progress(line: bytes) -> bool:
    """Whether a line holds a step, an epoch, a time that one took, or a loss."""
    return bool(places_of(line).numbers) or LLM_C.match(line) is not None
