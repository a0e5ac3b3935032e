"""Where the agent of torchrun starts its workers again, and which failure is the reason then."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Restart

START = datetime(2024, 5, 7, 12, 0, tzinfo=UTC)
MEET = "[E0507 12:00:40.209194719 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [tcp/pair.cc:152] timed out connecting"


def report(at: int, agent: int, local_rank: int, pid: int) -> str:
    when = START + timedelta(seconds=at)
    return (
        f"E{when:%m%d %H:%M:%S}.670000 {agent} torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)"
        f" local_rank: {local_rank} (pid: {pid}) of binary: /usr/bin/python3"
    )


def table(host: str, rank: int, pid: int) -> list[str]:
    """The end of the table that an agent prints when it gives up."""
    return [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2024-05-07_12:00:41",
        f"  host      : {host}",
        f"  rank      : {rank} (local_rank: 0)",
        f"  exitcode  : 1 (pid: {pid})",
        "  error_file: <N/A>",
    ]


def restarts(*lines: str) -> list[int]:
    return [row.line for row in analyze.read_text("\n".join(lines) + "\n").rows(Restart)]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.sampled_from(["loading data", "epoch 3", ""]), max_size=3),
)
def test_each_new_worker_of_an_agent_begins_an_attempt(failed: list[int], between: list[str]) -> None:
    """`failed`: how many workers the agent reports in each attempt, the worker of local rank 0 in all of them."""
    lines: list[str] = []
    begins = []
    for attempt, workers in enumerate(failed):
        begins += [len(lines) + 1] * (attempt > 0)
        lines += between
        lines += [report(20 * attempt, 77, local, 1000 * attempt + local + 100) for local in range(workers)]
    assert begins == restarts(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        [report(0, 77, 0, 100), report(0, 77, 1, 101)],  # two workers
        [report(0, 77, 1, 101), report(1, 88, 1, 201)],  # two agents
        [report(0, 77, 1, 101), report(9, 77, 1, 101)],  # said twice
        [f"node01: {report(0, 7, 1, 101)}", f"node02: {report(9, 7, 1, 202)}"],  # containers number from 1
        [report(0, 7, 1, 101), report(0, 7, 1, 202)],  # no process starts and fails in the same second
        [
            report(0, 7, 0, 101),
            report(9, 7, 0, 202),
            *table("node01", 0, 101),
            *table("node02", 8, 202),
        ],  # of two nodes
    ],
)
def test_other_reports_are_no_restart(lines: list[str]) -> None:
    assert [] == restarts(*lines)


def test_the_failure_of_the_first_attempt_comes_first() -> None:
    lines = ["[rank1]: Traceback (most recent call last):", '[rank1]:   File "train.py", line 61, in <module>',
             "[rank1]: RuntimeError: CUDA error: unspecified failure", report(0, 77, 1, 101), MEET, report(41, 77, 1, 202)]  # fmt: skip
    first, *more = analyze.report_of(analyze.read_text("\n".join(lines) + "\n")).findings
    met = next(one for one in more if one.name == "rendezvous-failed")
    assert ("cuda-error", "1") == (first.name, first.ranks)
    assert [] == met.explained_by
    assert first.message.startswith("CUDA reports: ")
