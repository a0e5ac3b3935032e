"""Event files of TensorBoard, as torch.utils.tensorboard, tensorboardX, Lightning, the Hugging Face Trainer and JAX write them.

Records are framed as in TensorFlow's `core/lib/io/record_writer.cc`: length (8 bytes, little endian), its masked CRC (4 bytes),
a message `Event`, its CRC (4 bytes). The messages are decoded by tensorboardX, which is an extra.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import TrainingEvent
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.trackers.event_layouts import Columns, Layouts, Numbers
from nccl_doctor.formats.training.metrics import is_speed
from nccl_doctor.formats.training.record_series import At, RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.inputs.streams import Readable

MISSING = "needs tensorboardX: pip install 'nccl-doctor[tensorboard]'"
_BLOCK = 1 << 20
_LARGEST = 1 << 20  # bytes of a record that is decoded; larger ones are pictures, graphs and embeddings
_LENGTHS = 1 << 12  # lengths of records whose checksum is remembered
_LENGTH, _CHECK = 8, 4  # bytes of the length of a record, and of a checksum
_HEAD = struct.Struct("<QI")
_TIMED = 32  # names of which the time between two values is kept, for files without a time or rate
_TOGETHER = 1024  # values of a name, or steps, that are added at once
_TAGS = 1000  # names whose values wait
_EVALUATED = re.compile(r"(?i)(?<![a-z])(?:eval(?:uation)?|val(?:id(?:ation)?)?|test)(?![a-z])")
_FEW = 4  # times as many values as an evaluation has the name with most of them, at least
_EVENTS = 2_000  # evaluations that are remembered
_FLOATS = {1: ("<f", 4), 2: ("<d", 8)}  # DT_FLOAT, DT_DOUBLE of a tensor


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the scalars of one event file.

    Source: tensorflow `core/util/event.proto`; as text:

        wall_time: 1721026805.97  step: 120  summary { value { tag: "train/step_time" simple_value: 0.31 } }
        wall_time: 1721026805.97  step: 120  summary { value { tag: "train/loss" simple_value: 2.5 } }
    """
    try:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c
    except ImportError:
        return Reading(0, 0, MISSING)
    facts.mark_covered("throughput_run", "step", "scalar", "training_event")
    run, layouts = _Run(), Layouts(Event)
    records, note = 0, None
    for part in _parts(stream, masked_crc32c):
        scalars, records, note = _decoded(part, layouts, Event)
        run.take(scalars)
        if note is not None:
            break
    run.end()
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(run.best.rows(facts, name, first, Settings()))
    facts.add(
        TrainingEvent(name, record, "evaluation", facts.evidence(name, record, text))
        for record, text in run.evaluations()
    )
    return Reading(records, run.scalars, note)


class _Part(NamedTuple):
    """Whole records of a file, without those that are too large to be decoded."""

    data: bytes
    start: list[int]
    size: list[int]
    number: list[int]  # counted from 1 in the file
    last: int  # number of the last one
    note: str | None  # how the file is cut or damaged behind them


def _parts(stream: Readable, crc: Callable[[bytes], int]) -> Iterator[_Part]:
    """The records of a file, many at once, up to its end or to where it is damaged."""
    checks: dict[int, int] = {}  # length -> its checksum: records have few different lengths
    data, number, note = b"", 0, None
    while note is None and (more := stream.read(_BLOCK)):
        data += more
        at, end = 0, len(data)
        starts, sizes, numbers = list[int](), list[int](), list[int]()
        while end - at >= _HEAD.size:
            length, check = _HEAD.unpack_from(data, at)
            if checks.get(length) != check:
                if crc(data[at : at + _LENGTH]) != check:
                    what = "the length of the record does not fit its checksum"
                    note = f"is damaged from record {number + 1:,} on: {what}"
                    break
                if len(checks) < _LENGTHS:
                    checks[length] = check
            start = at + _HEAD.size
            stop = start + length + _CHECK
            if stop > end and (length <= _LARGEST or not _skipped(stream, stop - end)):
                break
            number += 1
            at = stop
            if length <= _LARGEST:
                starts.append(start)
                sizes.append(length)
                numbers.append(number)
        yield _Part(data, starts, sizes, numbers, number, note)
        data = data[at:]
    if note is None and data:
        yield _Part(b"", [], [], [], number, f"ends in the middle of record {number + 1:,}")


def _skipped(stream: Readable, size: int) -> bool:
    """Pass over bytes of a stream; False where it ends before."""
    while size > 0 and (data := stream.read(min(size, _BLOCK))):
        size -= len(data)
    return size <= 0


def _decoded(part: _Part, layouts: Layouts, event_type: Any) -> tuple[list[Columns], int, str | None]:
    """The scalars of records by their numbers, up to the first that is damaged; its number, else that of the last one; a note."""
    found, others = layouts.read(part.data, np.array(part.start, np.int64), np.array(part.size, np.int64))
    number = np.array(part.number, np.int64)
    found = [columns._replace(record=number[columns.record]) for columns in found]
    rest: dict[tuple[str, int], list[tuple[int, int, float, float]]] = {}
    last, note = part.last, part.note
    for at in others:
        start = part.start[at]
        try:
            event = event_type.FromString(part.data[start : start + part.size[at]])
        except Exception as error:  # DecodeError, a class of protobuf
            last, note = part.number[at], f"is damaged in record {part.number[at]:,}: {type(error).__name__}"
            found = [columns.chosen(columns.record < last) for columns in found]
            break
        for place, value in enumerate(event.summary.value):
            scalar = _scalar(value)
            if scalar is not None:
                row = part.number[at], event.step, event.wall_time, scalar
                rest.setdefault((value.tag[:200], place), []).append(row)
    for (name, place), rows in rest.items():
        record, step, when, values = (np.array(column) for column in zip(*rows, strict=True))
        found.append(Columns(name, record, place, step, when, values))
    return found, last, note


def _scalar(value: Any) -> float | None:
    """The number of a summary: its own field, or a tensor with one element, as TensorFlow 2 writes it."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.tensor.dtype not in _FLOATS or len(value.tensor.tensor_shape.dim):
        return None
    form, size = _FLOATS[value.tensor.dtype]
    if len(value.tensor.tensor_content) == size:
        return float(struct.unpack(form, value.tensor.tensor_content)[0])
    values = value.tensor.float_val or value.tensor.double_val
    return float(values[0]) if len(values) == 1 else None


class _Tag:
    """The values of one name that wait."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_speed = is_speed(name)
        self.values: list[float] = []
        self.steps: list[int] = []
        self.records: list[int] = []

    def place(self, at: int) -> tuple[bytes, int]:
        return f"step {self.steps[at]}: {self.name} {self.values[at]:.6g}".encode(), self.records[at]


class _Rows(NamedTuple):
    """Scalars in the order of a file, in columns."""

    name: Numbers  # by its number
    step: Numbers
    when: Numbers
    value: Numbers
    record: Numbers

    def chosen(self, which: Numbers) -> Iterator[tuple[Any, ...]]:
        """Some of them, as numbers of Python."""
        return zip(*(column[which].tolist() for column in self), strict=True)


def _in_order(columns: list[Columns], names: dict[str, int]) -> _Rows:
    """The scalars of all columns."""
    sizes = [len(one.record) for one in columns]
    name, place = (
        np.repeat(of, sizes) for of in ([names[one.name] for one in columns], [one.place for one in columns])
    )
    record, step, when, value = map(np.concatenate, zip(*(one.numbers() for one in columns), strict=True))
    order = np.lexsort((place, record))
    return _Rows(*(column[order] for column in (name, step, when, value, record)))


class _Run:
    """The scalars of one file: those of a step that tell its speed belong together, although each is a record of its own."""

    def __init__(self) -> None:
        self.scalars = 0
        self.best = RecordSeries()  # with all scalars, and the steps by time or rate where the file has such names
        self._tags: dict[str, _Tag] = {}
        self._timed: dict[
            str, tuple[RecordSeries, list[int]]
        ] = {}  # name -> the steps by the time between its values, their number
        self._steps: list[tuple[int, float, int, dict[str, float]]] = []  # step, when, first record, values
        self._has_speed = False
        self._counts: Counter[str] = Counter()
        self._evaluated: dict[int, str] = {}  # records that tell a value of an evaluation, by their numbers -> name

    def evaluations(self) -> list[tuple[int, str]]:
        """Number and text of each record that tells a value of an evaluation which does not come with every step."""
        most = max(self._counts.values(), default=0)
        rare = {name for name, count in self._counts.items() if count * _FEW <= most}
        return [(record, name) for record, name in sorted(self._evaluated.items()) if name in rare]

    def _count(self, rows: _Rows, by_number: list[str]) -> None:
        for number, count in enumerate(np.bincount(rows.name, minlength=len(by_number)).tolist()):
            name = by_number[number]
            self._counts[name] += count
            if _EVALUATED.search(name) and len(self._evaluated) < _EVENTS:
                self._evaluated.update(dict.fromkeys(rows.record[rows.name == number].tolist(), name))

    def take(self, columns: list[Columns]) -> None:
        """Take the scalars of the next records."""
        columns = [one for one in columns if len(one.record)]
        if not columns:
            return
        names = {name: number for number, name in enumerate(dict.fromkeys(one.name for one in columns))}
        rows, by_number = _in_order(columns, names), list(names)
        self._count(rows, by_number)
        if not self._has_speed or len(self._tags) + len(names) >= _TAGS:
            for number, *scalar in rows.chosen(np.arange(len(rows.name))):
                self._take_one(by_number[number], *scalar)
            return
        self.scalars += len(rows.name)
        self._take_values(rows, by_number)
        speeds = np.array([is_speed(name) for name in by_number])
        self._take_speeds(rows.chosen(np.flatnonzero(speeds[rows.name])), by_number)

    def _take_one(self, name: str, step: int, when: float, value: float, record: int) -> None:
        self.scalars += 1
        tag = self._tag(name)
        tag.values.append(value)
        tag.steps.append(step)
        tag.records.append(record)
        if tag.is_speed:
            self._has_speed = True
            self._take_speeds([(0, step, when, value, record)], [name])
        elif not self._has_speed:
            known = self._timed.get(name)
            if known is None and len(self._timed) < _TIMED:
                known = self._timed[name] = RecordSeries(), [0]
            if known is not None:
                known[1][0] += 1
                known[0].record("tensorboard", step, when, {}, tag.place(-1))
        if len(tag.values) >= _TOGETHER or len(self._tags) >= _TAGS:
            self._flush(tag)

    def _tag(self, name: str) -> _Tag:
        tag = self._tags.get(name)
        if tag is None:
            tag = _Tag(name)
            if len(self._tags) < _TAGS:
                self._tags[name] = tag
        return tag

    def _take_speeds(self, scalars: Iterable[tuple[int, int, float, float, int]], names: list[str]) -> None:
        """Take scalars that tell the speed of their steps."""
        last, values = (self._steps[-1][0], self._steps[-1][3]) if self._steps else (None, {})
        for name, step, when, value, record in scalars:
            if step != last:
                if len(self._steps) >= _TOGETHER:
                    self._flush_steps()
                last, values = step, {}
                self._steps.append((step, when, record, values))
            values[names[name]] = value

    def _take_values(self, rows: _Rows, names: list[str]) -> None:
        """Take the values of each name; those of names that have many are added in the order in which they got them."""
        full = []
        order = np.argsort(rows.name, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(rows.name[order])) + 1)
        for which in sorted(parts, key=lambda which: int(which[0])):
            tag = self._tag(names[rows.name[which[0]]])
            missing = _TOGETHER - len(tag.values)
            tag.values += rows.value[which].tolist()
            tag.steps += rows.step[which].tolist()
            tag.records += rows.record[which].tolist()
            if len(which) >= missing:
                full.append((int(which[missing - 1]), tag))
        for _, tag in sorted(full, key=lambda one: one[0]):
            self._flush(tag)

    def _flush(self, tag: _Tag) -> None:
        """Add the values of a name."""
        self.best.scalars.note_values(tag.name, tag.values, tag.steps, tag.place)
        tag.values, tag.steps, tag.records = [], [], []

    def _flush_steps(self) -> None:
        def at(index: int) -> At:
            step, when, record, data = self._steps[index]
            shown = ", ".join(f"{name} {value:.6g}" for name, value in data.items())
            return At(step, when, (f"step {step}: {shown}".encode(), record))

        self.best.record_all("tensorboard", [data for _, _, _, data in self._steps], at)
        self._steps = []

    def end(self) -> None:
        """Add what waits; without a time or rate, take the steps of the name with the most values."""
        for tag in self._tags.values():
            if tag.values:
                self._flush(tag)
        self._flush_steps()
        if not self._has_speed and self._timed:
            steps, _ = max(self._timed.values(), key=lambda timed: timed[1])
            self.best.take_steps(steps)
