"""What could keep a job from starting did not where the same file ends in order behind it; anything else stays an error."""

from pathlib import Path

import pytest
from helpers.log_prefixes import simulated

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Finding

SMI = "No devices were found"
PASSED = [
    f':::MLLOG {{"time_ms": {1_790_000_000_000 + 60_000 * at}, "key": "{key}", "value": null, "metadata": {{"status": "success"}}}}'
    for at, key in enumerate(("init_start", "run_start", "run_stop"))
]
XID = "[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus."


def told(folder: Path, **files: list[str]) -> dict[str, Finding]:
    for name, lines in files.items():
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
    report, _, _ = analyze.analyze([str(folder)])
    return {finding.name: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"job": [SMI, *PASSED]}, "note"),
        ({"job": [SMI, *PASSED[:2]]}, "error"),
        ({"job": [*PASSED, SMI]}, "error"),
        ({"job": PASSED, "other": [SMI]}, "error"),
    ],
    ids=["before the end", "without the end", "behind the end", "in another file"],
)
def test_an_error_of_a_job_that_ended_in_order(tmp_path: Path, files: dict[str, list[str]], severity: str) -> None:
    assert severity == told(tmp_path, **files)["no-gpu-visible"].severity


def test_a_step_that_failed_before_a_run_that_succeeded_is_not_the_end(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "\n".join(["srun: error: node1: task 0: Exited with exit code 1", *PASSED]) + "\n"
    )
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert ("ended in order", set()) == (report.job["end"], {f.name for f in report.findings if f.severity != "note"})


def test_a_network_that_was_not_used_is_an_error_whatever_the_end() -> None:
    report = analyze.report_of(analyze.read_text("\n".join(said.text for said in simulated("ofi-wrong-provider"))))
    assert ("ofi-wrong-provider", "error") == (report.findings[0].name, report.findings[0].severity)


def test_hardware_that_failed_outlasts_a_good_end(tmp_path: Path) -> None:
    found = told(tmp_path, job=[XID, *PASSED])
    assert {"error"} == {finding.severity for finding in found.values() if "GPU" in finding.title}
