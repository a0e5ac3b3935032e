"""GPUs of AMD as `amd-smi metric`, `static` and `monitor` and `rocm-smi` show them: text, JSON or CSV, once or again and again."""

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import numpy as np

from nccl_doctor.common import budgets
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AmdGpu, LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.amd.names import BLOCK, COLUMNS, COUNTERS, REASONS_AMD, SAMPLED, VIOLATED, VIOLATIONS
from nccl_doctor.formats.gpu.amd.part import ACTIVE, Fields, Layout, amount, column_of, layout_of
from nccl_doctor.formats.gpu.amd.texts import GPUS_OF_A_FILE, Texts
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Floats, Gpu, Place
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, cells_of, line_lists, read_head

_LARGEST_ANSWER = 64 << 20  # bytes of JSON
_READINGS = 20_000  # that are added at once
_CSV_BLOCK = 4 << 20  # bytes


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
        self._part: dict[int, tuple[Layout, list[str], int]] = {}  # of each GPU, of a text, the part that was seen last
        self._turns: dict[int, int] = {}

    def take(self, gpu: int, fields: Fields) -> int:
        """Take one reading of one GPU; returns how many of its fields are known."""
        if not fields or (gpu not in self._last and len(self._last) >= GPUS_OF_A_FILE):
            return 0
        values: dict[str, float] = {}
        for path, (value, _, _) in fields.items():
            column = column_of(path)
            if column in SAMPLED and column not in values and (number := amount(value, path, column)) is not None:
                values[column] = number
            elif (bit := REASONS_AMD.get(path.rpartition("/")[2])) is not None and str(value).upper() in ACTIVE:
                values["mask"] = int(values.get("mask", 0)) | bit
            elif (bit := VIOLATIONS.get(path.rpartition("/")[2])) is not None and (share := amount(value)) is not None:
                values["mask"] = int(values.get("mask", 0)) | (bit if share >= VIOLATED else 0)
        self._last.setdefault(gpu, {}).update(fields)
        stamp = amount(fields["timestamp"][0]) if "timestamp" in fields else None
        self._add(gpu, values, stamp, next(((number, text) for _, number, text in fields.values()), (1, "")))
        return sum(column_of(path) is not None or path in VIOLATIONS for path in fields)

    def take_part(self, gpu: int, lines: list[str], first: int) -> int:
        """Take the part of one GPU in a text; returns how many of its fields are known."""
        layout = layout_of(lines)
        if not layout.values or (gpu not in self._last and len(self._last) >= GPUS_OF_A_FILE):
            return 0
        if gpu not in self._last:
            self._last[gpu] = layout.fields(lines, first)
        elif self._part[gpu][0] is not layout:
            self._keep(gpu)
        self._part[gpu] = layout, lines, first
        stamp = amount(layout.stamp.of(lines)) if layout.stamp is not None else None
        line = layout.values[0].line
        self._add(gpu, layout.samples(lines), stamp, (first + line, lines[line].strip()))
        return layout.known

    def _keep(self, gpu: int) -> None:
        """Take over the fields of the part that was seen last."""
        layout, lines, first = self._part[gpu]
        self._last[gpu].update(layout.fields(lines, first))

    def _add(self, gpu: int, values: dict[str, float], stamp: float | None, place: Place) -> None:
        turn = self._turns[gpu] = self._turns.get(gpu, -1) + 1
        if values:
            slot = self._samples.slot(gpu, lambda: Gpu(None, gpu, None, self._word(gpu, "model")))
            if slot >= 0:
                self._rows.append((slot, values, float(turn) if stamp is None else stamp, place))
        if len(self._rows) >= _READINGS:
            self._flush()

    def take_table(self, titles: list[str], rows: list[tuple[int, str]]) -> int:
        """Take rows of CSV with their line numbers; returns how many are readings of a GPU."""
        key = "device" if "device" in titles else "gpu"
        told = COLUMNS.keys() | REASONS_AMD.keys() | VIOLATIONS.keys() | {"timestamp"}
        known = [title for title in titles if title in told]
        rows, frame = _frame(titles, [key, *known], rows)
        gpus = _numbers(frame[key].str.removeprefix("card"))
        keep = np.flatnonzero((gpus >= 0) & (gpus < GPUS_OF_A_FILE))
        index = gpus[keep].astype(np.int64)
        columns: dict[str, Floats] = {}
        for title in known:
            column = COLUMNS.get(title)
            if column in SAMPLED and column not in columns:
                columns[column] = _numbers(frame[title])[keep] * (2.0**-20 if title.endswith(" (b)") else 1.0)
            elif title in REASONS_AMD or title in VIOLATIONS:
                if title in VIOLATIONS:
                    held = (_numbers(frame[title])[keep] >= VIOLATED) * VIOLATIONS[title]
                else:
                    held = (frame[title].to_numpy()[keep] == "ACTIVE") * REASONS_AMD[title]
                mask = columns.get("mask", np.zeros(len(keep))).astype(np.int64)
                columns["mask"] = (mask | held.astype(np.int64)).astype(np.float64)
        slots = np.full(len(index), -1)
        for gpu in np.unique(index).tolist():
            number, line = rows[keep[np.flatnonzero(index == gpu)[-1]]]
            cells = cells_of(line)
            named = {title: (cell, number, line) for title, cell in zip(titles, cells, strict=False)}
            self._last.setdefault(gpu, {}).update(named)
            who = Gpu(None, gpu, None, self._word(gpu, "model"))
            slots[index == gpu] = self._samples.slot(gpu, lambda who=who: who)  # type: ignore[misc]
        keep, taken = keep[slots >= 0], slots >= 0
        if len(keep) and columns:
            times = _numbers(frame["timestamp"])[keep] if "timestamp" in known else None
            values = {column: numbers[taken] for column, numbers in columns.items()}
            self._samples.add(Batch(slots[taken], values, times, lambda row: rows[keep[row]]))
        return len(index)

    def write(self, lines_read: int, used: int, note: str | None) -> Reading:
        """Add the rows, and say how the reading went."""
        self._flush()
        for gpu in self._part:
            self._keep(gpu)
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
            column = column_of(path)
            worth = amount(value, path, column or "")
            if worth is None:
                continue
            if column is not None and column not in found:
                found[column] = worth, number, text
            if (block := BLOCK.match(path)) is not None and worth > 0:
                blocks.add(block[1].lower())
        numbers = {column: worth for column, (worth, _, _) in found.items()}
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
                worth, number, text = found[column]
                ref = self._facts.evidence(self._name, number, text)
                yield LinkCounter(None, self._name, "amd-smi", kind, f"GPU {gpu}", counter, int(worth), ref)


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
    places = count(1)  # an answer may be one line: the place of a GPU is the number of its record
    while (start := _next_value(text, at)) is not None:
        try:
            top, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            note = f"is not complete JSON: {str(error)[:100]}"
            break
        for gpu, record in _records(top):
            place = next(places), json.dumps(record)[:400]
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
    """Rows under a header, which a restarted program repeats; read by pandas, a block at a time."""
    number = used = 0
    titles: list[str] = []
    rest = b""
    while block := stream.read(_CSV_BLOCK) or rest:
        data = rest + block if block is not rest else rest
        end = data.rfind(b"\n") + 1 if block is not rest else len(data)
        rest = data[end:] if block is not rest else b""
        if len(rest) > _CSV_BLOCK:
            return number, used, f"line {number + 1} is longer than {_CSV_BLOCK:,} bytes; reading ended there"
        lines_of = data[:end].decode("utf-8", "replace").lstrip("\ufeff").splitlines()
        starts = [at for at, line in enumerate(lines_of) if line.startswith(("gpu,", "timestamp,gpu,", "device,"))]
        for start, stop in pairwise([*([] if starts[:1] == [0] else [0]), *starts, len(lines_of)]):
            own = lines_of[start:stop]
            if start in starts:
                titles, used = [title.strip().lower() for title in own[0].split(",")], used + 1
                own, start = own[1:], start + 1
            if titles and own:
                used += reader.take_table(titles, list(enumerate(own, number + start + 1)))
        number += len(lines_of)
    return number, used, None


def _frame(titles: list[str], wanted: list[str], rows: list[tuple[int, str]]) -> tuple[list[tuple[int, str]], Any]:
    """The rows that have as many cells as there are titles, and their wanted columns as text or numbers."""
    import pandas

    names = [title if title not in titles[:at] else f"again{at}" for at, title in enumerate(titles)]
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):  # a quote that is never closed would swallow the rows after it
        quoted = quoting == csv.QUOTE_MINIMAL
        rows = [row for row in rows if row[1].count(",") + 1 == len(titles) or (quoted and '"' in row[1])]
        with suppress(ValueError):  # pandas' own errors are ValueErrors, also that there is no row
            frame = pandas.read_csv(
                io.StringIO("\n".join(line for _, line in rows)), header=None, names=names, usecols=list(dict.fromkeys(wanted)),
                dtype={wanted[0]: str}, na_values=["N/A"], on_bad_lines="skip", skip_blank_lines=False, index_col=False, quoting=quoting,
            )  # fmt: skip
            if len(frame) == len(rows):
                return rows, frame
    return [], pandas.DataFrame({name: pandas.Series(dtype=str) for name in wanted})


def _numbers(column: Any) -> Floats:
    """A column of numbers, or of numbers with a unit such as `(1700Mhz)`."""
    import pandas

    if not pandas.api.types.is_numeric_dtype(column):
        column = column.astype(str).str.extract(r"(-?\d{1,18}(?:\.\d{1,9})?)", expand=False)
    return np.asarray(pandas.to_numeric(column, errors="coerce"), np.float64)


def _text(stream: Readable, reader: _Reader) -> tuple[int, int, str | None]:
    texts = Texts(reader)
    number = 0
    for first, lines in line_lists(stream):
        number = first - 1 + len(lines)
        texts.take(lines, first)
    texts.ends()
    return number, texts.used, None
