"""Notebooks: the lines of their outputs, whole, on one line, and broken."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Step
from nccl_doctor.inputs.exports import Exported, recognise
from nccl_doctor.inputs.exports.notebooks import notebook_rows
from tests.helpers.examples import examples

BAR = "[==============================]"
TEXT = "".join(f"Epoch {n}/4\n500/500 {BAR} - {50 + n}s 102ms/step - loss: {2 - n / 8:.4f}\n" for n in range(1, 5))
ERROR = ["\x1b[0;31m---\x1b[0m", "\x1b[0;31mValueError\x1b[0m: batch of size 0"]
CELLS = [
    {"cell_type": "markdown", "source": ["step 1 loss 9.9"]},
    {
        "cell_type": "code",
        "source": ["fit()"],
        "outputs": [{"output_type": "stream", "name": "stdout", "text": TEXT.splitlines(True)}],
    },
    {
        "cell_type": "code",
        "source": "3",
        "outputs": [{"output_type": "execute_result", "data": {"text/plain": "0.5", "image/png": "iVBO"}}],
    },
    {
        "cell_type": "code",
        "source": [],
        "outputs": [{"output_type": "error", "ename": "ValueError", "traceback": ERROR}],
    },
]
BOOK = {"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def lines(data: bytes) -> list[bytes]:
    return Exported(io.BytesIO(data), "notebook").read(1 << 20).split(b"\n")


@pytest.mark.parametrize("indent", [None, 1])
def test_outputs_in_their_order(indent: int | None) -> None:
    data = json.dumps(BOOK, indent=indent).encode()
    assert "notebook" == recognise(data)
    read = [line for line in lines(data) if line]
    assert [*TEXT.encode().splitlines(), b"0.5", *(line.encode() for line in ERROR)] == read


def test_lines_have_their_places_in_the_file() -> None:
    data = json.dumps(BOOK, indent=1).encode()
    stream = Exported(io.BytesIO(data), "notebook")
    read = stream.read(1 << 20).split(b"\n")
    at = read.index(next(line for line in read if b"52s" in line)) + 1
    assert b"52s" in data.split(b"\n")[stream.source_line(at) - 1]


def test_a_notebook_on_one_line_has_steps(tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_text(json.dumps(BOOK))
    _, facts, _ = analyze.analyze([str(tmp_path / "train.ipynb")])
    assert {0.102} == {step.seconds for step in facts.rows(Step)}


@pytest.mark.parametrize(
    "data", [b'{"cells": 5, "nbformat": 4}', b'{"cells": [7, {"outputs": [null, {"text": 3}]}], "nbformat": 4}']
)
def test_other_values_than_cells(data: bytes) -> None:
    assert "notebook" == recognise(data)
    assert [] == [line for line in lines(data) if line]


@examples(40)
@given(st.integers(0, 2000), st.binary(max_size=4))
def test_a_broken_notebook_is_read_line_by_line(at: int, noise: bytes) -> None:
    data = json.dumps(BOOK, indent=1).encode()
    assert lines(data[:at] + noise)


def test_other_json_is_no_notebook() -> None:
    assert recognise(b'{"metadata": {"a": 1}, "items": [1]}') is None


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_signs_that_are_written_as_numbers_have_their_places(ensure_ascii: bool) -> None:
    book = [{"cell_type": "code", "outputs": [{"text": ["\u2588 step 1\n", "\u2588 step 2\n"]}]}]
    data = json.dumps({"cells": book, "nbformat": 4}, indent=1, ensure_ascii=ensure_ascii).encode()
    written = data.split(b"\n")
    read = {line: written[number - 1] for number, (line,) in notebook_rows(io.BytesIO(data)) if line}
    assert [b"step 1" in read["\u2588 step 1".encode()], b"step 2" in read["\u2588 step 2".encode()]] == [True, True]
