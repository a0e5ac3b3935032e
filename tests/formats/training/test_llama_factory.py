"""`trainer_log.jsonl` of LLaMA-Factory: times and rates of its steps from differences, as its own rate is that of the whole time."""

import io
import json
from datetime import timedelta

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.registry import recognise
from nccl_doctor.formats.training import records


def log(seconds: list[int], every: int = 10, tokens: int = 16_384, first: int = 1) -> str:
    lines, passed = [], 0
    for at, took in enumerate(seconds, first):
        passed += took
        said = {
            "current_steps": at * every, "total_steps": 1000, "loss": 2.0, "lr": 1e-05, "epoch": at / 100, "percentage": at,
            "elapsed_time": str(timedelta(seconds=passed)), "remaining_time": "1:00:00", "throughput": 1.0,
            "total_tokens": at * every * tokens,
        }  # fmt: skip
        lines.append(json.dumps(said))
    return "\n".join(lines) + "\n"


def read(text: str) -> Facts:
    facts = Facts()
    records.read_format(io.BytesIO(text.encode()), "trainer_log.jsonl", facts)
    return facts


def test_times_and_rates_equal_the_differences() -> None:
    text = log([30] * 20)
    known = recognise(text.encode())
    assert known is not None
    assert "training-records" == known.kind
    facts = read(text)
    assert ["llama-factory"] == [run.tool for run in facts.rows(ThroughputRun)]
    assert {(3.0, 5461.3)} == {(row.seconds, round(row.rate or 0, 1)) for row in facts.rows(Step)}
    assert [20, 200] == [facts.rows(Step)[at].step for at in (0, -1)]


def test_slow_steps_show() -> None:
    assert [3.0, 3.0, 5.4, 5.4] == [row.seconds for row in read(log([30, 30, 30, 54, 54])).rows(Step)]


def test_a_run_of_more_than_a_day() -> None:
    assert [1000.0] * 12 == [row.seconds for row in read(log([10_000] * 13)).rows(Step)]


def test_the_clock_of_a_run_that_went_on_from_a_checkpoint_begins_anew() -> None:
    facts = read(log([30, 30, 30]) + log([40, 40, 40], first=4))
    assert [(20, 3.0), (30, 3.0), (50, 4.0), (60, 4.0)] == [(row.step, row.seconds) for row in facts.rows(Step)]


@pytest.mark.parametrize(
    "line",
    [
        '{"current_steps": "x", "elapsed_time": "0:00:01"}',
        '{"current_steps": 5, "elapsed_time": 3}',
        '{"current_steps": 5, "elapsed_time": "' + "1" * 5000 + '"}',
        '{"current_steps": 1e999, "elapsed_time": "0:00:01", "total_tokens": -5}',
    ],
)
def test_odd_records_are_left_out(line: str) -> None:
    facts = read(log([30, 30]) + f"{line}\n" + log([30, 30, 30]).splitlines()[2] + "\n")
    assert [3.0, 3.0] == [row.seconds for row in facts.rows(Step)]
