"""The file of a run of Weights & Biases, `run-ID.wandb`, which is all that an offline run leaves (wandb 0.10 to 0.31).

Records are framed as in LevelDB's log: blocks of 32 KiB, in which each piece of a record has a checksum (4 bytes), a length (2) and
a type (1: whole, first, middle, last). A record is a message `Record` of wandb_internal.proto, of which few fields are decoded here.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProcessEnd
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.collected.value_rows import ValueRows
from nccl_doctor.formats.gpu.columns import wandb_column
from nccl_doctor.formats.gpu.sample_totals import Gpu
from nccl_doctor.formats.training.metrics import number, rank_of, setting_of
from nccl_doctor.formats.training.record_series import RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.inputs.streams import Readable

_BLOCK = 32_768
_HEAD = struct.Struct("<IHB")  # of a piece: checksum, length, type
_FILE_HEAD = 7  # bytes: `:W&B`, 0xBEE1, version
_WHOLE, _FIRST, _LAST = 1, 2, 4
_LARGEST = 8 << 20  # bytes of a record; tables and pictures are files of their own
_HISTORY, _STATS, _RUN, _EXIT = 2, 7, 17, 18  # fields of Record
_ITEMS = {_HISTORY: 1, _STATS: 3}  # field -> its field of items
_KEY, _NESTED, _JSON = 1, 2, 16  # fields of an item
_STAMP = 2  # of StatsRecord
_MIB = 2.0**-20  # of a byte
_HOST, _CONFIG, _UPDATE = 13, 4, 1  # of RunRecord, ConfigRecord


class _Broken(Exception):
    """The file is cut or damaged; says where."""


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the steps, the metrics of the system, and the end of one run.

    Source: wandb `proto/wandb_internal.proto`; as text:

        history { item { key: "train/loss" value_json: "2.5" } item { key: "_step" value_json: "12" } }
        exit { exit_code: 1  runtime: 31 }
    """
    facts.mark_covered("throughput_run", "step", "scalar", "process_end")
    run = _Run()
    records, note = 0, None
    try:
        for data in _records(stream):
            records += 1
            run.record(data, records)
    except _Broken as problem:
        note = f"{problem} behind record {records:,}"
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(run.series.rows(facts, name, first, run.settings))
    run.gpus.flush()
    if run.gpus.samples.gpus:
        run.gpus.samples.write(facts, name, "wandb", of_job=False)
    if run.end is not None:
        code, text, at = run.end
        if code:
            ref = facts.evidence(name, at, text)
            facts.add([ProcessEnd(run.host, None, None, None, code, None, "wandb", None, None, 1, None, ref)])
    elif note is None:
        note = "has no record of its end: the run was killed, or it still runs"
    return Reading(records, run.understood, note)


def _records(stream: Readable) -> Iterator[bytes]:
    """The messages of a file. Raises _Broken."""
    rest = _FILE_HEAD
    parts: list[bytes] = []
    while block := _filled(stream):
        at, rest = rest, 0
        while at + _HEAD.size <= len(block):
            check, length, kind = _HEAD.unpack_from(block, at)
            if not check and not length and not kind:  # filled up to the next block
                break
            at += _HEAD.size
            piece = block[at : at + length]
            if len(piece) < length:
                raise _Broken("ends in the middle of a record")
            if zlib.crc32(piece, zlib.crc32(bytes([kind]))) != check or not _WHOLE <= kind <= _LAST:
                raise _Broken("is damaged")
            at += length
            parts = [piece] if kind in (_WHOLE, _FIRST) else [*parts, piece]
            if kind in (_WHOLE, _LAST):
                yield b"".join(parts)
                parts = []
            elif sum(map(len, parts)) > _LARGEST:
                raise _Broken(f"holds a record of more than {_LARGEST >> 20} MiB")
    if parts:
        raise _Broken("ends in the middle of a record")


def _filled(stream: Readable) -> bytes:
    """The next block, shorter only at the end."""
    data = stream.read(_BLOCK)
    while len(data) < _BLOCK and (more := stream.read(_BLOCK - len(data))):
        data += more
    return data


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message of protocol buffers; a number of fixed size as its bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _Broken("is damaged")
        if at + size > len(message):
            raise _Broken("is damaged")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise _Broken("is damaged")


def _messages(message: bytes, field: int) -> Iterator[bytes]:
    return (value for known, value in _fields(message) if known == field and isinstance(value, bytes))


def _items(message: bytes, field: int) -> dict[str, Any]:
    """The numbers and texts of the items in a field of a message, by their keys."""
    found: dict[str, Any] = {}
    for item in _messages(message, field):
        keys: list[str] = []
        text = b""
        for known, value in _fields(item):
            if known in (_KEY, _NESTED) and isinstance(value, bytes):
                keys.append(value[:200].decode("utf-8", "replace"))
            elif known == _JSON and isinstance(value, bytes):
                text = value
        if len(text) < 1000 and text[:1] not in (b"{", b"["):
            try:
                found[".".join(filter(None, keys))] = json.loads(text)
            except ValueError:
                continue
    return found


def _moment(stamp: bytes) -> float:
    """Seconds since the epoch of a `google.protobuf.Timestamp`; 0 where it is none."""
    parts = {field: value for field, value in _fields(stamp) if isinstance(value, int)}
    seconds = parts.get(1, 0)
    return seconds + parts.get(2, 0) / 1e9 if seconds < 1 << 40 else 0.0


class _Run:
    """One run while it is read."""

    def __init__(self) -> None:
        self.gpus = ValueRows()
        self.series = RecordSeries()
        self.settings = Settings()
        self.understood = 0
        self.host: str | None = None
        self.end: tuple[int, str, int] | None = None  # exit status, text, record

    def record(self, data: bytes, place: int) -> None:
        """Take one record."""
        for field, value in _fields(data):
            if not isinstance(value, bytes) or field not in (_HISTORY, _STATS, _RUN, _EXIT):
                continue
            self.understood += 1
            if field == _RUN:
                self._settings(value)
            elif field == _EXIT:
                code = next((known for number_, known in _fields(value) if number_ == 1 and isinstance(known, int)), 0)
                self.end = code & 0xFF, f"exit {{ exit_code: {code} }}", place
            else:
                when = next(_messages(value, _STAMP), b"") if field == _STATS else b""
                self._numbers(field, _items(value, _ITEMS[field]), place, _moment(when))

    def _numbers(self, field: int, data: dict[str, Any], place: int, moment: float) -> None:
        text = json.dumps(data)[:600].encode()
        if field == _STATS:
            self._gpus(data, moment, place, text.decode())
            self.series.scalars.note_scalars(
                {f"system/{name}": value for name, value in data.items()}, None, (text, place)
            )
            return
        step, when = number(data.get("_step")), number(data.get("_timestamp"))
        when = when if when is not None else number(data.get("_runtime"))
        self.series.scalars.note_scalars(data, step, (text, place))
        self.series.record("wandb", None if step is None else int(step), when, data, (text, place))

    def _gpus(self, data: dict[str, Any], moment: float, place: int, text: str) -> None:
        """Take samples of GPUs; one process of each node keeps those of the node."""
        for key, value in data.items():
            named, found = wandb_column(key), number(value)
            if named is not None and found is not None:
                gpu, column = named
                at = moment if moment > 0 else float(place)
                self.gpus.add(
                    self.gpus.slot(Gpu(self.host, gpu)),
                    at,
                    column,
                    found * (_MIB if column == "memory" else 1.0),
                    place,
                    text,
                )

    def _settings(self, run: bytes) -> None:
        host = next(_messages(run, _HOST), b"").decode("utf-8", "replace")
        self.host = host[:253] or None
        for config in _messages(run, _CONFIG):
            values = _items(config, _UPDATE)
            self.settings.world = self.settings.world or setting_of(values, gpus=True)
            self.settings.batch = self.settings.batch or setting_of(values, gpus=False)
            if self.series.rank is None:
                self.series.rank = rank_of(values, self.settings.world)
