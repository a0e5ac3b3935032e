"""The ranks in one record of a step: what it keeps of each in a list or an object of its own.

{"step": 3, "loss": 2.1, "gpus": [{"rank": 0, "step_time": 0.51}, {"rank": 1, "step_time": 0.92}]}
{"step": 3, "step_time_per_rank": [0.51, 0.92]}
{"step": 3, "ranks": {"0": {"step_time": 0.51}, "1": {"step_time": 0.92}}}
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_doctor.formats.training.metrics import meaning_of, number

MOST = 4096  # ranks of a record
_OF_RANKS = re.compile(r"(?i)(?:^|[_./-])(?:ranks?|gpus?|workers?|devices?|nodes?)(?:[_./-]|$)")
_NUMBERS = ("rank", "global_rank", "gpu", "gpu_id", "device", "index", "id", "worker", "local_rank")
_TIMES = re.compile(r"(?i)(?:^|[_./ -])(?:times?|durations?|seconds|secs?)(_ms|_s)?(?:[_-](?:per|by|of)[_-]ranks?)?$")
_DIGITS = re.compile(r"(?:rank|gpu|worker|device)?[_ -]?(\d{1,7})")


def of_ranks(record: Mapping[str, Any], steps: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """One record for each rank that a record tells of, each with the number of the step; `steps` are the keys that may hold it."""
    for key, value in record.items():
        if type(value) not in (list, dict) or not 2 <= len(value) <= MOST or not _OF_RANKS.search(key):
            continue
        own = {one: record[one] for one in steps if one in record}
        if isinstance(value, dict):
            numbered = [(rank, one) for name, one in value.items() if (rank := _rank_of(name)) is not None]
        else:
            numbered = [(_number_of(one, at), one) for at, one in enumerate(value)]
        for rank, one in numbered:
            if isinstance(one, dict):
                yield {**one, **own, "rank": rank}
            elif number(one) is not None and (name := _time_of(key)) is not None:
                yield {**own, "rank": rank, name: one}


def _time_of(key: str) -> str | None:
    """Under which name a number of each rank is a time or rate; None for another."""
    if (meaning := meaning_of(key)) is not None and meaning.what != "clock":
        return key
    found = _TIMES.search(key)
    return None if found is None else "step_time" + (found[1] or "")


def _number_of(one: Any, at: int) -> int:
    """The number by which an element of a list calls itself, else its place."""
    if isinstance(one, dict):
        for key in _NUMBERS:
            rank = _rank_of(str(one.get(key)))
            if rank is not None:
                return rank
    return at


def _rank_of(name: str) -> int | None:
    found = _DIGITS.fullmatch(name[:40].lower())
    return int(found[1]) if found is not None else None
