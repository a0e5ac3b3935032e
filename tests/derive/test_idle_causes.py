"""GPUs that do nothing while steps wait for data or checkpoints are written, by the clocks of the log and of the samples."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import IdleCause

START = datetime(2026, 5, 7, 12)


def written(
    folder: Path, waits: set[int], idle: set[int], checkpoints: bool = False, zone: str = ""
) -> tuple[Report, Facts]:
    """120 steps of two seconds, those in `waits` of eight, six of them for data; two GPUs that have no work in steps in `idle`."""
    now, log, busy = START, [], []
    for step in range(120):
        seconds = 8 if step in waits else 2
        if checkpoints and step in waits:
            log.append(f"{now:%Y-%m-%d %H:%M:%S},000{zone} INFO saving checkpoint at step {step} to /scratch/run")
        busy += [not (step in idle and 1 < second < 7) for second in range(seconds)]
        now += timedelta(seconds=seconds)
        data = 6.0 if step in waits and not checkpoints else 0.01
        log.append(
            f"{now:%Y-%m-%d %H:%M:%S},000{zone} INFO Epoch: [0][{step:3d}/120] Time {seconds:.3f} ( 2.1)  Data {data:.3f} ( 0.1)"
        )
    rows = ["timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]"]
    for second, works in enumerate(busy):
        when = START + timedelta(seconds=second)
        rows += [
            f"{when:%Y/%m/%d %H:%M:%S}.500, {gpu}, {96 if works else 0} %, 60000 MiB, {600 if works else 120}.00 W"
            for gpu in (0, 1)
        ]
    (folder / "train.log").write_text("\n".join(log) + "\n")
    (folder / "gpu.csv").write_text("\n".join(rows) + "\n")
    report, facts, _ = analyze.analyze([str(folder)])
    return report, facts


SLOW = {20, 40, 60, 80, 100}


def test_waits_for_data_explain_idle_gpus(tmp_path: Path) -> None:
    report, facts = written(tmp_path, SLOW, SLOW)
    causes = facts.rows(IdleCause)
    assert {("data", 5, 5, 113, 0)} == {
        (row.cause, row.events, row.followed, row.others, row.others_idle) for row in causes
    }
    assert [25.0, 25.0] == pytest.approx([row.seconds for row in causes])  # five seconds of each
    finding = next(one for one in report.findings if one.name == "gpus-idle-for-input")
    assert finding.message.startswith("2 GPUs do nothing in 5 of 5 steps that wait for data, and in 0 of 113 others")
    assert {one.file.rpartition("/")[2] for one in finding.evidence} == {"train.log", "gpu.csv"}


def test_checkpoints_explain_idle_gpus_with_their_lag(tmp_path: Path) -> None:
    report, facts = written(tmp_path, SLOW, SLOW, checkpoints=True)
    assert {("checkpoint", 5, 5)} == {(row.cause, row.events, row.followed) for row in facts.rows(IdleCause)}
    assert {2.5} == {row.lag for row in facts.rows(IdleCause)}
    finding = next(one for one in report.findings if one.name == "gpus-idle-for-checkpoint")
    assert "2 GPUs fall idle 2.5 s after 5 of 5 lines of a checkpoint" in finding.message


@pytest.mark.parametrize(
    ("waits", "idle", "checkpoints"),
    [
        (SLOW, set(), False),  # busy all the time
        (SLOW, {21, 41, 61, 81, 101}, False),  # idle in other steps
        (SLOW, {step for step in range(120) if step not in SLOW}, False),
        ({20}, {20}, False),  # once is chance
        (SLOW, {20, 40}, True),  # idle behind two of five
    ],
)
def test_other_idle_times_are_not_explained(tmp_path: Path, waits: set[int], idle: set[int], checkpoints: bool) -> None:
    report, facts = written(tmp_path, waits, idle, checkpoints)
    assert [] == facts.rows(IdleCause)
    assert not any(one.name.startswith("gpus-idle-for") for one in report.findings)


def test_a_clock_of_another_zone_is_not_compared(tmp_path: Path) -> None:
    assert [] == written(tmp_path, SLOW, SLOW, zone="Z")[1].rows(IdleCause)
