"""JSON lines of training loops that people write themselves: steps, times and rates under names of their own."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.registry import recognise


def keep(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"step": 1, "loss": 2.5, "step_time_s": 0.5}, (0.5, 2.0, "steps/s")),
        ({"iteration": 1, "lm_loss": 2.5, "tokens_per_sec": 9000.0}, (None, 9000.0, "tokens/s")),
        ({"global_step/max_steps": "1/900", "loss": 2.5, "train_speed(iter/s)": 0.25}, (4.0, 0.25, "steps/s")),
        ({"timestamp": 1766400000.5, "step": 1, "loss": 2.5}, (1.0, 1.0, "steps/s")),
    ],
)
def test_lines_with_a_step(tmp_path: Path, record: dict[str, Any], wanted: tuple[float | None, ...]) -> None:
    def at(step: int) -> dict[str, Any]:
        moved = {key: step for key in ("step", "iteration") if key in record}
        if "timestamp" in record:
            moved["timestamp"] = record["timestamp"] + step
        return record | moved | ({"global_step/max_steps": f"{step}/900"} if "global_step/max_steps" in record else {})

    _, facts, _ = analyze.analyze([str(keep(tmp_path / "log.jsonl", [at(step) for step in range(1, 40)]))])
    (run,) = facts.rows(ThroughputRun)
    step = facts.rows(Step)[5]
    assert wanted == (step.seconds, step.rate, run.unit)
    assert 39 == run.last_step


def test_lines_of_a_logger_stay_a_log(tmp_path: Path) -> None:
    line = b'{"level": "info", "step": 1, "loss": 2.5, "message": "went on"}\n'
    assert recognise(2 * line) is None
    assert recognise(b'{"step": 1, "host": "a"}\n{"step": 2, "host": "a"}\n') is None


def test_ranks_of_one_file_are_runs(tmp_path: Path) -> None:
    source = random.Random(4)
    records = [
        {"rank": rank, "world_size": 4, "step": step, "step_time_s": 0.6 + source.random() / 100, "loss": 2.0}
        for step in range(50)
        for rank in range(4)
    ]
    _, facts, _ = analyze.analyze([str(keep(tmp_path / "all.jsonl", records))])
    assert [(rank, 50, 4) for rank in range(4)] == [
        (run.rank, run.points, run.gpus) for run in facts.rows(ThroughputRun)
    ]


def test_records_without_a_step_or_an_epoch_show_their_loss(tmp_path: Path) -> None:
    records = [{"train_lr": 1e-4, "train_loss": 4.0 - one, "test_map": [0.1]} for one in range(4)]
    report, _, _ = analyze.analyze([str(keep(tmp_path / "log.txt", records))])
    assert ("loss", 1.0) in {(one.name, one.value) for one in report.measures}


def test_records_of_epochs_are_no_steps(tmp_path: Path) -> None:
    records = [
        {"train_lr": 1e-4, "train_loss": 4.0 - epoch, "test_map": [0.1, 0.2], "epoch": epoch} for epoch in range(4)
    ]
    report, facts, _ = analyze.analyze([str(keep(tmp_path / "log.txt", records))])
    assert ["training-records"] == [one.kind for one in report.inputs]
    assert [] == facts.rows(ThroughputRun)
    assert {("loss", 1.0), ("epochs", 4.0)} == {(one.name, one.value) for one in report.measures}
