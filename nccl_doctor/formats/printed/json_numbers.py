"""Rates and times in JSON, by their keys: in records of a line, and in a whole document of results."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.printed.units import kind_of, rate_in, unit_in
from nccl_doctor.formats.training.metrics import number
from nccl_doctor.inputs.exports.text_places import Places

_KEYS = 200  # of one record
_DEEP = 3
_TITLES = ("columns", "header", "headers")  # how the key of the titles of a table ends
_COLUMNS = 40
_OF_DOCUMENT = 20_000  # values that are looked at
_DEEPEST = 12
_NAMED = (("metric_name", "metric_value", "metric_unit"), ("metric", "value", "unit"), ("name", "value", "unit"))
_DECIMAL = compiled(r"\d{1,12}\.\d{1,12}")
_MEANS = ("avg", "mean", "average")
_UNITS = ("unit", "units")
_FAILED = frozenset(("fail", "failed", "error"))
_VALUES = frozenset(value for _, value, _ in _NAMED)


class Told(NamedTuple):
    """A number of a document."""

    name: str
    unit: str
    value: float
    line: int  # from 1


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


def numbers_of_document(data: bytes) -> list[Told] | None:
    """The rates and times of a JSON document in its order, and None for any other text.

    An object that names a measure, its value and its unit tells one number of that name, and one with a unit beside nothing but
    numbers all of these. All other numbers are named by the key of theirs and of the object around it; of an object with the
    statistics of one measure the mean is told::

        {"results": {"matmul": {"metric_name": "tflops", "metric_value": 74.3, "metric_unit": "TFLOPS"}}}
        {"request_latency": {"unit": "ms", "avg": 812.5, "p99": 1290.0}, "tokens_per_second": {"successful": {"mean": 431.0, "max": 455.0}}}
        {"Render/3D": {"busy": 96.1, "sema": 0.0, "unit": "%"}}
        {"all_reduce": [{"size_mb": 1, "busbw_gbps": 39.9}, {"size_mb": 10, "busbw_gbps": 203.2}]}
        {"columns": ["size", "busbw (GB/s)"], "data": [[1024, 0.31], [2048, 0.60]]}
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict | list):
        return None
    lines = Places(data.decode("utf-8", "replace"))
    told: list[Told] = []
    waiting: list[_Part] = [_Part("", "", document, 0, is_key=False)]
    for _ in range(_OF_DOCUMENT):
        if not waiting:
            break
        above, key, value, depth, is_key = waiting.pop()
        line = lines.of(f'"{key}"') if is_key else lines.number
        if isinstance(value, list) and depth < _DEEPEST:
            inner = [_Part(above, key, one, depth + 1, is_key=False) for one in value if isinstance(one, dict | list)]
            waiting += inner[::-1]
        elif isinstance(value, dict) and depth < _DEEPEST:
            if (measure := _measure(value)) is not None:
                told.append(Told(f"{key} {measure[0]}".strip()[:60], measure[2], measure[1], line))
            elif (mean := _mean(above, key, value)) is not None:
                told.append(Told(*mean, line))
                continue
            elif readings := _readings(key, value):
                told += [Told(*reading, line) for reading in readings]
                continue
            told += [Told(*one, line) for one in _columns(value)]
            inner = [
                _Part(key, str(of), one, depth + 1, is_key=True)
                for of, one in value.items()
                if (measure is None or of not in _VALUES)
                and not (of == "total" and isinstance(value.get("successful"), dict))
            ]
            waiting += inner[::-1]
        elif kind_of(key, "") is not None and (found := _told(value)) is not None:
            told.append(Told(f"{above}.{key}".strip(".")[:60], unit_in(key), found, line))
    return told


def _told(value: Any) -> float | None:
    """A number, also where it was written as text with decimals."""
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) is not None else finite(value)


class _Part(NamedTuple):
    """A value of a document that was not looked at yet."""

    above: str  # the key of the object around it
    key: str  # its own, or that of the list that holds it
    value: Any
    depth: int
    is_key: bool  # whether the key stands in front of it


def _columns(record: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(title, unit, value) of the rates and times of an object with titles and rows, as pandas writes with `orient="split"`."""
    titles = next((of for key, of in record.items() if key.lower().endswith(_TITLES) and _are_titles(of)), None)
    if titles is None:
        return
    kept = [(at, title[:60]) for at, title in enumerate(titles) if kind_of(title, rate_in(title)) is not None]
    for rows in record.values():
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, list) and len(row) == len(titles):
                for at, title in kept:
                    if (value := finite(row[at])) is not None:
                        yield title, rate_in(title) or unit_in(title), value


def _are_titles(value: Any) -> bool:
    return isinstance(value, list) and 2 <= len(value) <= _COLUMNS and all(isinstance(one, str) for one in value)


def _mean(above: str, key: str, record: dict[str, Any]) -> tuple[str, str, float] | None:
    """Name, unit and mean of an object that holds the statistics of one measure, which its key or the key above names."""
    value = next((found for of in _MEANS if (found := finite(record.get(of))) is not None), None)
    if value is None or finite(record.get("count")) == 0:
        return None
    unit = next((record[of] for of in _UNITS if isinstance(record.get(of), str)), "")
    if unit and kind_of(key, unit) is not None:
        return key[:60], unit[:20], value
    named = next((name for name in (key, above) if kind_of(name, "") is not None), None)
    if unit or named is None:
        return None
    return (f"{above}.{key}" if named == above else key)[:60], unit_in(named), value


def _readings(key: str, record: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Name, unit and value of the numbers of an object that has nothing beside them but their unit, as `intel_gpu_top -J` prints it."""
    unit = record.get("unit")
    values = [(of, finite(one)) for of, one in record.items() if of != "unit"]
    if not isinstance(unit, str) or not unit or len(values) > _KEYS or not record.keys().isdisjoint(_MEANS):
        return []
    known = [(f"{key}.{of}".removesuffix(".value")[:60], unit[:20], value) for of, value in values if value is not None]
    return known if len(known) == len(values) else []


def _measure(record: dict[str, Any]) -> tuple[str, float, str] | None:
    """Name, value and unit of an object that tells one measure; the name says where the program counts it as failed."""
    status = record.get("status")
    said = f" ({status})" if isinstance(status, str) and status.lower() in _FAILED else ""
    for name, value, unit in _NAMED:
        told, found, of = record.get(name), finite(record.get(value)), record.get(unit)
        if isinstance(told, str) and found is not None and isinstance(of, str):
            return told + said, found, of
    return None
