"""Records of trackers that hold one number each, with its name, step and time: offline runs of Comet, ClearML and Neptune."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.metrics import is_speed, number
from nccl_doctor.formats.training.record_series import RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable

_DEEPEST = 4  # levels below which nothing is looked for
_MILLISECONDS = 1e11  # a time beyond is no number of seconds
_LARGEST_STEP = 1 << 62
_LOSS = re.compile(r"(?i)(?:^|[/_. -])(?:train(?:ing)?[/_. -])?loss(?:[/_. -]train(?:ing)?)?$")
_OTHER_LOOP = re.compile(r"(?i)val|eval|test")
_OF_MACHINE = re.compile(r"(?i)^:?(?:sys|system|monitor|monitoring)[:/.]")
_VALUES = ("value", "metricValue")
_STEPS = ("step", "iter", "iteration")
_TIMES = ("ts", "local_timestamp", "timestamp", "at")
_NAMES = ("metricName", "name", "key", "tag")
_TRACKERS = {"payload": "comet", "task": "clearml", "obj": "neptune"}  # a key that its records have


class Event(NamedTuple):
    """One number of a run."""

    name: str
    value: float  # may be no number
    step: int | None
    when: float | None  # seconds since the epoch


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the records of one run; a line holds one or a list of them.

    Source: files that comet_ml 3.58 (`messages.json` in the ZIP of an OfflineExperiment), clearml 2.1 (`metrics.jsonl` of a task
    with `Task.set_offline(True)`) and neptune 1.14 (`data-1.log` with `mode="offline"`) wrote. Where no name is that of a speed,
    the time between two values of the loss is that of the steps::

        {"payload":{"local_timestamp":1766400001353,"metric":{"metricName":"step_time","metricValue":0.12,"step":5}},"type":"metric_msg"}
        [{"timestamp": 1766400001353, "task": "offline-1", "iter": 5, "metric": "loss", "variant": "train", "value": 1.0}, …]
        {"obj": {"type": "LogFloats", "path": ["train", "loss"], "values": [{"value": 0.1, "step": 41, "ts": 1766400001.35}]}, …}
    """
    facts.mark_covered("throughput_run", "step", "scalar")
    run = _Run()
    lines = 0
    broken = 0
    note = None
    for block in blocks(stream):
        for lines, line in enumerate(block.data.split(b"\n"), block.first):
            if not line or line.isspace():
                lines -= 1
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                broken += 1
                note = f"{broken} records are cut or damaged, the last in line {lines:,}"
                continue
            run.take(record, (line[:600], lines))
    run.step_ends()
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(run.series.rows(facts, name, first, Settings()))
    return Reading(lines, run.understood, note)


class _Run:
    """One run while it is read: the numbers of a step are one record."""

    def __init__(self) -> None:
        self.series = RecordSeries()
        self.understood = 0
        self._tool = "tracker"
        self._step: int | None = None
        self._when: float | None = None
        self._data: dict[str, float] = {}
        self._place = (b"", 0)

    def take(self, record: Any, place: tuple[bytes, int]) -> None:
        """Take what a line holds."""
        one = record[0] if isinstance(record, list) and record else record
        for key, tool in _TRACKERS.items() if isinstance(one, dict) and self._tool == "tracker" else ():
            self._tool = tool if key in one else self._tool
        for event in events(record):
            self.understood += 1
            text = json.dumps(event._asdict()).encode() if isinstance(record, list) else place[0]
            if event.step != self._step or event.name in self._data:
                self.step_ends()
            if not self._data:
                self._step, self._when, self._place = event.step, event.when, (text, place[1])
            self._data[event.name] = event.value

    def step_ends(self) -> None:
        """Take the numbers of a step."""
        data, self._data = self._data, {}
        if not data:
            return
        self.series.scalars.note_scalars(data, self._step, self._place)
        if self._step is None or abs(self._step) >= _LARGEST_STEP:
            return
        own = {key: value for key, value in data.items() if not _OF_MACHINE.search(key)}
        if any(is_speed(key) or (_LOSS.search(key) and not _OTHER_LOOP.search(key)) for key in own):
            self.series.record(self._tool, self._step, self._when, own, self._place)


def events(record: Any, name: str = "", when: float | None = None, depth: int = 0) -> Iterator[Event]:
    """The numbers in a record; a name and a time count for all that is inside."""
    if depth > _DEEPEST:
        return
    if isinstance(record, list):
        for one in record:
            yield from events(one, name, when, depth + 1)
    elif isinstance(record, dict):
        name = _name(record) or name
        when = next((time for key in _TIMES if (time := _seconds(record.get(key))) is not None), when)
        value = next((record[key] for key in _VALUES if isinstance(record.get(key), int | float)), None)
        value = None if isinstance(value, int) and abs(value) >= _LARGEST_STEP else value  # more than a float holds
        if name and value is not None and not isinstance(value, bool):
            step = next((known for key in _STEPS if (known := number(record.get(key))) is not None), None)
            yield Event(name, float(value), None if step is None else int(step), when)
            return
        for inner in record.values():
            if isinstance(inner, dict | list):
                yield from events(inner, name, when, depth + 1)


def _name(record: Mapping[str, Any]) -> str:
    """What a record calls its number: a name, the parts of a path, or a metric and its variant."""
    path = record.get("path")
    if isinstance(path, list) and path and all(isinstance(part, str) for part in path):
        return "/".join(path)[:200]
    metric, variant = record.get("metric"), record.get("variant")
    if isinstance(metric, str):
        return f"{metric}/{variant}"[:200] if isinstance(variant, str) else metric[:200]
    return next((named[:200] for key in _NAMES if isinstance(named := record.get(key), str)), "")


def _seconds(value: Any) -> float | None:
    when = number(value) if isinstance(value, int | float) else None
    return None if when is None else when / 1000 if when > _MILLISECONDS else when
