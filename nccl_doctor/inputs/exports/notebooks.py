"""Notebooks of Jupyter and Colab, version 4 of their format: the lines that their cells printed, in the order of the cells.

    {"cells": [{"cell_type": "code", "outputs": [{"output_type": "stream", "text": ["step 1\\n"]}], "source": ["…"]}], "nbformat": 4}

Code and text of cells are left out. A notebook is held up to the budget `held`, and one that is cut off is read line by line.
"""

import io
import json
from collections.abc import Iterator
from typing import Any

from nccl_doctor.common import budgets
from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.exports.rows import Cut, raw
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_BEGINS = compiled(rb"\s{0,200}\{\s{0,200}\"(?:cells|nbformat|nbformat_minor|metadata)\"\s{0,20}:")
_CELL = b'"cell_type"'
_PLACED = 60  # characters of a line by which it is found in the file
_IN_VAIN = 8  # times a file may be searched for lines that are not found


def recognise(head: bytes) -> bool:
    """Whether a file is a notebook, by its first bytes."""
    return _BEGINS.match(head) is not None and (b'"nbformat"' in head or _CELL in head)


def notebook_rows(stream: Readable) -> Iterator[tuple[int, list[bytes]]]:
    """Number in the file and text of the lines of all outputs; of a broken notebook the lines of the file."""
    largest = budgets.limit("held")
    data = read_head(stream, largest + 1)
    if len(data) > largest:
        yield from raw(Joined(data, stream))
        raise Cut(f"is a notebook of more than {largest:,} bytes, read as plain text; {budgets.reached('held')}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        yield from raw(io.BytesIO(data))
        return
    places = Places(data)
    for line in _lines(document):
        yield places.number_of(line), [line.encode("utf-8", "replace")]


class Places:
    """Where the lines of outputs stand in the file, asked in their order."""

    def __init__(self, data: bytes) -> None:
        self._text = data.decode("utf-8", "replace")
        self._is_escaped = data.isascii()  # other signs were written as numbers
        self._at, self._number = 0, 1
        self.in_vain = 0  # characters that were searched for lines that are written in another way

    def number_of(self, line: str) -> int:
        """The number of the line of the file in which it stands; that of the one before where it is not found."""
        words = json.dumps(line[:_PLACED], ensure_ascii=self._is_escaped)[1:-1]
        if words.strip() and self.in_vain <= _IN_VAIN * len(self._text):
            place = self._text.find(words, self._at)
            if place >= 0:
                self._number += self._text.count("\n", self._at, place)
                self._at = place
            else:
                self.in_vain += len(self._text) - self._at
        return self._number


def _lines(document: Any) -> Iterator[str]:
    """The lines of all outputs; what a cell that printed nothing has below it is separated by an empty line."""
    for cell in _dicts(document.get("cells") if isinstance(document, dict) else None):
        for output in _dicts(cell.get("outputs")):
            data = output.get("data")
            texts = (output.get("text"), data.get("text/plain") if isinstance(data, dict) else None)
            for text in map(_joined, texts):
                yield from text.splitlines()
            traceback = output.get("traceback")
            for text in traceback if isinstance(traceback, list) else ():
                yield from _joined(text).splitlines()
            yield ""


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(one for one in text if isinstance(one, str))
    return text if isinstance(text, str) else ""


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())
