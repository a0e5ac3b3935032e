"""Progress of ranks: which rank printed lines of which shape, how often and where last, in the last part of a log.

It needs no NCCL line: when 30 of 32 ranks printed `running step 12` last and two did not, the two are named.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Progress
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import nccl_header
from nccl_doctor.log.nccl_header import NcclHeader
from nccl_doctor.log.rank_map import RankMap

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,:/]\d+)*")
_IN_TEXT = re.compile(r"\b(?:[Gg]lobal |[Ll]ocal )?[Rr](?:ank|ANK)[ =:_#]*(\d+)\b|\bworker[ _](\d+)\b")
TAIL = 4 << 20  # bytes at the end of a log that are looked at
_SHAPES = 300  # different shapes kept per label
_MAX = 300  # characters of a line that make its shape


class ShapeCount:
    """Lines of one shape behind one label."""

    __slots__ = ("host", "last", "n", "rank", "raw", "text")

    def __init__(self, rank: int | None, host: str | None) -> None:
        self.rank = rank
        self.host = host
        self.n = 0
        self.last = 0  # line of the tail
        self.raw = ""  # the last line, and its text without the label
        self.text = ""


class RankProgress(NamedTuple):
    """The lines of the last part of a log, by label and shape."""

    seen: dict[tuple[str, str], ShapeCount]  # label, shape
    lines: int  # of that part


def collect(tail: bytes) -> RankProgress:
    """Count the labelled lines of the last part of a log, of which `TAIL` bytes are looked at."""
    tail = tail[-TAIL:]
    seen: dict[tuple[str, str], ShapeCount] = {}
    per_label: dict[str, int] = {}
    for number, raw in enumerate(tail.decode("utf-8", "replace").split("\n"), 1):
        if not raw or nccl_header.TOKEN in raw:
            continue
        if "\r" in raw:
            raw = raw.strip("\r") if raw.endswith("\r") else raw.rpartition("\r")[2]
        label, text = prefixes.split(prefixes.clean(raw))
        if label.rank is not None:
            name, rank = f"rank {label.rank}", label.rank
        elif label.host is not None and label.local_rank is None and label.pid is None:
            name, rank = label.host, None
        else:
            match = _IN_TEXT.search(text[:120])
            if match is None:
                continue
            rank = int(match[1] or match[2])
            name = f"rank {rank}"
            text = text[: match.start()] + "<rank>" + text[match.end() :]
        text = text.strip()[:_MAX]
        if len(text) < 4:
            continue
        key = (name, _NUMBER.sub("#", text))
        entry = seen.get(key)
        if entry is None:
            if per_label.get(name, 0) >= _SHAPES:
                continue
            per_label[name] = per_label.get(name, 0) + 1
            entry = seen[key] = ShapeCount(rank, label.host)
        entry.n += 1
        entry.last, entry.raw, entry.text = number, raw, text
    return RankProgress(seen, tail.count(b"\n") + (not tail.endswith(b"\n") and bool(tail)))


def rows(facts: Facts, file: str, counted: RankProgress, lines: int, ranks: RankMap) -> Iterator[Progress]:
    """Rows for a log of so many lines."""
    before = lines - counted.lines
    for (name, shape), entry in counted.seen.items():
        rank, place = entry.rank, ranks.host(entry.host)
        if place is None and rank is not None:
            place = ranks.place(
                NcclHeader(None, None, None, None, None, nccl_header.NO_LABEL._replace(rank=rank), True)
            )
        ref = facts.evidence(file, before + entry.last, prefixes.clean(entry.raw))
        values = " ".join(_NUMBER.findall(entry.text)) or None
        yield Progress(name, rank, place, shape, entry.n, values, before + entry.last, ref)
