"""One rank works alone: an unfinished bar that ran about as long as the others waited, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.hang.lone_work import seconds
from tests.helpers.examples import examples


def _log(percent: int, elapsed: int, limit: int) -> str:
    hours, rest = divmod(elapsed, 3600)
    clock = f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60:02}:{rest % 60:02}"
    return (
        f"Running tokenizer on dataset: {percent}%|███   | {percent}/100 [{clock}<01:00, 1.00ba/s]\n"
        "[rank1]:[W101 14:34:56.854597329 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=9) timed out after"
        f" {limit * 1000}ms\n"
    )


@examples(40)
@given(st.integers(0, 100), st.integers(600, 20_000), st.integers(60, 20_000))
def test_only_unfinished_work_of_about_the_limit_or_longer_explains_the_wait(
    percent: int, elapsed: int, limit: int
) -> None:
    rows = analyze.read_text(_log(percent, elapsed, limit)).query("SELECT percent, elapsed, limit_ FROM lone_work")
    assert ([(percent, elapsed, limit)] if percent < 100 and elapsed >= 0.8 * limit else []) == rows


def test_a_bar_without_a_wait_explains_nothing() -> None:
    log = _log(38, 1933, 1800).splitlines()[0]
    assert [] == analyze.read_text(log).query("SELECT label FROM lone_work")


@pytest.mark.parametrize(("clock", "expected"), [("12:05", 725), ("1:02:03", 3723)])
def test_clocks(clock: str, expected: int) -> None:
    assert expected == seconds(clock)
