"""A watched job: what happens in its slow steps is told with its lag or its counts, and what happens at other times is not."""

import re
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import IdleCause, Lead, ThrottledSteps
from nccl_doctor.simulate import MONITORED_FAULTS, Spec, write_monitored

SENTENCES = {
    "throttled-steps": ("gpu-thermal-throttle", r"; in 5 of 5 slow steps and in 0 of 11\d others$"),
    "input-waits": (
        "gpus-idle-for-input",
        r"^2 GPUs do nothing in 5 of 5 steps that wait for data, and in 0 of 11\d others",
    ),
    "checkpoint-dips": ("gpus-idle-for-checkpoint", r"^2 GPUs fall idle 1\.5 s after 5 of 5 lines of a checkpoint"),
    "storage-stalls": (
        "filesystem-not-responding",
        r"; 7 s before the end of step 17 that took 8 s \(job\.log:\d+\)$",
    ),
    "link-retries": ("ib-link-flapping", r"; 7 s before the end of step 17 that took 8 s \(job\.log:\d+\)$"),
}


@pytest.mark.parametrize("fault", [*MONITORED_FAULTS, None])
@pytest.mark.parametrize("apart", [False, True])
def test_what_falls_on_the_slow_steps_is_joined(fault: str | None, apart: bool, tmp_path: Path) -> None:
    for name, lines in write_monitored(Spec(nodes=1, gpus=2, fault=fault, seed=4), apart=apart).items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    report, facts, _ = analyze.analyze([str(tmp_path)])
    joined = [row for table in (IdleCause, Lead, ThrottledSteps) for row in facts.rows(table)]
    if apart or fault is None:
        assert [] == joined
        assert (fault is not None) == ("throughput-stalls" in {finding.name for finding in report.findings})
        return
    name, sentence = SENTENCES[fault]
    assert joined
    finding = next(one for one in report.findings if one.name == name)
    assert re.search(sentence, finding.message)


def test_equal_specs_give_equal_files() -> None:
    spec = Spec(nodes=2, gpus=2, fault="link-retries")
    assert write_monitored(spec) == write_monitored(spec)
    assert ["gpu_", "gpu_", "job.", "kern"] == sorted(name[:4] for name in write_monitored(spec))
    with pytest.raises(ValueError, match="a watched job shows"):
        write_monitored(Spec(fault="cuda-oom"))
