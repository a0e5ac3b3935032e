"""The loss of the last step line, and the mean of steps of unequal length in the report."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Measure, Scalar
from nccl_doctor.formats.training.steps.last_loss import loss_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step:40/50 val_loss:3.25 train_time:812ms step_avg:20.30ms", ("val_loss", 3.25)),
        ("iteration 12/ 50 | lm loss: 2.5E+00 | loss scale: 8.0 |", ("loss", 2.5)),
        ("Epoch: [0][440/554] Time 1.2 (5.4) Loss 8.5 (14.9)", ("loss", 8.5)),
        ("step 250 | loss: -0.5 | dt: 18931.22ms", ("loss", -0.5)),
        ("{'loss': 1.75, 'grad_norm': 0.5}", ("loss", 1.75)),
        ("step 7 loss=nan 0.5 s/it", ("loss", pytest.approx(float("nan"), nan_ok=True))),
        ("step 7 loss scale: 65536", None),
        ("step 7 Loss/tok 3.5", None),
        ("step 7 packet_loss 0.5", None),
        ("step 7 loss 25% done", None),
    ],
)
def test_the_loss_of_a_line(line: str, expected: tuple[str, float] | None) -> None:
    assert expected == loss_of(line.encode())


def run(tmp_path: Path, lines: list[str]) -> tuple[str, dict[str, float], list[Scalar]]:
    log = tmp_path / "train.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    report, facts, _ = analyze.analyze([str(log)])
    return " ".join(report.job_lines), {row.name: row.value for row in facts.rows(Measure)}, facts.rows(Scalar)


def test_the_report_shows_the_loss_of_the_last_step(tmp_path: Path) -> None:
    lines = [f"step {n} | loss: {4 - n / 20:.2f} | step_time: 0.50 s" for n in range(60)]
    shown, measured, scalars = run(tmp_path, [*lines, "evaluation done, loss: 9.0"])
    assert ("loss 1.05 at the end" in shown, 1.05) == (True, measured["loss"])
    assert [("loss", 1)] == [(one.name, one.n) for one in scalars]


def test_lines_without_a_loss(tmp_path: Path) -> None:
    shown, measured, scalars = run(tmp_path, [f"step {n} | step_time: 0.50 s" for n in range(60)])
    assert ("loss" not in shown, "loss" not in measured, []) == (True, True, scalars)


def test_the_mean_of_sections_of_other_speed(tmp_path: Path) -> None:
    seconds = [0.25] * 40 + [0.5] * 60
    shown, measured, _ = run(tmp_path, [f"step {n} | step_time: {s} s" for n, s in enumerate(seconds)])
    assert measured["step_mean"] == pytest.approx(0.4)
    assert "500 ms a step (mean 400 ms)" in shown


def test_the_mean_of_even_steps_is_not_shown(tmp_path: Path) -> None:
    shown, _, _ = run(tmp_path, [f"step {n} | step_time: {0.5 + n % 3 / 100} s" for n in range(60)])
    assert "mean" not in shown
