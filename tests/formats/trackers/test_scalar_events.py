"""Records of trackers with one number each: offline runs of Comet, ClearML and Neptune."""

import io
import json
from pathlib import Path
from statistics import median

import pytest
from helpers.places import ROOT
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Scalar, Step, ThroughputRun
from nccl_doctor.formats.registry import recognise
from nccl_doctor.formats.trackers import scalar_events

FOLDER = ROOT / "fixtures" / "records" / "trackers"


def read(data: bytes) -> Facts:
    facts = Facts()
    scalar_events.read_format(io.BytesIO(data), "run", facts)
    return facts


def comet(name: str, value: float, step: int, when: float) -> str:
    metric = {"metricName": name, "metricValue": value, "step": step, "epoch": None}
    return json.dumps({"payload": {"local_timestamp": int(1000 * when), "metric": metric}, "type": "metric_msg"})


@pytest.mark.parametrize(
    ("name", "tool", "metrics"),
    [
        ("messages.json", "comet", {"step_time", "train_loss"}),
        ("metrics.jsonl", "clearml", {"loss/train", "throughput/samples_per_sec"}),
        ("data-1.log", "neptune", {"train/loss", "train/step_time"}),
    ],
)
def test_recorded_runs(name: str, tool: str, metrics: set[str]) -> None:
    data = (FOLDER / name).read_bytes()
    known = recognise(data)
    assert known is not None
    assert "tracker-events" == known.kind
    facts = read(data)
    (run,) = facts.rows(ThroughputRun)
    assert (tool, 20, 0, 19) == (run.tool, run.points, run.first_step, run.last_step)
    assert metrics == {row.name for row in facts.rows(Scalar) if not row.name.startswith("sys.")}
    costs = [step.seconds or 64 / (step.rate or 1) for step in facts.rows(Step)]
    assert 0.12 == pytest.approx(median(costs), rel=0.2)


def test_a_slow_stretch_by_the_times_of_the_loss(tmp_path: Path) -> None:
    lines, when = [], 1.7e9
    for step in range(200):
        when += 0.5 if 100 <= step < 140 else 0.125
        lines.append(comet("train_loss", float("nan") if step > 190 else 2.0, step, when))
        lines.append(comet("val_loss", 2.0, step, when))
    (tmp_path / "messages.json").write_text("\n".join(lines))
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert {"throughput-drop", "loss-nan"} == {finding.name for finding in report.findings}


@pytest.mark.parametrize("name", ["messages.json", "metrics.jsonl", "data-1.log"])
def test_a_broken_file_is_read_as_far_as_possible(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    lines = data.splitlines(keepends=True)
    broken = b"".join([*lines[: len(lines) // 2], b'{"payload": {\n', *lines[len(lines) // 2 :]]) + data[:200]
    reading = scalar_events.read_format(io.BytesIO(broken), "run", Facts())
    assert reading.note is not None
    assert "2 records are cut or damaged" in reading.note
    assert 40 <= reading.understood


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "payload",
                        "metric",
                        "value",
                        "step",
                        "iter",
                        "ts",
                        "name",
                        "path",
                        "metricName",
                        "metricValue",
                        "variant",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_any_record_gives_numbers_or_nothing(record: object) -> None:
    facts = read(json.dumps({"payload": record}).encode())
    assert all(row.name for row in facts.rows(Scalar))


def test_numbers_that_no_float_holds_are_left_out() -> None:
    huge = (
        '{"obj": {"type": "LogFloats", "path": ["step_time"], "values": [{"value": 1'
        + "0" * 400
        + ', "step": 1, "ts": 1}]}}'
    )
    assert [] == read(huge.encode()).rows(Scalar)
    far = (
        '{"obj": {"type": "LogFloats", "path": ["step_time"], "values": [{"value": 1.5, "step": 1'
        + "0" * 30
        + ', "ts": 1}]}}'
    )
    assert [] == read(far.encode()).rows(Step)
