"""The rates and times of a line of text, by the words and units beside them."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.units import is_rate, is_time, kind_of, rate_in

_WORDS = 12  # of a name
_NUMBER = compiled(
    rb"(?:(?<![\w.:/+-])|(?<=[a-z]{4}:))(\d{1,15}(?:,\d\d\d){0,5}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?|(?<=[=: ])\.\d{1,20})"
    rb"(?P<times>[kKMG](?![A-Za-z/]))?(?:[ \t]?(?P<unit>[A-Za-z][A-Za-z/]{0,20}))?(?![\w:/]|\.[\w.]|-\d)"
)
_MERIT = compiled(  # of CORAL's benchmarks: `Figure of Merit (FOM): nnz / (Setup + 3 * Solve) 2.9e+09`, `Figure Of Merit  2.9e+08 [Cycles]`
    rb"(?i)(?<!the )\b(?P<name>figure of merit|fom(?:_\w{1,20})?)\b.{0,200}?[ \t:=]"
    rb"(?P<value>\d{1,15}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)[ \t]{0,9}(?:[\[(].{0,100})?\r?\Z"
)
_GROMACS = compiled(  # below the title `(ns/day)    (hour/ns)`
    rb"Performance: {2,20}(\d{1,9}\.\d{1,9}) {2,20}\d{1,9}\.\d{1,9}\s{0,4}\Z"
)
_TIMES = {None: 1.0, b"k": 1e3, b"K": 1e3, b"M": 1e6, b"G": 1e9}
_FRONT = compiled(
    rb"[A-Za-z_][\w.]{0,60} - (?:INFO|DEBUG|WARNING) - |(?:INFO|DEBUG|WARNING):\w{1,20}:|\[[^\]\n]{0,60}\]|[\])]|"
    rb"(?:[\d:,./ -]|[TZ](?![A-Za-z])){6,40}|[A-Za-z]{1,20}:[ \t]|INFO|DEBUG|WARNING|[-|>* \t]{1,20}"
)
_SOURCE = compiled(rb"[\w./-]{1,200}\.(?:cc|cpp|cu|hpp|h|py|go|rs)\b:?\d{0,7}\]?")  # where a logger stands in a program
_LONE_NUMBER = compiled(r"(?<![\w.,])\d[\d.,]{0,30}(?![\w.])")
_HYPHENED = compiled(rb"\A-[A-Za-z]{1,20}")  # behind another number: `8192-bit`
_NOT_MEASURED = compiled(rb"(?i)[ \t]{1,4}(?:peak|theoretical)\b")
_FORMULA = compiled(
    rb" = [^=:;]{1,120}[/*][^=:;]{1,120}:(?=\s)"
)  # `fwd FLOPS per GPU = fwd flops per GPU / fwd latency: 81.9 TFLOPS`
_SHAPE = compiled(rb"\(\d{1,9}(?:, ?\d{1,9}){1,4}\)(?: x \d{1,9}){0,4}")  # `per iteration of (512,512,512) x 4: 0.43 s`
_LOADING = compiled(
    rb"\d{1,40}%\|[^|\n]{0,200}\| {0,9}\d{1,40}/\d{1,40} \[[^\]\n]{0,400}\]?"
)  # a bar: of steps others tell
_DOWNLOAD = compiled(rb"\bFetched \d{1,6}(?:\.\d{1,3})? ?[kMG]?B in \d|[kMG]i?B/s eta \d")  # of apt and pip
_CLOSED = compiled(rb"\([^()\n]{0,200}\)")
_SAYS = compiled(rb"(?:[:=]|\b(?:is|was|took|of|in)\b)[\s\"'~]{0,24}\Z")
_TIMED = compiled(rb"(?i)\b(?:time|duration|latency|time cost)[ \t]{1,4}\Z")
_COLUMN = (
    compiled(  # `Wall clock    31.9`, `Average time per cell    2.0e-9`; the bare word is the clock of a simulation
        rb"(?i)(?:\bwall[ -]?clock|\b[a-z]{3,20} time(?: per [a-z]{1,12})?|\btime per [a-z]{1,12})[ \t]{2,30}\Z"
    )
)
_SPAN = compiled(  # `19h 28m`, `10m 22.69s`, `2 hours 5 minutes`, `1.5 hours`
    rb"(?<![\w.:/+-])(?:(?P<h>\d{1,6}(?:\.\d{1,9})?) ?h(?:(?:ou)?rs?)?(?:[ ,:]{1,2}(?:and )?|(?=\d|\b)))?"
    rb"(?:(?P<m>\d{1,6}(?:\.\d{1,9})?) ?m(?:in(?:ute)?s?)?(?:[ ,:]{1,2}(?:and )?|(?=\d|\b)))?"
    rb"(?:(?P<s>\d{1,6}(?:\.\d{1,9})?) ?s(?:ec(?:ond)?s?)?)?(?<=[a-z])(?![\w/])"
)


class Measured(NamedTuple):
    """A rate or a time of a line."""

    name: str
    unit: str
    text: bytes
    times: float  # the number by its sign behind it: 1000 of `12k`
    start: int  # in what `plain_numbers` makes of the line

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text.replace(b",", b"")) * self.times


def numbers_of_line(line: bytes) -> Iterator[tuple[str, str, float]]:
    """(name, unit, value) of the rates and times of a line; a time needs a name that says it."""
    return ((one.name, one.unit, one.value) for one in measured(line))


def plain_numbers(line: bytes) -> bytes:
    """A line without bars, shapes of matrices and formulas, with times in hours or minutes as seconds."""
    if b"%|" in line:
        line = _LOADING.sub(b"", line)
    return _SPAN.sub(_in_seconds, _SHAPE.sub(b"", _FORMULA.sub(b":", line)))


def measured(line: bytes) -> Iterator[Measured]:
    """The rates and times of a line; a time needs a name that says it."""
    if _DOWNLOAD.search(line) is not None:
        return
    if (merit := _MERIT.search(line)) is not None:
        yield Measured(merit["name"].decode(), "", merit["value"], 1.0, merit.start("value"))
        return
    if (simulated := _GROMACS.match(line)) is not None:
        yield Measured("Performance", "ns/day", simulated[1], 1.0, simulated.start(1))
        return
    end = 0
    line = plain_numbers(line)
    for match in _NUMBER.finditer(line):
        before, end = _HYPHENED.sub(b"", line[end : match.start()]), match.end()
        if _NOT_MEASURED.match(line, end) is not None:
            continue
        unit = (match["unit"] or b"").decode()
        if unit and not (is_rate(unit) or is_time(unit)):
            unit = ""
        name = _name(before)
        if not is_rate(unit) and (not name or not _says(before, unit, match[1])):
            continue
        unit = unit or rate_in(name)
        kind = kind_of(name, unit)
        if kind is not None and (match["times"] is None or kind == "rate"):
            yield Measured(name, unit, match[1], _TIMES[match["times"]], match.start(1))


def _says(before: bytes, unit: str, value: bytes) -> bool:
    """Whether the words in front of a number say that it is theirs: `latency: 5`, `using time 17.4 second`."""
    return (
        _SAYS.search(before) is not None
        or (is_time(unit) and _TIMED.search(before) is not None)
        or (b"." in value and _COLUMN.search(before) is not None)
    )


def _in_seconds(span: re.Match[bytes]) -> bytes:
    """A time in hours or minutes as seconds; one in seconds as it is, and `5 m` alone, which may be metres."""
    if span["h"] is None and (span["m"] is None or (span["s"] is None and span[0].endswith(b"m"))):
        return span[0]
    hours, minutes, seconds = (float(span[part] or 0) for part in "hms")
    return b"%.9g s" % (3600 * hours + 60 * minutes + seconds)


@lru_cache(4096)
def _name(before: bytes) -> str:
    """The name of a number: the words in front of it, without time stamps, labels and numbers of steps."""
    before = _SOURCE.sub(b" ", before).rstrip(b" \t:=\"'~")
    plain = _CLOSED.sub(lambda found: b"." * len(found[0]), before)  # `Throughput (in TFLOP/s) of one` is one name
    at = max(plain.rfind(one) for one in (b",", b";", b"|", b"(")) + 1
    while (front := _FRONT.match(before, at)) is not None:
        at = front.end()
    text = before[at:].decode("utf-8", "replace").rpartition(": ")[2]
    words = _LONE_NUMBER.sub(" ", text).split()
    setting = max((at for at, word in enumerate(words[:-1]) if "=" in word[1:]), default=-1)
    words = words[setting + 1 :]  # of `level=info pod=a took=0.5` the last key is the name
    while words and words[-1].lower() in ("is", "was", "of", "in", "at", "took", "-", "for"):
        words.pop()
    return " ".join(words[-_WORDS:])[:60].strip(" -.:=\"'{[%")
