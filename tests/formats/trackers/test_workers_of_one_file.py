"""Tables and records in which the rows of several ranks or hosts stand together: the slow one is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import ThroughputRun

SLOW, RANKS, STEPS = 5, 8, 24


def seconds(rank: int, step: int) -> float:
    return (0.9 if rank == SLOW else 0.5) + step % 3 / 100


def table(title: str, label: Callable[[int], str]) -> str:
    rows = [f"{label(rank)},{step},{seconds(rank, step):.3f}" for step in range(STEPS) for rank in range(RANKS)]
    return "\n".join([f"{title},step,step_time_s", *rows, ""])


def records(key: str) -> str:
    rows = [
        {key: rank, "step": step, "iter_time": seconds(rank, step), "loss": 2.0}
        for step in range(STEPS)
        for rank in range(RANKS)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("steps.csv", table("rank", str), (None, SLOW)),
        ("steps.csv", table("hostname", "node-{}".format), (f"node-{SLOW}", None)),
        ("steps.jsonl", records("rank"), (None, SLOW)),
        ("steps.jsonl", records("global_rank"), (None, SLOW)),
    ],
)
def test_the_slow_one_is_named(tmp_path: Path, name: str, text: str, where: tuple[str | None, int | None]) -> None:
    path = tmp_path / name
    path.write_text(text)
    report, facts, problems = analyze.analyze([str(path)])
    assert [] == problems
    assert RANKS == len(facts.rows(ThroughputRun))
    (found,) = [finding for finding in report.findings if finding.rule == "PERF243"]
    host, rank = where
    assert (host or "", "" if rank is None else str(rank)) == (found.hosts or "", found.ranks or "")


def test_the_rank_of_an_adapter_is_no_process(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(f'{{"rank": 16, "step": {step}, "step_time": 0.5, "loss": 2.0}}\n' for step in range(30)))
    _, facts, _ = analyze.analyze([str(path)])
    assert [(None, 30)] == [(run.rank, run.points) for run in facts.rows(ThroughputRun)]


def test_too_many_workers_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(
        "host,step,step_time_s\n" + "".join(f"node-{n},{step},0.5\n" for step in range(3) for n in range(700))
    )
    _, facts, _ = analyze.analyze([str(path)])
    assert 513 == len(facts.rows(ThroughputRun))
