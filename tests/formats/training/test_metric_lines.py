"""Programs that print one metric a line, or one line an epoch, without the number of a step beside the speed."""

import random
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Measure, Steady, Step

OLMO = (
    "[step={step}/900,epoch=1,eta=0:12:00]\n    optim/total grad norm=1.203\n    throughput/device/{key}={rate:,.0f}\n"
)


@pytest.mark.parametrize("key", ["TPS", "tokens_per_second"])
def test_metrics_of_olmo_on_lines_of_their_own(tmp_path: Path, key: str) -> None:
    noise = random.Random(1)
    text = "".join(OLMO.format(step=step, key=key, rate=noise.gauss(12_300, 20)) for step in range(10, 900, 10))
    path = tmp_path / "train.log"
    path.write_text(text)
    _, facts, _ = analyze.analyze([str(path)])
    (speed,) = facts.rows(Steady)
    assert 12_300 == pytest.approx(speed.rate, rel=0.001)
    assert list(range(10, 900, 10)) == [step.step for step in facts.rows(Step)]


def test_the_number_of_a_step_far_above_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "[batch=10/900]:\n\t Train throughput/samples_per_sec: 120.5\n"
        + "words\n" * 400
        + "\t Train throughput/samples_per_sec: 121.5\n[step=x/900,epoch=1]\n"
    )
    _, facts, _ = analyze.analyze([str(path)])
    assert [10, None] == [step.step for step in facts.rows(Step)]


def test_the_time_of_a_step_that_mindspore_prints_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "ms.log"
    lines = [f"Train epoch time: {252_346 + epoch}.0 ms, per step time: 252.{epoch} ms" for epoch in range(5)]
    path.write_text("\n".join([*lines, "Eval epoch time: 91.0 ms, per step time: 9.1 ms"]) + "\n")
    report, facts, _ = analyze.analyze([str(path)])
    assert [] == report.findings
    measures = {row.name: row.value for row in facts.rows(Measure)}
    assert 0.2522 == pytest.approx(measures["step_time"])
    assert "steps" not in measures  # an epoch has more than one


def test_step_lines_of_mindformers(tmp_path: Path) -> None:
    path = tmp_path / "worker_0.log"
    path.write_text(
        "".join(
            f"2026-03-02 10:12:{9 * step // 4:02d},101 - [mindformers/core/callback/callback.py:529] - INFO - {{ Epoch:[  1/  2], "
            f"step:[{step:5d}/ 5000], loss: 10.6{step:02d}, per_step_time: {9100 + step}ms, lr: 1e-05, overflow cond: False, "
            f"loss_scale: 1.0, global_norm: [12.2], train_throughput_per_npu: 181.{step:03d}T\n"
            f"2026-03-02 10:12:{9 * step // 4:02d},102 - [mindformers/core/callback/callback.py:540] - INFO -    0.1% |      | "
            "3.51680 samples/s/p  12:38:12 }\n"
            for step in range(2, 22, 2)
        )
    )
    report, facts, _ = analyze.analyze([str(path)])
    assert [] == report.findings
    measures = {row.name: row.value for row in facts.rows(Measure)}
    assert 9.111 == pytest.approx(measures["step_time"])
    assert 181.011 == pytest.approx(measures["tflops"])
    assert 20 == measures["steps"]


SETUP = """\
[INFO|trainer.py:2134] 2026-03-02 10:00:00,001 >>   Num Epochs = 3
[INFO|trainer.py:2137] 2026-03-02 10:00:00,001 >>   Total train batch size (w. parallel, distributed & accumulation) = 128
[INFO|trainer.py:2139] 2026-03-02 10:00:00,001 >>   Total optimization steps = 1,218
"""


def _dicts(setup: str, seconds: int = 28) -> str:
    lines, clock = [setup], 36_000
    for line in range(1, 61):
        clock += seconds
        at = f"2026-03-02 {clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
        lines.append(
            f"{at} - INFO - {{'loss': {2 - line / 100}, 'grad_norm': 1.0, 'learning_rate': 2e-05, 'epoch': {line * 10 / 406:.2f}}}\n"
        )
        if line % 20 == 0:
            lines.append(
                f"[INFO|trainer.py:3503] {at},900 >> Saving model checkpoint to ./out/checkpoint-{line * 10}\n"
            )
            clock += 60
    return "".join(lines)


def test_dictionaries_of_the_trainer_without_steps_tell_what_a_checkpoint_costs(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(_dicts(SETUP))
    report, facts, _ = analyze.analyze([str(path)])
    measures = {row.name: row.value for row in facts.rows(Measure)}
    assert 2.8 == pytest.approx(measures["step_time"])
    assert 128 / 2.8 == pytest.approx(measures["throughput"])
    (finding,) = report.findings
    assert ("throughput-stalls", "note") == (finding.name, finding.severity)
    assert "beside a checkpoint, which costs 60.0 s" in finding.message


@pytest.mark.parametrize(("setup", "seconds"), [("", 28), (SETUP, 1)], ids=["epochs of unknown length", "coarse clock"])
def test_dictionaries_tell_no_speed_where_nothing_proves_one(tmp_path: Path, setup: str, seconds: int) -> None:
    path = tmp_path / "train.log"
    path.write_text(_dicts(setup, seconds))
    report, facts, _ = analyze.analyze([str(path)])
    assert [] == report.findings
    assert {"loss"} == {row.name for row in facts.rows(Measure)}
