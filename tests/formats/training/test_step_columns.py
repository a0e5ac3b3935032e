"""Numbers that are read in columns are those that Python reads in each line, whatever the lines differ in."""

import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.lines.block_lines import BlockLines
from nccl_doctor.formats.training.lines.line_numbers import Texts
from nccl_doctor.formats.training.steps import step_lines


def read(text: str) -> tuple[list[ThroughputRun], list[Step]]:
    facts = Facts()
    step_lines.read_format(io.BytesIO(text.encode()), "train.log", facts)
    return facts.rows(ThroughputRun), facts.rows(Step)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(1e-6, 1e9)), min_size=8, max_size=40, unique_by=lambda s: s[0])
)
def test_steps_and_seconds_are_those_that_were_printed(steps: list[tuple[int, float]]) -> None:
    steps.sort()
    _, rows = read(
        "".join(f"completed step: {n}, seconds: {s}, TFLOP/s/device: 1.0, Tokens/s/device: 9.5\n" for n, s in steps)
    )
    assert steps == [(row.step, row.seconds) for row in rows]


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-11-23 10:00:{:02d} ",
        "Nov 23 10:00:{:02d} ",
        "1763892{:03d}.25 ",
        "10:00:{:02d} ",
        "I1123 10:00:{:02d}.1 7 a.py:3] ",
    ],
)
def test_who_wrote_a_line_is_asked_once_and_not_for_each_time(stamp: str) -> None:
    lines = [
        f"[rank{rank}]: {stamp.format(n)}step {n} loss 2.1 {1000 + rank}.5 tokens/s\n"
        for n in range(1, 40)
        for rank in (0, 3)
    ]
    runs, steps = read("".join(lines))
    assert [(0, 39), (3, 39)] == [(run.rank, run.points) for run in runs]
    assert {1000.5, 1003.5} == {step.rate for step in steps}


def test_colours_hold_no_numbers() -> None:
    lines = (
        f"\x1b[31mstep: {n:2d}  \x1b[32mloss:  7.1  \x1b[36mtps: {n},210  \x1b[35mmfu: 40%\x1b[39m\n"
        for n in range(1, 30)
    )
    _, steps = read("".join(lines))
    assert [(n, n * 1000 + 210) for n in range(1, 30)] == [(step.step, step.rate) for step in steps]


def test_lines_of_two_forms_stay_in_their_order() -> None:
    """Times below 1e-4 are printed in another form."""
    seconds = [1e-05 * n if n % 3 else 0.25 for n in range(1, 60)]
    _, steps = read("".join(f"step {n} step_time: {value}\n" for n, value in enumerate(seconds, 1)))
    assert list(range(1, 60)) == [step.step for step in steps]
    assert seconds == [step.seconds for step in steps]


def test_what_waited_for_data_is_summed_where_lines_are_folded() -> None:
    lines = [f"iter: {n} total_loss: 1.0 time: 0.5 data_time: {0.25 if n % 2 else 0.0}\n" for n in range(1, 9_001)]
    _, steps = read("".join(lines))
    assert len(steps) < 9_000
    assert (4_500.0, 1_125.0) == pytest.approx(
        (sum(step.spent or 0 for step in steps), sum(step.waited or 0 for step in steps))
    )


@given(
    st.lists(
        st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), min_size=1, max_size=20
    )
)
def test_lines_have_one_key_where_they_differ_in_digits_only(lines: list[bytes]) -> None:

    keys = Texts(lines).keys.tolist()
    shapes = [re.sub(rb"\d+", b"0", line) for line in lines]
    assert [shapes.index(shape) for shape in shapes] == [keys.index(key) for key in keys]


@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r", b""]), min_size=1, max_size=30))
def test_a_piece_ends_at_a_line_end_or_a_carriage_return(parts: list[bytes]) -> None:
    block = b"".join(parts)
    at = np.array([place for place, character in enumerate(block) if character not in b"\r\n"], np.int64)
    if not len(at):
        return
    lines = BlockLines(block)
    found = np.unique(np.searchsorted(lines.stop, at))
    expected = [(text, number) for number, line in enumerate(block.split(b"\n")) for text in line.split(b"\r") if text]
    assert expected == list(zip(lines.texts(found), lines.numbers(found).tolist(), strict=True))
