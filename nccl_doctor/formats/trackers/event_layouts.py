"""Where the numbers are in records of an event file that differ in nothing else: learned from tensorboardX, read with numpy.

Most records of a file have one of few layouts: the same names, and steps of as many bytes. The bytes that change when
tensorboardX writes an event with another time, step or value are those of that number; all others have to be equal.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

_MOST = 1_000  # layouts of a file that are tried
_ALIKE = 8  # records of one length from which on a layout is looked for
_VARINT_BITS = 7
_LARGEST_STEP = 1 << 63


class Columns(NamedTuple):
    """The values of one name in some records, in their order."""

    name: str
    record: Numbers  # which of the records that were given
    place: int  # among the values of a record
    step: Numbers
    when: Numbers
    value: Numbers

    def numbers(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Record, step, when, value."""
        return self.record, self.step, self.when, self.value

    def chosen(self, which: Numbers) -> "Columns":
        """The values that `which` says."""
        record, step, when, value = (column[which] for column in self.numbers())
        return Columns(self.name, record, self.place, step, when, value)


class Layout(NamedTuple):
    """Where the numbers of records are."""

    fixed: Numbers  # the bytes that records have in common, 0 elsewhere
    mask: Numbers  # which bits those are
    when: int  # the first of eight bytes
    step: tuple[int, int]  # the first of how many
    values: tuple[tuple[str, int], ...]  # names, and the first of four bytes

    def fits(self, rows: Numbers) -> Numbers:
        """Which records, given as rows of their bytes, have this layout."""
        fits: Numbers = ((rows & self.mask) == self.fixed).all(axis=1)
        return fits

    def columns(self, rows: Numbers, record: Numbers) -> list[Columns]:
        """What records of this layout say, given as rows of their bytes and their numbers."""
        first, size = self.step
        step = np.zeros(len(rows), np.int64)
        for at in range(size):
            step |= (rows[:, first + at] & 0x7F).astype(np.int64) << _VARINT_BITS * at
        when = _floats(rows, self.when, "<f8")
        return [
            Columns(name, record, place, step, when, _floats(rows, at, "<f4"))
            for place, (name, at) in enumerate(self.values)
        ]


def _floats(rows: Numbers, at: int, kind: str) -> Numbers:
    size = np.dtype(kind).itemsize
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return np.ascontiguousarray(rows[:, at : at + size]).view(kind)[:, 0].astype(float)


def layout_of(data: bytes, event_type: Any) -> Layout | None:
    """The layout of a record of scalars; None for others, and where tensorboardX would have written other bytes."""
    event = event_type.FromString(data)
    values = event.summary.value
    kinds = {value.WhichOneof("value") for value in values}
    if kinds != {"simple_value"} or not 0 <= event.step < _LARGEST_STEP or event.SerializeToString() != data:
        return None
    mask = np.full(len(data), 0xFF, np.uint8)

    def begin(change: Callable[[Any], None], size: int, bits: int) -> int:
        """Where the bytes are that a change of the event changes, so many or the first of so many; their `bits` stay as they are."""
        other = event_type.FromString(data)
        change(other)
        changed = other.SerializeToString()
        if len(changed) != len(data):
            raise ValueError
        differ = [at for at, pair in enumerate(zip(data, changed, strict=True)) if pair[0] != pair[1]]
        if differ not in ([*range(differ[0], differ[0] + size)], differ[:1]):
            raise ValueError
        mask[differ[0] : differ[0] + size] = bits
        return differ[0]

    def set_when(other: Any) -> None:
        other.wall_time = _flipped(event.wall_time, "<d")

    def set_step(other: Any) -> None:
        other.step = event.step - 1 if event.step % 128 == 127 else event.step + 1

    def set_value(at: int) -> Callable[[Any], None]:
        def set_it(other: Any) -> None:
            other.summary.value[at].simple_value = _flipped(values[at].simple_value, "<f")

        return set_it

    size = -(-event.step.bit_length() // _VARINT_BITS)
    try:
        when = begin(set_when, 8, 0)
        step = (begin(set_step, size, 0x80) if size else 0), size
        places = tuple((value.tag[:200], begin(set_value(at), 4, 0)) for at, value in enumerate(values))
    except (ValueError, IndexError):
        return None
    return Layout(np.frombuffer(data, np.uint8) & mask, mask, when, step, places)


def _flipped(value: float, kind: str) -> float:
    """A number of which each byte differs from that of another one."""
    return float(struct.unpack(kind, bytes(byte ^ 1 for byte in struct.pack(kind, value)))[0])


class Layouts:
    """The layouts of a file."""

    def __init__(self, event_type: Any) -> None:
        self._event_type = event_type
        self._by_size: dict[int, list[Layout]] = {}
        self._tried = 0

    def read(self, data: bytes, start: Numbers, size: Numbers) -> tuple[list[Columns], list[int]]:
        """What records say, given by where they begin in `data` and how long they are, and the records that need a decoder."""
        found: list[Columns] = []
        others: list[int] = []
        buffer = np.frombuffer(data, np.uint8)
        for length in np.unique(size).tolist():
            record = np.flatnonzero(size == length)
            if len(record) < _ALIKE or length == 0:
                others += record.tolist()
                continue
            rows = np.lib.stride_tricks.sliding_window_view(buffer, length)[start[record]]
            known = self._by_size.setdefault(length, [])
            at = 0
            while len(record) and (at < len(known) or self._learn(known, rows)):
                fits = known[at].fits(rows)
                found += known[at].columns(rows[fits], record[fits])
                rows, record, at = rows[~fits], record[~fits], at + 1
            others += record.tolist()
        return found, sorted(others)

    def _learn(self, known: list[Layout], rows: Numbers) -> bool:
        """Whether a layout of the first record was added."""
        if len(rows) < _ALIKE or self._tried >= _MOST:
            return False
        self._tried += 1
        try:
            layout = layout_of(rows[0].tobytes(), self._event_type)
        except Exception:  # DecodeError, a class of protobuf: who decodes the record says where it is
            return False
        if layout is not None:
            known.append(layout)
        return layout is not None
