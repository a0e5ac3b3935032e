"""Output of more training programs (fixtures/records/recorded/README.md), against numbers read from it without our readers."""

import csv
import json
import re
import statistics
import struct
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input, Measure, Scalar, Step, ThroughputRun

RECORDED = FIXTURES / "records" / "recorded"


def facts_of(name: str) -> Facts:
    facts, problems = analyze.read_facts([str(RECORDED / name)])
    assert [] == problems
    return facts


def measured(facts: Facts) -> dict[str, float]:
    return {measure.name: measure.value for measure in facts.rows(Measure)}


def scalars(facts: Facts) -> dict[str, Scalar]:
    return {scalar.name: scalar for scalar in facts.rows(Scalar)}


def test_log_of_timm() -> None:
    lines = re.findall(
        r"^Train: \d.*?Time: ([\d.]+)s, +([\d.]+)/s .*Data: ([\d.]+)", (RECORDED / "timm.log").read_text(), re.MULTILINE
    )
    seconds, rates, waits = ([float(line[at]) for line in lines] for at in range(3))
    report, facts, _ = analyze.analyze([str(RECORDED / "timm.log")])
    assert [] == report.findings
    found = facts.rows(Step)
    assert (seconds, rates, waits) == (
        [row.seconds for row in found],
        [row.rate for row in found],
        [row.data for row in found],
    )
    assert 20 == measured(facts)["steps"]  # two epochs of ten, of which every second and the last are printed
    assert measured(facts)["throughput"] == pytest.approx(statistics.median(rates), rel=0.05)
    assert measured(facts)["step_time"] == pytest.approx(statistics.median(seconds), rel=0.05)


def test_bar_and_metrics_of_torchtune() -> None:
    text = (RECORDED / "torchtune_metrics.txt").read_text()
    rates = [float(rate) for rate in re.findall(r"tokens_per_second_per_gpu:([\d.]+)", text)]
    losses = [float(loss) for loss in re.findall(r"loss:([\d.]+)", text)]
    facts = facts_of("torchtune_metrics.txt")
    assert rates == pytest.approx([row.rate for row in facts.rows(Step)])
    assert (25, 25) == (len(rates), measured(facts)["steps"])
    assert measured(facts)["throughput"] == pytest.approx(statistics.median(rates[4:]))  # the first four are slower
    (bar_loss,) = re.findall(
        r"25\|Loss: ([\d.]+): 100%\S* 25/25 \[\S+, +[\d.]+it/s\]\s*\Z", (RECORDED / "torchtune.log").read_text()
    )
    assert losses[-1] == pytest.approx(float(bar_loss))
    report, facts, _ = analyze.analyze([str(RECORDED / "torchtune.log")])
    assert [] == report.findings
    assert 25 == measured(facts)["steps"]
    assert [(2,)] == facts.query("SELECT ranks FROM job")


def test_log_and_scalars_of_mmengine() -> None:
    records = [json.loads(line) for line in (RECORDED / "mmengine_scalars.json").read_text().splitlines()]
    facts = facts_of("mmengine_scalars.json")
    assert ["training-records"] == [one.kind for one in facts.rows(Input)]
    assert [(record["step"], record["time"], record["data_time"]) for record in records] == [
        (row.step, row.seconds, row.data) for row in facts.rows(Step)
    ]
    loss = scalars(facts)["loss"]
    assert (20, 10, 200, records[-1]["loss"]) == (loss.n, loss.first_step, loss.last_step, loss.last)
    report, log, _ = analyze.analyze([str(RECORDED / "mmengine.log")])
    assert [("cpu-framework-installed", "note")] == [(finding.name, finding.severity) for finding in report.findings]
    assert [round(record["time"], 4) for record in records] == [row.seconds for row in log.rows(Step)]
    for found in (measured(facts), measured(log)):
        assert 200 == found["steps"]
        assert found["step_time"] == pytest.approx(statistics.median(record["time"] for record in records), rel=0.15)


def test_scalars_of_mmengine_that_are_cut(tmp_path: Path) -> None:
    text = (RECORDED / "mmengine_scalars.json").read_text()
    (tmp_path / "scalars.json").write_text(text[: text.index('"step": 150')] + "\n" + text[-200:])
    facts, problems = analyze.read_facts([str(tmp_path)])
    assert 14 < len(facts.rows(Step)) < 20
    assert "records are cut or damaged" in problems[0]


def test_metrics_of_detectron2_name_the_step_iteration(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(
        "".join(
            json.dumps(
                {"data_time": 0.01, "eta_seconds": 9.0, "iteration": n, "lr": 0.1, "time": 0.25, "total_loss": 2.5}
            )
            + "\n"
            for n in range(19, 400, 20)
        )
    )
    facts, problems = analyze.read_facts([str(tmp_path)])
    assert [] == problems
    assert (400, 0.25) == (measured(facts)["steps"], measured(facts)["step_time"])
    assert 2.5 == scalars(facts)["total_loss"].last


@pytest.mark.parametrize(("name", "loss"), [("keras.csv", "loss"), ("timm_summary.csv", "train_loss")])
def test_tables_with_a_row_an_epoch_count_epochs(name: str, loss: str) -> None:
    rows = list(csv.DictReader((RECORDED / name).open()))
    facts = facts_of(name)
    assert len(rows) == measured(facts)["epochs"]
    assert "steps" not in measured(facts)
    assert (float(rows[0][loss]), float(rows[-1][loss])) == (scalars(facts)[loss].first, scalars(facts)[loss].last)
    report, _, _ = analyze.analyze([str(RECORDED / name)])
    assert [] == report.findings


@pytest.mark.parametrize("name", ["keras.log", "keras_verbose2.log"])
def test_the_time_of_a_step_of_keras_is_that_of_each_epoch(name: str) -> None:
    text = re.sub(r"\x1b\[\d*m", "", (RECORDED / name).read_text())
    shown = [float(found) / 1000 for found in re.findall(r"\b57/57 .*?(\d+)ms/step", text)]
    facts = facts_of(name)
    assert [(57 * epoch, seconds) for epoch, seconds in enumerate(shown, 1)] == [
        (row.step, row.seconds) for row in facts.rows(Step)
    ]
    assert 57 * len(shown) == measured(facts)["steps"]


def test_batches_of_open_clip() -> None:
    shown = re.findall(
        r"Data \(t\): ([\d.]+) Batch \(t\): ([\d.]+), ([\d.]+)/s,", (RECORDED / "openclip.log").read_text()
    )
    rows = [(row.data, row.seconds, row.rate) for row in facts_of("openclip.log").rows(Step)]
    assert [tuple(map(float, line)) for line in shown] == rows


def test_packages_that_do_not_match() -> None:
    report, _, _ = analyze.analyze([str(RECORDED / "torchvision_mismatch.log")])
    assert "extension-built-for-other-version" == report.findings[0].name


def test_log_and_events_of_torchtitan() -> None:
    data = (RECORDED / "torchtitan.tfevents").read_bytes()
    events: dict[str, list[float]] = {}
    for match in re.finditer(rb"\x0a([\x01-\x40])([\w/()%]+)\x15(.{4})", data, re.DOTALL):
        if len(match[2]) == match[1][0]:
            events.setdefault(match[2].decode(), []).append(struct.unpack("<f", match[3])[0])
    facts = facts_of("torchtitan.tfevents")
    assert events["throughput(tps)"] == [row.rate for row in facts.rows(Step)]
    assert events["time_metrics/end_to_end(s)"] == [row.seconds for row in facts.rows(Step)]
    assert events["time_metrics/data_loading(s)"] == [row.data for row in facts.rows(Step)]
    assert events["loss_metrics/global_avg_loss"][-1] == scalars(facts)["loss_metrics/global_avg_loss"].last
    shown = re.findall(r"step: +(\d+) .*?tps: ([\d,]+)", (RECORDED / "torchtitan.log").read_text())
    report, log, _ = analyze.analyze([str(RECORDED / "torchtitan.log")])
    assert [] == report.findings
    assert [(int(step), float(rate.replace(",", ""))) for step, rate in shown] == [
        (row.step, row.rate) for row in log.rows(Step)
    ]
    assert [round(rate) for rate in events["throughput(tps)"]] == [row.rate for row in log.rows(Step)]
    for found in (facts, log):
        assert 30 == measured(found)["steps"]  # the first and every second are printed
        assert ["gpu"] == [run.scope for run in found.rows(ThroughputRun)]


def test_log_and_metrics_of_maxtext() -> None:
    records = [json.loads(line) for line in (RECORDED / "maxtext_metrics.txt").read_text().splitlines()]
    facts = facts_of("maxtext_metrics.txt")
    seconds = [record["perf/step_time_seconds"] for record in records]
    assert (seconds, [record["perf/per_device_tokens_per_sec"] for record in records]) == (
        [row.seconds for row in facts.rows(Step)], [row.rate for row in facts.rows(Step)]
    )  # fmt: skip
    _, log, _ = analyze.analyze([str(RECORDED / "maxtext.log")])
    assert [round(value, 3) for value in seconds] == [row.seconds for row in log.rows(Step)]
    for found in (facts, log):
        assert 30 == measured(found)["steps"]
        assert measured(found)["step_time"] == pytest.approx(statistics.median(seconds), rel=0.05)
        assert ["gpu"] == [run.scope for run in found.rows(ThroughputRun)]
    assert records[-1]["learning/loss"] == scalars(facts)["learning/loss"].last


def test_metrics_of_maxtext_that_are_cut(tmp_path: Path) -> None:
    data = (RECORDED / "maxtext_metrics.txt").read_bytes()
    (tmp_path / "metrics.txt").write_bytes(data[: len(data) // 2])
    facts, problems = analyze.read_facts([str(tmp_path)])
    assert 14 <= len(facts.rows(Step)) <= 15
    assert "1 records are cut or damaged" in problems[0]


def test_lines_of_nemo() -> None:
    text = (RECORDED / "nemo.log").read_text()
    lines = re.findall(r"iteration (\d+)/29 .*reduced_train_loss: ([\d.]+) \| train_step_timing in s: ([\d.e-]+)", text)
    report, facts, _ = analyze.analyze([str(RECORDED / "nemo.log")])
    assert ("healthy", []) == (report.verdict, report.findings)
    assert [(int(step), float(seconds)) for step, _, seconds in lines] == [
        (row.step, row.seconds) for row in facts.rows(Step)
    ]
    assert (30, 30) == (len(lines), measured(facts)["steps"])
    assert measured(facts)["step_time"] == pytest.approx(
        statistics.median(float(line[2]) for line in lines[2:]), rel=0.05
    )


@pytest.mark.parametrize(
    "name", ["timm.log", "torchtune.log", "mmengine.log", "torchtitan.log", "maxtext.log", "nemo.log"]
)
def test_logs_that_are_cut_or_mixed_stay_without_a_fault(tmp_path: Path, name: str) -> None:
    data = (RECORDED / name).read_bytes()
    (tmp_path / "cut.log").write_bytes(data[:-300])
    (tmp_path / "mixed.log").write_bytes(b"\xff \n" + data.replace(b"\n", b"\r\n") + data)
    for path in (tmp_path / "cut.log", tmp_path / "mixed.log"):
        report, facts, _ = analyze.analyze([str(path)])
        assert [] == [finding for finding in report.findings if finding.severity == "error"]
        assert len(facts.rows(Step)) >= 5
