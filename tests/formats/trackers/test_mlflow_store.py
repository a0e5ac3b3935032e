"""The folder in which MLflow keeps a run: files of metrics, and what `meta.yaml` says of the end."""

import random
import tarfile
from pathlib import Path

import pytest

from nccl_doctor.app import analyze

BEGAN = 1766400000000
META = (
    "artifact_uri: file:///runs/1/artifacts\nend_time: 1766400500000\nlifecycle_stage: active\nrun_id: 1\nstatus: {}\n"
)


def keep(folder: Path, status: int) -> Path:
    """A run of 200 steps of 1.5 s that slows down to 2.5 s at step 120."""
    run = folder / "mlruns" / "7" / "1"
    (run / "metrics" / "train").mkdir(parents=True)
    source = random.Random(2)
    now, losses, rates = BEGAN, [], []
    for step in range(200):
        seconds = (1.5 if step < 120 else 2.5) * (1 + source.random() / 100)
        now += int(1000 * seconds)
        losses.append(f"{now} {'nan' if step > 180 else 4 - step / 100} {step}\n")
        rates.append(f"{now} {18_000 / seconds} {step}\n")
    (run / "metrics" / "train" / "loss").write_text("".join(losses))
    (run / "metrics" / "tokens_per_second").write_text("".join(rates))
    (run / "meta.yaml").write_text(META.format(status))
    (run.parent / "meta.yaml").write_text("artifact_location: file:///runs\nlifecycle_stage: active\nname: bert\n")
    (folder / "mlruns" / "conda.yaml").write_text("dependencies:\n- python=3.11\n")
    return folder


def test_rate_time_and_end_of_a_run(tmp_path: Path) -> None:
    report, facts, _ = analyze.analyze([str(keep(tmp_path, 4))])
    assert {"rank-exited", "throughput-drop", "loss-nan"} == {finding.name for finding in report.findings}
    values = {(name, unit): value for name, value, unit in facts.query("SELECT name, value, unit FROM measure")}
    assert pytest.approx(11_940, rel=0.01) == values["throughput", "tokens/s"]
    assert pytest.approx(1.507, rel=0.01) == values["step_time", "s"]
    assert {"train/loss", "tokens_per_second"} == {name for (name,) in facts.query("SELECT name FROM scalar")}


def test_the_end_stands_at_the_top_of_an_archive(tmp_path: Path) -> None:
    run = keep(tmp_path, 4) / "mlruns" / "7" / "1"
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(run / "meta.yaml", "meta.yaml")
        archive.add(run / "metrics", "metrics")
    report, _, _ = analyze.analyze([str(tmp_path / "run.tar")])
    assert "rank-exited" in {finding.name for finding in report.findings}


def test_in_an_archive_and_finished(tmp_path: Path) -> None:
    keep(tmp_path, 3)
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        archive.add(tmp_path / "mlruns", "mlruns")
    report, _, _ = analyze.analyze([str(tmp_path / "run.tar")])
    assert {"throughput-drop", "loss-nan"} == {finding.name for finding in report.findings}


def test_a_cut_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "loss").write_text(f"{BEGAN} 2.5 1\n{BEGAN + 900} 2.4 2\n{BEGAN + 1800} 2.")
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert ["mlflow-store"] == [one.kind for one in report.inputs]
