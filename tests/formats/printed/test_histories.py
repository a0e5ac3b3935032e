"""Histories of Keras and their like: lists of numbers as JSON, of one run or of several."""

import io
import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Measure, PrintedNumber, Scalar
from nccl_doctor.formats import registry
from nccl_doctor.formats.printed import histories

SEVERAL = FIXTURES / "records" / "histories.json"


def test_of_several_runs_the_slowest_is_named() -> None:
    report, facts, _ = analyze.analyze([str(SEVERAL)])
    assert [] == report.findings
    (times,) = facts.rows(PrintedNumber)
    assert ("epoch_time", "s", 30, "deep") == (times.name, times.unit, times.n, times.highest_label)
    assert {"baseline/train_loss", "wide/train_loss", "deep/train_loss", "epoch"} == {
        row.name for row in facts.rows(Scalar)
    }
    assert ("epochs", 10.0) in {(row.name, row.value) for row in facts.rows(Measure)}


def test_the_history_of_one_run_that_became_nan(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text('{"loss": [2.3, 2.1, NaN, NaN], "accuracy": [0.1, 0.2, 0.1, 0.1], "lr": [0.1, 0.1, 0.1, 0.1]}')
    report, _, _ = analyze.analyze([str(path)])
    assert {"training-histories"} == {read.kind for read in report.inputs}


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": {"steps": [1, 2], "values": [2.5, 2.4]}}',  # Sacred
        '{"points": [[1, 2], [3, 4]], "loss": "mse"}',
        '{"steps": [{"step": 1, "loss": 2.5}]}',
        '{"x": [1, 2, 3]}',
    ],
)
def test_other_documents_are_no_histories(text: str) -> None:
    known = registry.recognise(text.encode())
    assert known is None or known.kind != "training-histories"


@pytest.mark.parametrize(
    "text", ['{"loss": [1, 2', '{"loss": [1, "x", 2]}', '{"loss": []}', "[" * 5000, '{"loss": [1e400]}']
)
def test_damage_is_survived(text: str) -> None:
    assert 0 == histories.read_format(io.BytesIO(text.encode()), "h.json", Facts()).understood or "e400" in text


def test_a_file_that_says_no_more_than_a_number_of_names(tmp_path: Path) -> None:
    facts = Facts()
    many = {f"run{run}": {f"loss{n}": [1.0, 2.0] for n in range(300)} for run in range(100)}
    histories.read_format(io.BytesIO(json.dumps(many).encode()), "h.json", facts)
    assert len(facts.rows(Scalar)) <= 64 * 100 + 1
