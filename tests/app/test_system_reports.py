"""Logs and reports of a node's system: what they prove, and what in them is no job."""

from pathlib import Path

import pytest

from nccl_doctor.app.analyze import analyze
from nccl_doctor.facts.tables import Host, KnownMessage, Rank


def _found(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    path = tmp_path / "kernel.log"
    path.write_text(text)
    report, _, _ = analyze([str(path)])
    return [(finding.name, finding.severity) for finding in report.findings]


@pytest.mark.parametrize("said", ["lost carrier", "Lost carrier"])
def test_a_link_that_loses_its_carrier_again_and_again(tmp_path: Path, said: str) -> None:
    line = "Aug 17 06:18:0{} node01 systemd-networkd[5398]: ib6: {}\n"
    text = "".join(line.format(second, said) + line.format(second, "Gained carrier") for second in range(5))
    assert [("link-flapping", "warning")] == _found(tmp_path, text)


def test_a_link_that_went_down_once_is_no_finding(tmp_path: Path) -> None:
    assert [] == _found(tmp_path, "Aug 17 06:18:01 node01 systemd-networkd[5398]: ib6: Lost carrier\n")


def test_services_that_apparmor_confines_are_no_fault_of_shared_memory(tmp_path: Path) -> None:
    line = 'audit: type=1400 audit(1753325024.836:58): apparmor="DENIED" operation="{}" profile="{}" name="{}" pid=1368 comm="{}"\n'
    text = line.format("open", "/usr/sbin/ntpd", "/snap/bin/", "ntpd")
    assert [("setting-rejected", "note")] == _found(tmp_path, f"<5>[   21.242487] {text}")
    text = line.format("mknod", "site-job", "/dev/shm/nccl-Ab12", "python")
    assert [("shm-access-denied", "warning")] == _found(tmp_path, f"<5>[   21.242487] {text}")


def test_a_panic_comes_before_what_else_the_kernel_said(tmp_path: Path) -> None:
    text = (
        '<5>[   21.242487] audit: type=1400 audit(1753325024.836:58): apparmor="DENIED" operation="open" profile="/usr/sbin/ntpd"\n'
        "<0>[ 3098.275469] Kernel panic - not syncing: Fatal exception\n"
    )
    assert ("kernel-panic", "error") == _found(tmp_path, text)[0]


_REPORT = """____________________________________________

Start of NVIDIA bug report log file.  Please include this file, along
with a detailed description of your problem, when reporting a graphics

*** /proc/meminfo
DirectMap4k:      278032 kB
DirectMap2M:     5928960 kB

*** /proc/interrupts
 31:          0   51461  IR-PCI-MSI 524288-edge      nvidia
 32:          0     461  IR-PCI-MSI 524289-edge      nvidia

*** /proc/mtrr
reg00: base=0x000000000 (    0MB), size=16384MB, count=1: write-back
reg01: base=0x400000000 (16384MB), size= 8192MB, count=1: write-back

*** /var/log/Xorg.0.log
[  1527.588] (EE) Caught signal 11 (Segmentation fault). Server aborting
/usr/bin/nvidia-bug-report.sh: 926: nvidia-settings: not found
"""


def test_a_bug_report_is_of_no_hosts_and_ranks(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log"
    path.write_text(_REPORT)
    report, facts, _ = analyze([str(path)])
    assert ([], [], []) == (list(facts.rows(Host)), list(facts.rows(Rank)), report.findings)
    assert {"harmless"} == {row.kind for row in facts.rows(KnownMessage)}
    path.write_text(_REPORT.partition("***")[2])
    assert list(analyze([str(path)])[1].rows(Host))


_CONDA = "CondaError: Run 'conda init' before 'conda activate'\n"
_EPOCHS = "".join(f"epoch {n} | loss {3 - n / 10:.2f} | time 3.1s\n" for n in range(1, 6))


def test_an_environment_that_the_job_did_without_is_no_finding(tmp_path: Path) -> None:
    assert [] == _found(tmp_path, _CONDA + _EPOCHS)
    assert [("launch-failed", "error")] == _found(tmp_path, _CONDA)


def test_a_tool_that_collect_env_did_not_find_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "env.log"
    lines = (
        "PyTorch version: 2.5.1+cu124",
        "Clang version: Could not collect",
        "CUDA runtime version: Could not collect",
    )
    path.write_text("\n".join(("Collecting environment information...", *lines, "Is CUDA available: True", "")))
    report, _, _ = analyze([str(path)])
    assert ("nothing-found", []) == (report.verdict, report.findings)
