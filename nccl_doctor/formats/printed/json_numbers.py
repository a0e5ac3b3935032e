"""Rates and times in a line of JSON, by their keys."""

import json
from collections.abc import Iterator

from nccl_doctor.formats.printed.units import kind_of, unit_in
from nccl_doctor.formats.training.metrics import number

_KEYS = 200  # of one record
_DEEP = 3


def numbers_of_record(line: bytes) -> Iterator[tuple[str, str, float]]:
    """(key, unit, value) of the numbers of a record that are rates or times: `latency_s`, `itl.p99_s`."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return
    waiting = [("", record, 0)]
    left = _KEYS
    while waiting and left > 0:
        name, value, depth = waiting.pop()
        left -= 1
        if isinstance(value, dict) and depth < _DEEP:
            inner = [(f"{name}.{key}" if name else str(key), one, depth + 1) for key, one in value.items()]
            waiting += inner[::-1]
        elif (
            name
            and (found := number(value)) is not None
            and not isinstance(value, str)
            and kind_of(name, "") is not None
        ):
            yield name[:60], unit_in(name), found
