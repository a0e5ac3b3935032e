"""Numbers that stand beside the time of a step: rates beside a progress bar, keys of a summary; a rate that halves soon."""

import json
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report


def report_of(path: Path, text: str) -> Report:
    path.write_text(text)
    return analyze.analyze([str(path)])[0]


def measured(report: Report) -> dict[str, tuple[float, str]]:
    return {one.name: (one.value, one.unit) for one in report.measures}


def bar(step: int, of: int, seconds: float) -> str:
    spent = int(step * seconds)
    return f"{100 * step // of:3}%|{'#' * (step * 10 // of):10}| {step}/{of} [{spent // 60:02}:{spent % 60:02}<01:00, {seconds:5.2f}s/it]"


def test_tokens_beside_a_progress_bar(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 61):
        lines.append(bar(step, 60, 3.4 + step % 3 / 100))
        if step % 5 == 0:
            rate = 2400 + step % 7
            lines.append(
                f"{{'loss': 1.5, 'grad_norm': 0.5, 'tokens_per_second_per_gpu': {rate}.25, 'epoch': {step / 60:.2f}}}"
            )
    numbers = measured(report_of(tmp_path / "train.log", "\n".join(lines) + "\n"))
    assert pytest.approx(3.41, abs=0.01) == numbers["step_time"][0]
    assert "tokens/s a GPU" == numbers["throughput"][1]
    assert 2400 <= numbers["throughput"][0] <= 2407


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({"perf/step_time": 5.2, "perf/tokens_per_second": 98_000.0}, 5.2),
        ({"iteration-time": 6.25, "throughput": 402.1}, 6.25),
        ({"throughput/batches_per_sec": 0.125, "throughput/device/tokens_per_sec": 8985.6}, 8.0),
        ({"train/loss": 2.0}, 7.0),
    ],
)
def test_the_time_of_a_step_in_a_summary(tmp_path: Path, keys: dict[str, float], seconds: float) -> None:
    summary = {"_runtime": 7000.0, "_step": 999, "_timestamp": 1770000000.5, **keys}
    numbers = measured(report_of(tmp_path / "wandb-summary.json", json.dumps(summary)))
    assert (pytest.approx(seconds), "s") == numbers["step_time"]


def test_evaluations_of_nanogpt_are_the_reason_of_its_slow_steps(tmp_path: Path) -> None:
    lines = []
    for step in range(0, 1001, 10):
        if step % 100 == 0:
            lines.append(f"step {step}: train loss {4 - step / 1000:.4f}, val loss {4.1 - step / 1000:.4f}")
        took = 9000 if step % 100 == 0 else 220 + step % 7
        lines.append(f"iter {step}: loss {4 - step / 1000:.4f}, time {took:.2f}ms, mfu 36.10%")
    (finding,) = report_of(tmp_path / "train.log", "\n".join(lines) + "\n").findings
    assert "periodic-dips" == finding.name
    assert "every 100 steps" in finding.message
    assert finding.message.endswith("an evaluation is logged beside most of them")


@pytest.mark.parametrize(("number", "slow_from"), [(10, 5), (20, 10), (60, 30), (20, 99)])
def test_a_rate_that_halves_within_some_records(tmp_path: Path, number: int, slow_from: int) -> None:
    text = "".join(
        f'DLLL {{"timestamp": "{1770000000 + 12 * turn}.0", "elapsedtime": "{12 * turn}.0", "type": "LOG", "step": [0, {10 * turn}],'
        f' "data": {{"train_loss": 7.5, "training_sequences_per_second": {(2950 if turn < slow_from else 1460) + turn % 5}.5}}}}\n'
        for turn in range(number)
    )
    report = report_of(tmp_path / "train.log", text)
    wanted = [f"from step {10 * slow_from} on dllogger"] if slow_from < number else []
    assert wanted == [finding.message.partition(" shows")[0] for finding in report.findings]
