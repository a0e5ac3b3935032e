"""One log in any shape that terminals, loggers and container runtimes give its lines: the same findings as from the whole lines."""

import io
import json
import logging
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.log_prefixes import FAULTS, Said, analysed, simulated
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.logging import RichHandler

from tests.helpers.examples import examples

STAMP = "2026-05-07T12:00:00.123456789Z"


def _cut(text: str, columns: int) -> list[str]:
    return [text[start : start + columns] for start in range(0, max(len(text), 1), columns)]


def _label(said: Said) -> str:
    return "" if said.rank is None else f"{said.rank:>2}: "


def terminal(lines: Sequence[Said], columns: int) -> str:
    return "".join(f"{row}\n" for said in lines for row in _cut(said.text, columns))


def terminal_of_windows(lines: Sequence[Said], columns: int) -> str:
    return terminal(lines, columns).replace("\n", "\r\n")


def labelled(lines: Sequence[Said], columns: int) -> str:
    """A logger wraps, and srun --label puts the task in front of each row."""
    return "".join(f"{_label(said)}{row}\n" for said in lines for row in _cut(said.text, columns))


def words(lines: Sequence[Said], columns: int) -> str:
    return "".join(f"{row}\n" for said in lines for row in textwrap.wrap(said.text, columns) or [""])


def words_indented(lines: Sequence[Said], columns: int) -> str:
    rows = (row for said in lines for row in textwrap.wrap(said.text, columns, subsequent_indent="    ") or [""])
    return "".join(f"{row}\n" for row in rows)


def rich(lines: Sequence[Said], columns: int) -> str:
    out = io.StringIO()
    handler = RichHandler(console=Console(file=out, width=columns, no_color=True))
    for said in lines:
        record = logging.LogRecord("train", logging.INFO, "train.py", 12, "%s", (said.text,), None)
        record.created = said.when
        handler.emit(record)
    return out.getvalue()


def cri(lines: Sequence[Said], columns: int) -> str:
    rows = []
    for said in lines:
        *parts, last = _cut(said.text, columns)
        rows += [f"{STAMP} stdout P {part}\n" for part in parts] + [f"{STAMP} stdout F {last}\n"]
    return "".join(rows)


def docker(lines: Sequence[Said], columns: int) -> str:
    parts = (part for said in lines for part in _cut(said.text + "\n", columns))
    records = ({"log": part, "stream": "stdout", "time": STAMP} for part in parts)
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def whole(lines: Sequence[Said]) -> str:
    return "".join(f"{said.text}\n" for said in lines)


def fork(lines: Sequence[Said], columns: int) -> str:
    return whole(lines).replace("] NCCL ", "] MCCL ").replace(") NCCL WARN", ") MCCL WARN")


def crashed(lines: Sequence[Said], columns: int) -> str:
    """A file system filled what was not written before a crash with NUL, in the middle and at the end."""
    half = len(lines) // 2
    begun = lines[half].text[:20] + "\0" * 4096
    return f"{whole(lines[:half])}{begun}{whole(lines[half:])}{lines[-1].text[:10]}{chr(0) * 3000}"


def killed(lines: Sequence[Said], columns: int) -> str:
    """The writer was killed within a line."""
    return whole(lines) + "[rank0]:[E1121 02:11:1"


def glued(lines: Sequence[Said], columns: int) -> str:
    """Two writers on one line, without a line end between them."""
    text = []
    for at, said in enumerate(lines):
        follows = at + 1 < len(lines) and "] NCCL INFO" in said.text and "] NCCL INFO" in lines[at + 1].text
        text.append(said.text + ("" if follows and at % 7 == 3 else "\n"))
    return "".join(text)


SHAPES = {
    shape.__name__: shape
    for shape in (
        terminal, terminal_of_windows, labelled, words, words_indented, rich, cri, docker, fork, killed, glued,
    )
}  # fmt: skip
WIDTHS = (80, 100, 120, 132)
Shape = Callable[[Sequence[Said], int], str]


def _compared(fault: str | None, shape: Shape, columns: int, folder: Path) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    lines = simulated(fault)
    plain = "".join(f"{_label(said)}{said.text}\n" for said in lines) if shape is labelled else whole(lines)
    return analysed(plain, folder), analysed(shape(lines, columns), folder)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fault", [None, "ib-link-flapping"])
def test_a_shape_changes_no_finding(fault: str | None, shape: str, tmp_path: Path) -> None:
    columns = WIDTHS[len(shape) % len(WIDTHS)]
    expected, found = _compared(fault, SHAPES[shape], columns, tmp_path)
    assert expected == found


@pytest.mark.parametrize("fault", [None, "ib-link-flapping"])
def test_lines_lost_in_a_crash_change_no_alarm_and_leave_nothing_healthy(fault: str | None, tmp_path: Path) -> None:
    lines = simulated(fault)
    verdict, *expected = analysed(whole(lines), tmp_path)
    lost = "holds runs of zero bytes in the place of lines that were lost, as after a crash or a truncation"
    found, *others = analysed(crashed(lines, 0), tmp_path, lost)
    assert expected == others
    assert ("nothing-found" if verdict == "healthy" else verdict) == found


@examples(12)
@given(
    st.sampled_from(FAULTS), st.sampled_from((terminal, labelled, words, words_indented, rich)), st.integers(72, 160)
)
def test_no_width_changes_a_finding(
    tmp_path_factory: pytest.TempPathFactory, fault: str | None, shape: Shape, columns: int
) -> None:
    expected, found = _compared(fault, shape, columns, tmp_path_factory.mktemp("shape"))
    assert expected == found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault or "healthy")
def test_whole_lines_are_left_alone(fault: str | None) -> None:
    from nccl_doctor.inputs import exports

    assert exports.recognise(whole(simulated(fault)).encode()[: 1 << 16]) is None
