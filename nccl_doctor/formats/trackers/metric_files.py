"""Files that hold the values of one metric, or of each metric apart: those of DVCLive, of Sacred and of Megatron-LM's tests."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import zip_longest
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProcessEnd
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.training.metrics import is_speed
from nccl_doctor.formats.training.record_series import RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, lines, read_head

_LARGEST = 64 << 20  # bytes of a file of Sacred
_LOSS = re.compile(r"(?i)(?:^|[/_.-])(?:train(?:ing)?[/_.-])?loss$")
_OTHER_LOOP = re.compile(r"(?i)val|eval|test")
_PATH = re.compile(r"/plots/metrics/(.{1,200})\.tsv$")
_MILLISECONDS = 1e11  # a time beyond is no number of seconds
_ENDED_BADLY = ("FAILED", "INTERRUPTED", "DIED")
_MOST_STEP = 1 << 62
_DIGITS = 19  # of a step


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the values of one file; the name of a metric says whether it is a speed, else the time between two losses is that of the steps.

    Source: DVCLive 3 (`dvclive/plots/metrics/NAME.tsv`), Sacred 0.8 (`metrics.json` and `run.json` of a FileStorageObserver),
    Megatron-LM `tests/functional_tests/python_test_utils` (values of TensorBoard by their step, before 2025 a list)::

        step	step_time
        0	0.020201603626092104
        {"train.loss": {"steps": [0, 1], "timestamps": ["2026-11-20T08:00:00", …], "values": [5.0, 4.9]}}
        {"iteration-time": {"start_step": 1, "end_step": 50, "step_interval": 5, "values": {"1": 4.7, "5": 0.21, …}}}
    """
    facts.mark_covered("throughput_run", "step", "scalar")
    head = read_head(stream, 1 << 12)
    stream = Joined(head, stream)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
        return _tsv(stream, name, facts)
    data = read_head(stream, _LARGEST)
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        return Reading(count, 0, f"is no complete JSON: {str(error)[:100]}")
    if not isinstance(top, dict):
        return Reading(count, 0)
    if isinstance(top.get("experiment"), dict):
        return Reading(count, _end(top, name, facts))
    return Reading(count, _values(top, name, facts))


def _tsv(stream: Readable, name: str, facts: Facts) -> Reading:
    found = _PATH.search(name.replace("\\", "/"))
    series = RecordSeries()
    metric, columns = "", list[str]()
    number = understood = 0
    note = None
    for number, line in lines(stream):
        cells = line.rstrip("\r\n").split("\t")
        if not columns:
            columns, metric = cells[:-1], found[1] if found is not None else cells[-1][:200]
            continue
        told = dict(zip(columns, cells, strict=False))
        step, value = _number(told.get("step", "")), _number(cells[-1])
        if len(cells) != len(columns) + 1 or step is None or value is None:
            note = f"line {number:,} is cut or damaged" if line.strip() else note
            continue
        when = _number(told.get("timestamp", ""))
        _take(series, "dvclive", step, _seconds(when), {metric: value}, (line[:600].encode(), number))
        understood += 1
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(series.rows(facts, name, first, Settings()))
    return Reading(number, understood, note)


def _values(top: dict[str, Any], name: str, facts: Facts) -> int:
    """Take the values of each step together; lists differ in length where the file was written while the job ran."""
    by_step: dict[float, tuple[float | None, dict[str, float]]] = {}
    used = 0
    for metric, kept in top.items():
        for step, when, value in _points(kept):
            number, found = finite(step), finite(value)
            if number is not None and found is not None:
                by_step.setdefault(number, (_moment(when), {}))[1][str(metric)[:200]] = found
                used += 1
    series = RecordSeries()
    tool = (
        "megatron-values" if any(isinstance(kept, dict) and "start_step" in kept for kept in top.values()) else "sacred"
    )
    for step, (when, data) in sorted(by_step.items(), key=lambda item: item[0]):
        _take(series, tool, step, when, data, (json.dumps({"step": step, **data})[:600].encode(), 1))
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(series.rows(facts, name, first, Settings()))
    return used


def _points(kept: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(step, time, value) of what is kept of one metric; None where one is missing."""
    if not isinstance(kept, dict):
        return
    values = kept.get("values")
    first, stride = kept.get("start_step"), kept.get("step_interval")
    if isinstance(first, int):
        if isinstance(values, dict):
            yield from (
                (int(step), None, value) for step, value in values.items() if step.isdecimal() and len(step) < _DIGITS
            )
        elif isinstance(values, list) and isinstance(stride, int):
            yield from ((first + stride * at, None, value) for at, value in enumerate(values))
        return
    lists = [kept.get(key) for key in ("steps", "timestamps", "values")]
    yield from zip_longest(*(one if isinstance(one, list) else [] for one in lists))


def _end(run: dict[str, Any], name: str, facts: Facts) -> int:
    """What `run.json` says of the end of the run."""
    status = run.get("status")
    if status not in _ENDED_BADLY:
        return 0
    host = run["host"].get("hostname") if isinstance(run.get("host"), dict) else None
    ref = facts.evidence(name, 1, f"status: {status}")
    facts.add(
        [
            ProcessEnd(
                host if isinstance(host, str) else None,
                None,
                None,
                None,
                None,
                None,
                "sacred",
                None,
                None,
                1,
                None,
                ref,
            )
        ]
    )
    return 1


def _take(
    series: RecordSeries, tool: str, step: float, when: float | None, data: dict[str, float], place: tuple[bytes, int]
) -> None:
    series.scalars.note_scalars(data, step, place)
    timed = any(is_speed(key) or (_LOSS.search(key) is not None and not _OTHER_LOOP.search(key)) for key in data)
    if timed and abs(step) < _MOST_STEP:
        series.record(tool, int(step), when, data, place)


def _number(text: str) -> float | None:
    try:
        return finite(float(text))
    except ValueError:
        return None


def _seconds(when: float | None) -> float | None:
    return None if when is None else when / 1000 if when > _MILLISECONDS else when


def _moment(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
