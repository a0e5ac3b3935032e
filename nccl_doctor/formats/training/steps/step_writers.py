"""Who wrote a step line: the host, ranks or device in front of it, and the rank that it names itself.

Sources: launchers (`nccl_doctor.inputs.prefixes`), the log prefixes of picotron and Megatron-LM, loops of people's own::

    node01: step 120 loss 2.31 0.51 s/it
    [rank 3] step 120 time 0.51 s
    step 120 rank=3 step_time=0.51
    node01: [default3]:step 120 step_time=0.51
    1: [default3]:step 120 step_time=0.51
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes

_STAMP = compiled(rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_DEVICE = compiled(r"(?i)gpu\d{1,2}: ")  # a node or a device: either way lines of one writer
_NUMBER = rb"rank[\"']?[ \t]{0,2}[:=#]?[ \t]{0,2}(\d{1,7})(?![\d.]*\.\d|[\w%]|\s?/s)"
_RANK = compiled(rb"(?i)(?<![a-z0-9_])(?<!local )(?:global[_ ]?)?" + _NUMBER)
_LOCAL_RANK = compiled(rb"(?i)(?<![a-z0-9_])local[_ ]?" + _NUMBER)
_WORD = compiled(rb"[\w.-]{1,253}")
_AROUND = compiled(rb"[\[(<]?\s{0,4}\Z")  # in front of the rank: `[rank 3]`, `(rank 3)`
_BEHIND = compiled(rb"(?:\s?/\s?\d{1,7})?\s{0,4}[\])>]?\s{0,4}[:|,-]{0,2}\s{0,4}")


class Writer(NamedTuple):
    """Who wrote a line, as far as the line says it."""

    host: str | None
    rank: int | None  # in the job
    local_rank: int | None  # on its node, where the line names no rank in the job
    task: int | None  # number of srun or MPICH in front of a local rank: which of the nodes
    device: str = ""


def named_rank(line: bytes, start: int, *, anywhere: bool) -> tuple[int, int] | None:
    """Where the rank is that a line names in front of the program's own text, or `anywhere` in it; None for no rank."""
    return _named(_RANK, line, start, anywhere=anywhere)


def _named(pattern: re.Pattern[bytes], line: bytes, start: int, *, anywhere: bool) -> tuple[int, int] | None:
    found = pattern.search(line) if anywhere else pattern.search(line, 0, start)
    return found.span(1) if found is not None else None


def writer_runs(line: bytes, start: int, runs: list[tuple[int, int]], *, anywhere: bool) -> list[int]:
    """Which runs of digits say who wrote a line: all in front of the program's own text but its date, where its form is unknown."""
    named = named_rank(line, start, anywhere=anywhere), _named(_LOCAL_RANK, line, start, anywhere=anywhere)
    begins = {span[0] for span in named if span is not None}
    who = set(_in_prefix(line, start, runs))
    who.update(at for at, run in enumerate(runs) if run[0] in begins)
    return sorted(who)


def _in_prefix(line: bytes, start: int, runs: list[tuple[int, int]]) -> Iterator[int]:
    prefix = line[:start]
    text = prefix.decode("utf-8", "replace").rstrip() + " x"
    before = [(at, run) for at, run in enumerate(runs) if run[1] <= start]
    if not before:
        return
    found = prefixes.layout(text) if text.isascii() else None
    if found is None:
        date = _STAMP.search(prefix)
        yield from (at for at, run in before if date is None or not meet(run, date.span()))
        return
    spans = [*((begin, end) for name, begin, end in found.fields if name in prefixes.NAMES), *found.words]
    if (device := _DEVICE.match(text)) is not None:
        spans.append(device.span())
    yield from (at for at, run in before if any(meet(run, span) for span in spans))


def meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two spans overlap."""
    return one[0] < other[1] and other[0] < one[1]


def writer_of(line: bytes, start: int, *, anywhere: bool) -> Writer:
    """Who wrote a line, in which the program's own text begins at `start`. A time stamp is ignored."""
    span = named_rank(line, start, anywhere=anywhere)
    prefix = line[:start]
    if span is not None and span[1] <= start:
        prefix = _without_rank(prefix, span)
    text = prefixes.clean(_STAMP.sub(b"", prefix, count=1).decode("utf-8", "replace"))
    text = f"{text.rstrip()} x"
    label = prefixes.split(text)[0]
    device = _DEVICE.match(text) if label.host is None and label.rank is None else None
    rank = label.rank if span is None else int(line[slice(*span)])
    local, task = None, None
    if rank is None:
        own = _named(_LOCAL_RANK, line, start, anywhere=anywhere)
        local = label.local_rank if own is None else int(line[slice(*own)])
        task = prefixes.task_number(text) if local is not None and label.host is None else None
    return Writer(label.host, rank, local, task, device[0] if device else "")


def _without_rank(prefix: bytes, span: tuple[int, int]) -> bytes:
    """What the launcher wrote of a prefix: `node01: ` of `node01 [rank 3] `."""
    named = _RANK.search(prefix)
    begin = named.start() if named is not None else span[0]
    around = _AROUND.search(prefix[:begin])
    front = prefix[: around.start() if around is not None else begin].rstrip()
    behind = _BEHIND.match(prefix, span[1])
    rest = prefix[behind.end() if behind is not None else span[1] :]
    return (front + b": " if _WORD.fullmatch(front) else front + b" ") + rest
