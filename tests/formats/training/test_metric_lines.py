"""Programs that print one metric a line, or one line an epoch, without the number of a step beside the speed."""

import random
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import Measure, Steady

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


def test_the_time_of_a_step_that_mindspore_prints_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "ms.log"
    lines = [f"Train epoch time: {252_346 + epoch}.0 ms, per step time: 252.{epoch} ms" for epoch in range(5)]
    path.write_text("\n".join([*lines, "Eval epoch time: 91.0 ms, per step time: 9.1 ms"]) + "\n")
    report, facts, _ = analyze.analyze([str(path)])
    assert [] == report.findings
    measures = {row.name: row.value for row in facts.rows(Measure)}
    assert 0.2522 == pytest.approx(measures["step_time"])
    assert "steps" not in measures  # an epoch has more than one
