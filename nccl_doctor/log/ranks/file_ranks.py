"""The rank that wrote a file of its own: launchers give each rank a file, in which most lines do not say whose they are."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.log.channel_counts import Origin
from nccl_doctor.log.ranks.rank_map import RankMap

# `rank.03/stdout` (mpirun and horovodrun --output-filename), `run_rank3.log` (deepspeed --enable_each_rank_log)
_NAMED = compiled(r"(?i)(?<![a-z])(?<!local[._-])(?<!node[._-])(?<!group[._-])rank[._-]?(\d{1,7})(?!\d)")
_ELASTIC = compiled(r"(.*)(?:^|/)attempt_\d{1,6}/(\d{1,5})/(?:stdout|stderr)\.log(?:\.\w{1,4})?$")  # torchrun --log-dir


class Writer(NamedTuple):
    """Whose lines those of a file are that do not say it."""

    host: str | None
    rank: int


def writers(origins: Mapping[str, Iterable[Origin]], ranks: RankMap) -> dict[str, Writer]:
    """Which files of a job (name -> the processes of their lines) are of one rank each.

    A name counts where the lines that do name a rank agree with it. The folders of torchrun count local ranks: any line of a node
    tells its first rank. Files without such names count where each of the job's ranks has a file of its own.
    """
    said = {file: {one.rank for one in own if one.rank is not None} for file, own in origins.items()}
    hosts = {file: {one.host for one in own if one.host is not None} for file, own in origins.items()}
    found = _named(said) or _elastic(said) or _alone(said, max(ranks.size.values(), default=0))
    return {
        file: Writer(next(iter(hosts[file])) if len(hosts[file]) == 1 else ranks.host_of_rank(rank), rank)
        for file, rank in found.items()
    }


def _named(said: Mapping[str, set[int]]) -> dict[str, int]:
    found = {file: int(match[1]) for file in said if (match := _of_name(file)) is not None}
    return found if all(said[file] <= {rank} for file, rank in found.items()) else {}


def _of_name(file: str) -> re.Match[str] | None:
    """The number of a rank in the name of a file or of its folder; the last one of several."""
    return max(_NAMED.finditer("/".join(file.rsplit("/", 2)[-2:])), key=re.Match.start, default=None)


def _elastic(said: Mapping[str, set[int]]) -> dict[str, int]:
    nodes: dict[str, dict[str, int]] = defaultdict(dict)
    for file in said:
        if (match := _ELASTIC.match(file)) is not None:
            nodes[match[1]][file] = int(match[2])
    found: dict[str, int] = {}
    for files in nodes.values():
        firsts = {rank - local for file, local in files.items() for rank in said[file]}
        if len(firsts) == 1 and (first := next(iter(firsts))) >= 0:
            found |= {file: first + local for file, local in files.items()}
    return found


def _alone(said: Mapping[str, set[int]], nranks: int) -> dict[str, int]:
    telling = [(file, own) for file, own in said.items() if own]
    found = {file: next(iter(own)) for file, own in telling if len(own) == 1}
    return found if 1 < nranks == len(found) == len(telling) == len(set(found.values())) else {}
