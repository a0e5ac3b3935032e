"""Tables of `nvidia-smi --query-gpu=… --format=csv`, with or without units and header, restarted or torn in the middle.

The rows are read by pandas after the units were taken away; everything that is not a plain table takes the slow path. Times
are read on some rows and interpolated between them, which is exact to a sampling period.
"""

import csv
import functools
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.formats.gpu import BARE_ROW, DEVICE, DEVICE_HEADER, OWN_HEADER, SAMPLE, TITLE
from nccl_doctor.formats.gpu.columns import canonical, factor_of
from nccl_doctor.formats.gpu.refusals import refusal
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Floats, Gpu, Ints, Place
from nccl_doctor.formats.gpu.sweeps import Sweeps

HEADER = re.compile(
    rb"(?:" + TITLE + rb",[ \t]*){0,400}" + SAMPLE + rb"[ \t]*(?:,|\r?$)|" + OWN_HEADER + rb"|" + DEVICE_HEADER,
    re.MULTILINE,
)
"""Titles in the style of nvidia-smi, one of them of a sample; to be matched at the start of a line."""
BARE = re.compile(BARE_ROW + rb"[ \t]*(?:,|\r?$)", re.MULTILINE)
"""A row with units; without a header they tell the columns."""

_UNITS = b" %MiBWHz"  # letters of the units and blanks, which no number or state name needs
_ABSENT = (
    "[N/A]", "N/A", "[Not Supported]", "[NotSupported]", "[Unknown Error]", "[UnknownError]", "[GPU requires reset]",
    "[GPUrequresreset]", "-", "",
)  # fmt: skip
_DIGITS = 19  # of a number that 64 bits hold, and one
_LOST = re.compile(
    rb"\[Unknown Error\]|\[GPU requires reset\]|\[GPU is lost\]|ERR!|Unable to determine the device handle|GPU is lost"
)
_DEVICES = ("device", "device_id", "device_name", "card", "card_id")
_NAMED = re.compile(rb"(?m)^([^,\n]{1,40}, ?)" + DEVICE.replace(rb"\d{1,3}", rb"(\d{1,3})") + rb"(?= ?,)")
_STRINGS = ("uuid", "bus", "host", "model")
_POINTS = 1024  # rows of a block whose time is read
_LONGEST_TIME = 19  # signs of a number of seconds, or of nanoseconds; one of hundreds is infinite


def seconds(text: str) -> float:
    """Seconds since the epoch of a time as nvidia-smi prints it, ISO, or a number; NaN where it is none. No zone: UTC."""
    text = text.strip().strip('"')
    if text.replace(".", "", 1).isdecimal():
        return float(text) if len(text) <= _LONGEST_TIME else float("nan")
    known = iso_seconds(text)
    return known if known is not None else float("nan")


class Table:
    """Rows under one header, on their way into the sums."""

    _factors: dict[str, float]  # of columns in other units than those of this package

    def __init__(self, header: list[str], samples: Samples, host: str | None = None) -> None:
        named = len(header) > 1 and header[1].strip() in _DEVICES
        titles = [header[0], "index", *header[2:]] if named else header
        self._start(canonical(tuple(titles)), samples, host)
        self._named_devices = named
        named_titles = zip(self.names, titles, strict=True)
        self._factors = {name: factor_of(title) for name, title in named_titles if name is not None}
        self._titles = [title.strip().partition(" [")[0] for title in header]

    @classmethod
    def bare(cls, row: list[str], samples: Samples, may_number: Callable[[int, int], bool]) -> "Table":
        """A table without header: the units in the cells of its first row tell the columns.

        `may_number` tells whether a column of so many may be that of the numbers of GPUs: a temperature has no unit either.
        """
        names = _by_units(row)
        if "index" in names and not may_number(names.index("index"), len(names)):
            names[names.index("index")] = None
        return cls.named(names, samples)

    @classmethod
    def named(cls, names: Sequence[str | None], samples: Samples, host: str | None = None) -> "Table":
        """A table without header whose columns are known, by the names of this package."""
        table = cls.__new__(cls)
        table._start(names, samples, host)
        return table

    def _start(self, names: Sequence[str | None], samples: Samples, host: str | None) -> None:
        self.names = names
        self._samples = samples
        self._host = host
        self._sweeps = Sweeps()
        self.rows = 0
        self._cells_of_first = 0
        self._named_devices = False
        self._factors = {}
        self._key = next((name for name in ("index", "uuid", "bus") if name in names), None)
        self._unique = [name or f"unused{number}" for number, name in enumerate(names)]
        self._titles = self._unique
        # Only a key may be a string: the model and the rest are read from the first row of each GPU.
        self._texts = [name for name in ("host", self._key) if name in names and name in _STRINGS]
        self._wanted = [name for name in names if name is not None and name not in (*_STRINGS, "time")] + self._texts

    def fits(self, line: str) -> bool:
        """Whether a line may be a row: as many cells, and the first of them a time, a number, a word or a unit."""
        cells = line.split(",")
        if len(cells) != len(self.names):
            return False
        at = self._unique.index(self._key) if self._key else None
        if self._key == "index" and at is not None and not cells[at].strip().isdecimal():
            return False
        return "time" not in self.names or not np.isnan(seconds(cells[self._unique.index("time")]))

    def add(self, block: bytes, number: Callable[[int], int]) -> int:
        """Take the lines of a block; `number` gives the line number of a row. Returns how many rows were used."""
        if not block.endswith(b"\n"):
            block += b"\n"
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
        starts = np.concatenate([[0], ends[:-1] + 1])

        def line(row: int) -> str:
            return block[starts[row] : ends[row]].decode("utf-8", "replace").rstrip("\r")

        frame = self._frame(block, len(ends))
        columns = self._columns(frame)
        slots = self._slots(frame, line)
        keep = np.flatnonzero((slots >= 0) & self._filled(columns, len(slots)))
        if len(keep) < len(slots) or any(np.isnan(values).any() for values in columns.values()):
            self._faults(block, ends, number, line)
        times = self._times(line, len(ends))

        def place(row: int) -> Place:
            at = int(keep[row])
            return number(at), line(at)

        kept = {name: values[keep] for name, values in columns.items()}
        self._samples.add(Batch(slots[keep], kept, None if times is None else times[keep], place))
        self.rows += len(keep)
        return len(keep)

    def _faults(self, block: bytes, ends: Ints, number: Callable[[int], int], line: Callable[[int], str]) -> None:
        rows = (int(np.searchsorted(ends, found.start())) for found in _LOST.finditer(block))
        for row in dict.fromkeys(rows):
            text = line(row)
            cells = text.split(",")
            read = zip(self._titles, cells, strict=False)
            if len(cells) < len(self._titles) or any(refusal(title, cell, (row, text)) for title, cell in read):
                self._samples.unreadable(self._named(text), (number(row), text))

    def _named(self, text: str) -> Gpu:
        """The GPU of a row as far as its cells name it."""
        cells = dict(zip(self._unique, (cell.strip() for cell in text.split(",")), strict=False))
        index = cells.get("index", "")
        number = int(index) if index.isdecimal() and len(index) < 4 else None
        return Gpu(cells.get("host", self._host), number, cells.get("uuid"), cells.get("model"))

    def _frame(self, block: bytes, lines: int) -> Any:
        import pandas

        self._cells_of_first = self._cells_of_first or block[: block.find(b"\n")].count(b",") + 1
        if self._named_devices:
            block = _NAMED.sub(rb"\1\2", block)
        if self._texts:
            plain = block
            for unit in (b" %", b" MiB", b" MHz", b" W"):
                plain = plain.replace(unit + b",", b",").replace(unit + b"\n", b"\n").replace(unit + b"\r\n", b"\n")
        else:
            plain = block.translate(None, _UNITS)
        texts = {name: "category" for name in self._wanted if name in self._texts or ":" in name or name == "mask"}
        try:
            frame = pandas.read_csv(
                io.BytesIO(plain), header=None, names=self._unique, usecols=self._wanted, engine="c", dtype=texts,
                na_values=list(_ABSENT), skip_blank_lines=False, skipinitialspace=True, on_bad_lines="skip",
                quoting=csv.QUOTE_NONE, index_col=False, low_memory=False, encoding_errors="replace",
            )  # fmt: skip
        except (ValueError, MemoryError):  # pandas' own errors are ValueErrors
            frame = None
        if frame is not None and len(frame) == lines:
            return frame
        rows = [self._cells(line) for line in plain.decode("utf-8", "replace").split("\n")[:lines]]
        return pandas.DataFrame(rows, columns=self._unique)

    def _cells(self, line: str) -> list[str | None]:
        cells: list[str | None] = [None if cell.strip() in _ABSENT else cell.strip() for cell in line.split(",")]
        if len(cells) == self._cells_of_first:  # a monitor may write titles of which it never has the values
            cells += [None] * (len(self._unique) - len(cells))
        return cells if len(cells) == len(self._unique) else [None] * len(self._unique)

    def _columns(self, frame: Any) -> dict[str, Floats]:
        import pandas

        columns: dict[str, Floats] = {}
        mask: Ints | None = None
        for name in self._wanted:
            values = frame[name]
            if name == "mask" or name.startswith("reason:"):
                bits = _mapped(values, _reasons(None if name == "mask" else int(name[7:], 16))).astype(np.int64)
                mask = bits if mask is None else mask | bits
            elif name.startswith("counter:"):
                columns[name] = _mapped(values, _count, np.nan)
            elif name != "index" and name not in self._texts:
                if not pandas.api.types.is_numeric_dtype(values):
                    values = _numeric(values)
                factor = self._factors.get(name, 1.0)
                columns[name] = values.to_numpy(np.float64) * factor if factor != 1.0 else values.to_numpy(np.float64)
        if mask is not None:
            columns["mask"] = mask.astype(np.float64)
        return columns

    def _filled(self, columns: dict[str, Floats], rows: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        filled = np.zeros(rows, bool)
        for name, values in columns.items():
            filled |= ~np.isnan(values) if name != "mask" else values > 0
        return filled

    def _slots(self, frame: Any, line: Callable[[int], str]) -> Ints:
        import pandas

        if self._key is None:
            places = self._places(len(frame), line)
            if not places.any():
                return np.full(len(frame), self._slot(None, None, None, lambda: line(0)), np.int64)
            numbers, first, which = np.unique(places, return_index=True, return_inverse=True)
            slots = np.array(
                [
                    self._slot(number, None, "index", functools.partial(line, int(row)))
                    for number, row in zip(numbers, first, strict=True)
                ]
            )
            placed: Ints = slots[which]
            return placed
        keys = frame[self._key]
        if self._key == "index" and not pandas.api.types.is_numeric_dtype(keys):
            keys = _numeric(keys)
        codes, uniques = pandas.factorize(keys)
        pairs, names = codes, [None]
        if "host" in self._texts:
            hosts, known_hosts = pandas.factorize(frame["host"])
            names = [*known_hosts, None]  # the last for rows that name none, `[N/A]`
            pairs = np.where(codes < 0, -1, codes * len(names) + np.where(hosts < 0, len(names) - 1, hosts))
        values, first, which = np.unique(pairs, return_index=True, return_inverse=True)
        slots = np.full(len(values), -1, np.int64)
        for at, value in enumerate(values):
            if value >= 0:
                key, host = uniques[value // len(names)], names[value % len(names)]
                slots[at] = self._slot(key, host, self._key, functools.partial(line, int(first[at])))
        known: Ints = slots[which]
        return known

    def _places(self, rows: int, line: Callable[[int], str]) -> Ints:
        """Which GPU of its sweep each row is of, where no column names the GPU."""
        if "time" not in self.names:
            return np.zeros(rows, np.int64)
        at = self.names.index("time")
        texts = (line(row).split(",") for row in range(rows))
        return self._sweeps.places(np.array([seconds(cells[at]) if len(cells) > at else np.nan for cells in texts]))

    def _slot(self, key: Any, host: str | None, kind: str | None, line: Callable[[], str]) -> int:
        host = str(host) if host is not None else self._host
        if kind == "index":
            if not 0 <= float(key) < 1024 or float(key) % 1:
                return -1
            key = int(key)

        def gpu() -> Gpu:
            cells = dict(zip(self._unique, (cell.strip() for cell in line().split(",")), strict=False))
            index = key if kind == "index" else self._samples.next_of(host) if kind is not None else None
            return Gpu(host, index, cells.get("uuid") or cells.get("bus"), cells.get("model"))

        return self._samples.slot((host, key), gpu)

    def _times(self, line: Callable[[int], str], rows: int) -> Floats | None:
        if "time" not in self.names:
            return None
        at = self.names.index("time")
        points = np.unique(np.linspace(0, rows - 1, min(rows, _POINTS)).astype(np.int64))
        read = [seconds(cells[at]) if len(cells := line(int(row)).split(",")) > at else np.nan for row in points]
        known = np.array(read)
        good = ~np.isnan(known)
        if not good.any():
            return None
        times: Floats = np.interp(np.arange(rows), points[good], known[good])
        return times


def _mapped(values: Any, read: Callable[[str], float], absent: float = 0.0) -> Floats:
    """A column of few different texts turned into numbers."""
    import pandas

    codes, uniques = pandas.factorize(values)
    numbers: Floats = np.array([*(read(str(text)) for text in uniques), absent], np.float64)[codes]
    return numbers


def _reasons(bit: int | None) -> Callable[[str], float]:
    """Reads clock event reasons: a hexadecimal sum, or `Active` for one of them. The letter i may be gone."""

    def read(text: str) -> float:
        if bit is not None:
            return bit if text.startswith("Act") else 0
        try:
            return int(text, 16) & 0xFFFF
        except ValueError:
            return 0

    return read


def _count(text: str) -> float:
    try:
        return float({"Yes": 1, "No": 0, "Ys": 1}.get(text, text))
    except ValueError:
        return float("nan")


def _numeric(values: Any) -> Any:
    """Numbers of a column of texts; NaN where a text is none, and for integers of hundreds of digits."""
    import pandas

    try:
        return pandas.to_numeric(values, errors="coerce")
    except (OverflowError, ValueError):
        return pandas.to_numeric(values.where(values.astype(str).str.len() < _DIGITS), errors="coerce")


def _by_units(cells: list[str]) -> list[str | None]:
    """Columns of a row without header, from what its cells look like."""
    names: list[str | None] = []
    memory: list[tuple[float, int]] = []
    watts: list[tuple[float, int]] = []
    for number, cell in enumerate(cell.strip() for cell in cells):
        name = None
        value, _, unit = cell.rpartition(" ")
        if number == 0 and not np.isnan(seconds(cell)) and "/" in cell:
            name = "time"
        elif cell.isdecimal() and "index" not in names:
            name = "index"
        elif cell.startswith("GPU-"):
            name = "uuid"
        elif unit == "%" and "util" not in names:
            name = "util"
        elif unit == "MHz" and "clock" not in names:
            name = "clock"
        elif unit in ("MiB", "W") and value.replace(".", "", 1).isdecimal():
            (memory if unit == "MiB" else watts).append((float(value), number))
        names.append(name)
    for found, low, high in ((memory, "memory", "memory_total"), (watts, "power", "power_limit")):
        if len(found) in (1, 2):
            found.sort()
            names[found[0][1]] = low
            if len(found) == 2:
                names[found[1][1]] = high
    return names
