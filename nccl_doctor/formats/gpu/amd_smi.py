"""GPUs of AMD as `amd-smi metric`, `static` and `monitor` and `rocm-smi` show them: text, JSON or CSV, once or again and again."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from nccl_doctor.common import budgets
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AmdGpu, LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.amd_names import BLOCK, COLUMNS, COUNTERS, REASONS_AMD, SAMPLED
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, lines, read_head

_LARGEST_ANSWER = 64 << 20  # bytes of JSON
_GPUS_OF_A_FILE = 4096
_READINGS = 20_000  # that are added at once
_AMD_GPU = re.compile(r"GPU: (\d{1,4})\s*$")
_AMD_FIELD = re.compile(r"( {4,40})([A-Z][\w ]{0,60}):(?: (.{1,200}))?$")
_ROCM_LINE = re.compile(r"GPU\[(\d{1,4})\]\s{0,20}: ([^:]{2,80}?) ?: {1,4}(\S.{0,200})$")
_MONITOR_HEAD = re.compile(r"\s*(?:TIMESTAMP +)?GPU +(?:XCP +)?(?:[A-Z_]\S* +){2,40}[A-Z_]\S*\s*$")
_MONITOR_CELL = re.compile(
    r"N/A|-?\d{1,18}(?:\.\d{1,9})?(?:/\d{1,9}(?:\.\d{1,9})?)?(?: ?(?:°C|[A-Za-z%][A-Za-z%/]{0,5}))?"
)
_AMOUNT = re.compile(r"\(?(-?\d{1,18}(?:\.\d{1,9})?) ?(B|[KMG]i?B|[a-zA-Z°%/]{0,6})\)?")
_SCALES = {"B": 2.0**-20, "KB": 2.0**-10, "GB": 1024.0, "KiB": 2.0**-10, "GiB": 1024.0}

Fields = dict[str, tuple[Any, int, str]]  # path in small letters -> value, line, text of the line


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up every reading of a file.

    Source: amdsmi_cli/amdsmi_logger.py and amdsmi_commands.py of amd-smi 23 to 26, python_smi_tools/rocm_smi.py of ROCm 5 to 7::

        GPU: 0
            USAGE:
                GFX_ACTIVITY: 97 %
        GPU[0]          : GPU use (%): 97
        {"card0": {"GPU use (%)": "97", "Average Graphics Package Power (W)": "560.0"}}
    """
    reader = _Reader(name, facts)
    head = read_head(stream, 1 << 14)
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    body = Joined(head, stream)
    if first[:1] in (b"{", b"["):
        return reader.write(*_json(body, reader))
    title = first.split(b"\n", 1)[0]
    if title.count(b",") > 1 and title.count(b",") < budgets.limit("columns"):
        return reader.write(*_csv(body, reader))
    return reader.write(*_text(body, reader))


class _Reader:
    """Adds the readings of GPUs up."""

    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._samples = Samples()
        self._rows: list[tuple[int, dict[str, float], float, Place]] = []
        self._last: dict[int, Fields] = {}  # of each GPU, what was seen last
        self._turns: dict[int, int] = {}

    def take(self, gpu: int, fields: Fields) -> int:
        """Take one reading of one GPU; returns how many of its fields are known."""
        if not fields or (gpu not in self._last and len(self._last) >= _GPUS_OF_A_FILE):
            return 0
        values: dict[str, float] = {}
        for path, (value, _, _) in fields.items():
            column = _column(path)
            if column in SAMPLED and column not in values and (number := _amount(value, path, column)) is not None:
                values[column] = number
            elif (bit := REASONS_AMD.get(path.rpartition("/")[2])) is not None and str(value).upper() in (
                "ACTIVE",
                "THROTTLED",
                "TRUE",
            ):
                values["mask"] = int(values.get("mask", 0)) | bit
        self._last.setdefault(gpu, {}).update(fields)
        stamp = _amount(fields["timestamp"][0]) if "timestamp" in fields else None
        turn = self._turns[gpu] = self._turns.get(gpu, -1) + 1
        place = next(((number, text) for _, number, text in fields.values()), (1, ""))
        if values:
            slot = self._samples.slot(gpu, lambda: Gpu(None, gpu, None, self._word(gpu, "model")))
            if slot >= 0:
                self._rows.append((slot, values, float(turn) if stamp is None else stamp, place))
        if len(self._rows) >= _READINGS:
            self._flush()
        return sum(_column(path) is not None for path in fields)

    def write(self, lines_read: int, used: int, note: str | None) -> Reading:
        """Add the rows, and say how the reading went."""
        self._flush()
        if self._samples.gpus:
            self._samples.write(self._facts, self._name, "amd-smi")
        self._facts.add(row for gpu in sorted(self._last) for row in self._states(gpu))
        self._facts.mark_covered("amd_gpu", "link_counter", "gpu_use", "gpu_sample", "gpu_throttle")
        return Reading(lines_read, min(used, lines_read), note)

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        names = sorted({name for _, values, _, _ in rows for name in values})
        times = np.array([time for _, _, time, _ in rows])
        columns = {name: np.array([values.get(name, np.nan) for _, values, _, _ in rows]) for name in names}
        slots = np.array([slot for slot, _, _, _ in rows], np.int64)
        self._samples.add(Batch(slots, columns, times if times.min() > 1e8 else None, lambda row: rows[row][3]))

    def _word(self, gpu: int, column: str) -> str | None:
        for path, (value, _, _) in self._last[gpu].items():
            if COLUMNS.get(path.rpartition("/")[2]) == column and str(value) not in ("N/A", ""):
                return str(value)[:120]
        return None

    def _states(self, gpu: int) -> Iterator[AmdGpu | LinkCounter]:
        """What was seen last of a GPU."""
        found: dict[str, tuple[float, int, str]] = {}
        blocks = set()
        for path, (value, number, text) in self._last[gpu].items():
            column = _column(path)
            amount = _amount(value, path, column or "")
            if amount is None:
                continue
            if column is not None and column not in found:
                found[column] = amount, number, text
            if (block := BLOCK.match(path)) is not None and amount > 0:
                blocks.add(block[1].lower())
        numbers = {column: amount for column, (amount, _, _) in found.items()}
        telling = found.get("uncorrected") or next(iter(found.values()), (0.0, 1, ""))
        util, uncorrected, corrected = (numbers.get(column) for column in ("util", "uncorrected", "corrected"))
        yield AmdGpu(
            host=None, gpu=gpu, pci=(self._word(gpu, "pci") or "").lower() or None, device=None, model=self._word(gpu, "model"),
            driver=None,
            unique_id=self._word(gpu, "unique_id"), hive=None, util=None if util is None else int(util),
            memory_total=numbers.get("memory_total"), memory_used=numbers.get("memory"),
            uncorrected=None if uncorrected is None else int(uncorrected), corrected=None if corrected is None else int(corrected),
            blocks=",".join(sorted(blocks)), links=None, ref=self._facts.evidence(self._name, *telling[1:]),
        )  # fmt: skip
        for column, (kind, counter) in COUNTERS.items():
            if column in found:
                amount, number, text = found[column]
                ref = self._facts.evidence(self._name, number, text)
                yield LinkCounter(None, self._name, "amd-smi", kind, f"GPU {gpu}", counter, int(amount), ref)


def _column(path: str) -> str | None:
    return COLUMNS.get(path) or COLUMNS.get(path.rpartition("/")[2])


def _amount(value: Any, path: str = "", column: str = "") -> float | None:
    """The number of `560 W`, `(132Mhz)`, {"value": 560, "unit": "W"} or 560; memory in MiB."""
    if isinstance(value, dict):
        value = f"{value.get('value')} {value.get('unit', '')}"
    if isinstance(value, bool):
        return None
    match = _AMOUNT.match(str(value).strip())
    if match is None:
        return None
    unit = match[2] or ("B" if path.endswith(" (b)") else "")
    scale = _SCALES.get(unit, 1.0) if column.startswith("memory") else 1.0
    return float(match[1]) * scale


def _flat(tree: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Paths and values of nested objects; one of a value and its unit is a value."""
    if isinstance(tree, dict) and depth < 8 and not (tree.keys() <= {"value", "unit"} and tree):
        for key, inner in tree.items():
            yield from _flat(inner, f"{path}/{str(key).lower()}" if path else str(key).lower(), depth + 1)
    elif path:
        yield path, tree


def _json(stream: Readable, reader: _Reader) -> tuple[int, int, str | None]:
    data = read_head(stream, _LARGEST_ANSWER)
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    number, used, at, note = text.count("\n") + 1, 0, 0, None
    decoder = json.JSONDecoder()
    while (start := _next_value(text, at)) is not None:
        try:
            top, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            note = f"is not complete JSON: {str(error)[:100]}"
            break
        line = text.count("\n", 0, start) + 1
        for gpu, record in _records(top):
            place = line, json.dumps(record)[:400]
            used += reader.take(gpu, {path: (value, *place) for path, value in _flat(record)})
    return number, used, note


def _next_value(text: str, at: int) -> int | None:
    found = re.compile(r"\s*([\[{])").match(text, at)
    return found.start(1) if found else None


def _records(top: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of GPUs: a list, a list under `gpu_data`, or `card0`, `card1`."""
    if isinstance(top, dict) and isinstance(top.get("gpu_data"), list):
        top = top["gpu_data"]
    for record in top if isinstance(top, list) else []:
        if isinstance(record, dict) and isinstance(record.get("gpu"), int):
            yield record["gpu"], record
    for key, record in top.items() if isinstance(top, dict) else ():
        card = re.fullmatch(r"card(\d{1,4})", str(key))
        if card is not None and isinstance(record, dict):
            yield int(card[1]), record


def _csv(stream: Readable, reader: _Reader) -> tuple[int, int, str | None]:
    number, used = 0, 0
    titles: list[str] = []
    wanted: list[tuple[int, str]] = []
    index = 0
    for number, line in lines(stream):
        if line.startswith(("gpu,", "timestamp,gpu,", "device,")):
            titles = [title.strip().lower() for title in next(csv.reader(io.StringIO(line)), [])]
            index = titles.index("device") if "device" in titles else titles.index("gpu")
            known = {*COLUMNS, *REASONS_AMD, "timestamp"}
            wanted = [(at, title) for at, title in enumerate(titles) if title in known]
            used += 1
            continue
        cells = next(csv.reader([line]), []) if '"' in line else line.split(",")
        gpu = re.fullmatch(r"(?:card)?(\d{1,4})", cells[index].strip()) if len(cells) == len(titles) > 0 else None
        if gpu is not None:
            used += bool(reader.take(int(gpu[1]), {title: (cells[at], number, line) for at, title in wanted}))
    return number, used, None


def _text(stream: Readable, reader: _Reader) -> tuple[int, int, str | None]:
    number = used = 0
    gpu: int | None = None
    fields: Fields = {}
    titles: list[tuple[int, str]] = []
    rocm: dict[int, Fields] = {}
    head: list[str] = []
    for number, line in lines(stream):
        if (owner := _AMD_GPU.match(line)) is not None:
            used += reader.take(gpu, fields) if gpu is not None else 0
            gpu, fields, titles = int(owner[1]), {}, []
        elif gpu is not None and (field := _AMD_FIELD.match(line)) is not None:
            indent, title = len(field[1]), field[2].strip().lower()
            titles = [*((i, t) for i, t in titles if i < indent), (indent, title)]
            if field[3]:
                fields["/".join(t for _, t in titles)] = field[3].strip(), number, line.strip()
        elif (said := _ROCM_LINE.match(line)) is not None and len(rocm) < _GPUS_OF_A_FILE:
            own = rocm.setdefault(int(said[1]), {})
            key = said[2].strip().lower()
            if key in own:  # a new reading begins
                used += reader.take(int(said[1]), own)
                own = rocm[int(said[1])] = {}
            own[key] = said[3], number, line.strip()
        elif _MONITOR_HEAD.match(line):
            head = line.lower().split()
        elif head:
            used += _monitor(line, number, head, reader)
    used += reader.take(gpu, fields) if gpu is not None else 0
    used += sum(reader.take(index, own) for index, own in rocm.items())
    return number, used, None


def _monitor(line: str, number: int, head: Iterable[str], reader: _Reader) -> int:
    """A row of `amd-smi monitor`."""
    cells = _MONITOR_CELL.findall(line)
    named = dict(zip(head, cells, strict=False))
    index = named.get("gpu", "")
    if not index.isdecimal() or len(index) > 4:
        return 0
    return bool(reader.take(int(index), {title: (cell, number, line.strip()) for title, cell in named.items()}))
