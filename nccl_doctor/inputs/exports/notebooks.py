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
from nccl_doctor.inputs.exports.text_places import Places
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_BEGINS = compiled(rb"\s{0,200}\{\s{0,200}\"(?:cells|nbformat|nbformat_minor|metadata)\"\s{0,20}:")
_CELL = b'"cell_type"'
_PLACED = 60  # characters of a line by which it is found in the file


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
    places, are_escaped = Places(data.decode("utf-8", "replace")), data.isascii()
    for line in _lines(document):
        words = json.dumps(line[:_PLACED], ensure_ascii=are_escaped)[1:-1]
        yield places.of(words) if words.strip() else places.number, [line.encode("utf-8", "replace")]


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
