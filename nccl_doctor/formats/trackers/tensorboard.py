"""Event files of TensorBoard, as torch.utils.tensorboard, tensorboardX, Lightning, the Hugging Face Trainer and JAX write them.

Records are framed as in TensorFlow's `core/lib/io/record_writer.cc`: length (8 bytes, little endian), its masked CRC (4 bytes),
a message `Event`, its CRC (4 bytes). The messages are decoded by tensorboardX, which is an extra.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.metrics import is_speed
from nccl_doctor.formats.training.record_series import At, RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.inputs.streams import Readable

if TYPE_CHECKING:
    from collections.abc import Callable

MISSING = "needs tensorboardX: pip install 'nccl-doctor[tensorboard]'"
_LARGEST = 1 << 20  # bytes of a record that is decoded; larger ones are pictures, graphs and embeddings
_TIMED = 32  # names of which the time between two values is kept, for files without a time or rate
_TOGETHER = 1024  # values of a name, or steps, that are added at once
_TAGS = 1000  # names whose values wait
_FLOATS = {1: ("<f", 4), 2: ("<d", 8)}  # DT_FLOAT, DT_DOUBLE of a tensor


class _Broken(Exception):
    """The file is cut or damaged; says where."""


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
    facts.mark_covered("throughput_run", "step", "scalar")
    run = _Run()
    records, note = 0, None
    try:
        for data in _records(stream, lru_cache(256)(masked_crc32c)):  # records have few different lengths
            records += 1
            if data is not None:
                run.event(_parsed(Event, data, records), records)
    except _Broken as problem:
        note = str(problem)
    run.end()
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(run.best.rows(facts, name, first, Settings()))
    return Reading(records, run.scalars, note)


def _records(stream: Readable, crc: "Callable[[bytes], int]") -> Iterator[bytes | None]:
    """The messages of a file; None for one that is too large to be decoded. Raises _Broken."""
    buffer, number = _Buffer(stream), 0
    while head := buffer.take(12):
        number += 1
        if len(head) < 12:
            raise _Broken(f"ends in the middle of record {number:,}")
        length, check = struct.unpack("<QI", head)
        if crc(head[:8]) != check:
            raise _Broken(f"is damaged from record {number:,} on: the length of the record does not fit its checksum")
        whole = buffer.skip(length + 4) if length > _LARGEST else buffer.take(length + 4)
        if whole is not None and len(whole) < length + 4:
            raise _Broken(f"ends in the middle of record {number:,}")
        yield whole[:length] if whole is not None else None


class _Buffer:
    """Takes exact numbers of bytes from a stream, fewer at its end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        while len(self._data) - self._at < size and (more := self._stream.read(max(size, 1 << 20))):
            self._data, self._at = self._data[self._at :] + more, 0
        self._at += size
        return self._data[self._at - size : self._at]

    def skip(self, size: int) -> bytes | None:
        """None, or b"" where the stream ends before."""
        while size > 0:
            data = self.take(min(size, 1 << 20))
            if not data:
                return b""
            size -= len(data)
        return None


def _parsed(event: Any, data: bytes, number: int) -> Any:
    try:
        return event.FromString(data)
    except Exception as error:  # DecodeError, a class of protobuf
        raise _Broken(f"is damaged in record {number:,}: {type(error).__name__}") from None


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

    def event(self, event: Any, record: int) -> None:
        """Take one record."""
        for value in event.summary.value:
            number = _scalar(value)
            if number is not None:
                self._take(value.tag[:200], event.step, event.wall_time, number, record)

    def _take(self, name: str, step: int, when: float, value: float, record: int) -> None:
        self.scalars += 1
        tag = self._tags.get(name)
        if tag is None:
            tag = _Tag(name)
            if len(self._tags) < _TAGS:
                self._tags[name] = tag
        tag.values.append(value)
        tag.steps.append(step)
        tag.records.append(record)
        if tag.is_speed:
            self._has_speed = True
            if not self._steps or self._steps[-1][0] != step:
                if len(self._steps) >= _TOGETHER:
                    self._flush_steps()
                self._steps.append((step, when, record, {}))
            self._steps[-1][3][name] = value
        elif not self._has_speed:
            known = self._timed.get(name)
            if known is None and len(self._timed) < _TIMED:
                known = self._timed[name] = RecordSeries(), [0]
            if known is not None:
                known[1][0] += 1
                known[0].record("tensorboard", step, when, {}, tag.place(-1))
        if len(tag.values) >= _TOGETHER or len(self._tags) >= _TAGS:
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
