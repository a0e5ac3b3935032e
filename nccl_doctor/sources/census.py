"""The progress census: which rank printed lines of which shape, how often and where last, from the last part of a log.

It needs no NCCL line: when 30 of 32 ranks printed `running step 12` last and two did not, the two are named.
"""

import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts import Facts
from nccl_doctor.sources import heads, prefixes
from nccl_doctor.sources.heads import Head
from nccl_doctor.sources.ranks import Ranks
from nccl_doctor.tables import Progress

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,:/]\d+)*")
_IN_TEXT = re.compile(r"\b(?:[Gg]lobal |[Ll]ocal )?[Rr](?:ank|ANK)[ =:_#]*(\d+)\b|\bworker[ _-]?(\d+)\b")
_SHAPES = 300  # different shapes kept per label
_MAX = 300  # characters of a line that make its shape


def census(facts: Facts, file: str, tail: bytes, first: int, ranks: Ranks) -> Iterator[Any]:
    """Rows for the labelled lines of `tail`, whose first line has the number `first` + 1."""
    seen: dict[tuple[str, str], list[Any]] = {}
    per_label: dict[str, int] = {}
    for number, raw in enumerate(tail.decode("utf-8", "replace").split("\n"), first + 1):
        if (
            not raw
            or heads.TOKEN in raw
            or not (raw := raw.rsplit("\r", 1)[-1] if not raw.endswith("\r") else raw.strip("\r"))
        ):
            continue
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
        values = _NUMBER.findall(text)
        key = (name, _NUMBER.sub("#", text))
        entry = seen.get(key)
        if entry is None:
            if per_label.get(name, 0) >= _SHAPES:
                continue
            per_label[name] = per_label.get(name, 0) + 1
            seen[key] = [1, values, number, raw, rank, label.host]
        else:
            entry[0] += 1
            entry[1:4] = [values, number, raw]
    for (name, shape), (n, values, number, raw, rank, host) in seen.items():
        place = host
        if place is None and rank is not None:
            place = ranks.place(Head(None, None, None, None, None, heads.NO_LABEL._replace(rank=rank), True))
        ref = facts.evidence(file, number, prefixes.clean(raw))
        yield Progress(name, rank, place, shape, n, " ".join(values) or None, number, ref)
