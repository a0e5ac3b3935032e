"""The text of `amd-smi metric`, `static` and `monitor` and of `rocm-smi`: the lines of each GPU, and tables.

GPU: 0
    USAGE:
        GFX_ACTIVITY: 97 %
GPU[0]          : GPU use (%): 97
"""

import re
from collections.abc import Iterable
from typing import Protocol

from nccl_doctor.formats.gpu.amd import concise
from nccl_doctor.formats.gpu.amd.part import Fields
from nccl_doctor.formats.line_picks import line_picker

GPUS_OF_A_FILE = 4096
_LINES = 10_000  # of one GPU
_pick_heads = line_picker(r"(?! {4}|\n|\Z)")  # lines that are not those inside of a part
_AMD_GPU = re.compile(r"GPU: (\d{1,4})\s*$")
_ROCM_LINE = re.compile(r"GPU\[(\d{1,4})\]\s{0,20}: ([^:]{2,80}?) ?: {1,4}(\S.{0,200})$")
_RAS_HEAD = re.compile(r"GPU\[(\d{1,4})\]\s{0,20}: \s{0,20}RAS INFO\b")
_RAS_ROW = re.compile(r"\s{0,40}([A-Z][A-Z0-9_]{1,30})\s{1,40}([A-Z]{2,20})\s{1,40}(\d{1,15})\s{1,40}(\d{1,15})\s*$")
_MONITOR_HEAD = re.compile(r"\s*(?:TIMESTAMP +)?GPU +(?:XCP +)?(?:[A-Z_]\S* +){2,40}[A-Z_]\S*\s*$")
_MONITOR_CELL = re.compile(
    r"N/A|-?\d{1,18}(?:\.\d{1,9})?(?:/\d{1,9}(?:\.\d{1,9})?)?(?: ?(?:°C|[A-Za-z%][A-Za-z%/]{0,5}))?"
)


class Reader(Protocol):
    """What adds the readings of GPUs up; both return how many of the fields are known."""

    def take(self, gpu: int, fields: Fields) -> int:
        """One reading of a GPU."""

    def take_part(self, gpu: int, lines: list[str], first: int) -> int:
        """The part of one GPU, of which the first line has this number."""


class Texts:
    """The lines of a text: parts of GPUs, and tables."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.used = 0  # fields that are known
        self._gpu: int | None = None
        self._part: list[str] = []  # lines behind its title
        self._first = 0  # number of the first of them
        self._rocm: dict[int, Fields] = {}
        self._head: list[str] = []
        self._ras: int | None = None
        self._table = False  # whether the table of all GPUs has begun

    def take(self, texts: list[str], first: int) -> None:
        """Take lines, of which the first has this number; those inside of the part of a GPU are not looked at one by one."""
        at = 0
        for number, _ in _pick_heads(texts, first):
            at = self._inner(texts, at, number - first, first)
            self._line(texts[at], number)
            at += 1
        self._inner(texts, at, len(texts), first)

    def _inner(self, texts: list[str], start: int, stop: int, first: int) -> int:
        """Take lines that are empty or further in; returns the place behind them."""
        if self._gpu is not None:
            kept = texts[start : min(stop, start + _LINES - len(self._part))]
            self._part += kept
            start += len(kept)
        for at in range(start, stop):
            self._outer(texts[at], first + at)
        return stop

    def _line(self, line: str, number: int) -> None:
        """Take a line that may begin a part."""
        if self._gpu is not None and len(self._part) < _LINES:
            self._part.append(line)
        if (owner := _AMD_GPU.match(line)) is None:
            self._outer(line, number)
            return
        self.used += self._reader.take_part(self._gpu, self._part, self._first) if self._gpu is not None else 0
        self._gpu, self._part, self._first = int(owner[1]), [], number + 1

    def _outer(self, line: str, number: int) -> None:
        """Take a line of rocm-smi or of a table."""
        rocm = self._rocm
        if (blocks := _RAS_HEAD.match(line)) is not None:
            self._ras = int(blocks[1])
        elif self._ras is not None and (block := _RAS_ROW.match(line)) is not None and len(rocm) < GPUS_OF_A_FILE:
            _add_block(rocm.setdefault(self._ras, {}), block, number)
        elif (said := _ROCM_LINE.match(line)) is not None and len(rocm) < GPUS_OF_A_FILE:
            own = rocm.setdefault(int(said[1]), {})
            key = said[2].strip().lower()
            if key in own:  # a new reading begins
                self.used += self._reader.take(int(said[1]), own)
                own = rocm[int(said[1])] = {}
            own[key] = said[3], number, line.strip()
        elif concise.is_head(line):
            self._table, self._head = True, []
        elif self._table and (row := concise.parse_row(line, number)) is not None:
            self.used += self._reader.take(*row)
        elif _MONITOR_HEAD.match(line):
            self._head = line.lower().split()
        elif self._head:
            self.used += _monitor(line, number, self._head, self._reader)

    def ends(self) -> None:
        """Take what is still open."""
        if self._gpu is not None:
            self.used += self._reader.take_part(self._gpu, self._part, self._first)
        self.used += sum(self._reader.take(index, own) for index, own in self._rocm.items())


def _add_block(fields: Fields, row: re.Match[str], number: int) -> None:
    """Add a row of `rocm-smi --showrasinfo`: a block of the GPU and its correctable and uncorrectable errors.

    They come in this order also below titles in the other one: so `showRasInfo` of rocm_smi.py fills its rows.
    """
    name, text = row[1].lower(), row[0].strip()
    for place, kind in ((3, "correctable_count"), (4, "uncorrectable_count")):
        if row[place] != "0":
            fields[f"ecc_blocks/{name}/{kind}"] = row[place], number, text
        total = int(fields.get(f"total_{kind}", ("0",))[0]) + int(row[place])
        if row[place] != "0" or f"total_{kind}" not in fields:
            fields[f"total_{kind}"] = str(total), number, text


def _monitor(line: str, number: int, head: Iterable[str], reader: Reader) -> int:
    """A row of `amd-smi monitor`."""
    cells = _MONITOR_CELL.findall(line)
    named = dict(zip(head, cells, strict=False))
    index = named.get("gpu", "")
    if not index.isdecimal() or len(index) > 4:
        return 0
    return bool(reader.take(int(index), {title: (cell, number, line.strip()) for title, cell in named.items()}))
