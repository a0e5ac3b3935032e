"""The kernel's log of a node: stamps, traps of its lines, and faults that it reports."""

import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
from helpers.waiting import until

from nccl_doctor.app import preflight
from nccl_doctor.common import trusted
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts import tables
from nccl_doctor.node.host import clock, kernel_log, kernel_records
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node.kernel_log import HOUR, print_line

OURS = ("host", "kernel_log", "storage")
DRAINED = {
    "aer-fatal", "gpu-start-failed", "machine-check-uncorrected", "nfs-not-responding", "nic-firmware-dead", "sxid-fatal",
    "task-stuck-in-kernel", "xid-gpu-lost", "xid-gpu-stopped", "xid-gsp-silent", "xid-memory-fatal", "xid-nvlink",
    "xid-recovery-asked",
}  # fmt: skip


def judge(tree: node.Tree, folder: Path) -> Report:
    tree.write(folder)
    return preflight.report_of(preflight.look(Root(folder), names=OURS))


def planted() -> list[tuple[str, str]]:
    ours = [fault for fault in node.FAULTS.values() if fault.change.__module__.endswith(".kernel_log")]
    return [(fault.name, fault.machines[-1]) for fault in ours]  # tests/node/test_matrix.py takes all kinds of machines


@pytest.mark.parametrize(("fault", "machine"), planted())
def test_a_planted_fault_in_the_log_comes_first(fault: str, machine: str, tmp_path: Path) -> None:
    report = judge(node.build(machine, fault), tmp_path)
    assert fault == report.findings[0].name
    assert ("drain" if fault in DRAINED else "fit") == report.fitness


STAMPED = {
    "/dev/kmsg": "6,3973,1500000,-;text",
    "/dev/kmsg with a caller": "6,3973,1500000,-,caller=T12;text",
    "dmesg": "[    1.500000] text",
    "dmesg with a caller": "[    1.500000][  T812] text",
    "dmesg -r": "<4>[    1.500000] text",
    "dmesg --time-format iso": "1970-01-12T13:46:41,500000+00:00 text",
    "journalctl -o json": '{"MESSAGE": "text", "SYSLOG_FACILITY": "0", "_SOURCE_MONOTONIC_TIMESTAMP": "1500000"}',
    "journalctl -o json, of bytes": '{"MESSAGE": [116, 101, 120, 116], "_SOURCE_MONOTONIC_TIMESTAMP": "1500000"}',
    "journalctl -o short-iso": "1970-01-12T13:46:41+0000 node01 kernel: text",
    "dmesg -T": time.strftime("[%a %b %d %H:%M:%S %Y] text", time.localtime(1_000_001)),
}


@pytest.mark.parametrize("kind", STAMPED)
def test_stamps_become_seconds_since_the_epoch(kind: str) -> None:
    [record] = kernel_records.parse(STAMPED[kind], 1_000_000.0)
    assert "text" == record.text
    assert record.stamp == pytest.approx(1_000_001.5, abs=1)


def test_without_the_time_of_the_boot_seconds_since_it_are_no_time() -> None:
    assert [None, None] == [r.stamp for r in kernel_records.parse("[ 1.5] a\n[99999999999999999.5] b", None)]
    assert ["no stamp"] == [record.text for record in kernel_records.parse("no stamp", 1.0)]


def rows(*texts: str) -> list[tables.Xid | tables.Message]:
    records = kernel_records.parse("\n".join(f"[{10 + i}.0] {text}" for i, text in enumerate(texts)), 0.0)
    return list(kernel_log.fold(records, "dmesg -r"))


def test_the_number_of_a_bus_is_no_xid() -> None:
    found = rows("NVRM: Xid (PCI:0000:48:00): 13, pid=1, name=python3, Graphics Exception: ESR 0x50a730=0x3000e")
    assert [13] == [row.code for row in found if isinstance(row, tables.Xid)]


def test_further_lines_of_an_error_do_not_count_again() -> None:
    found = rows(
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 Sub-engine instance 00",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Data {0x50610002, 0x10100030, 0x00000000}",
    )
    assert [("sxid", 20034, 1, 1)] == [(r.kind, r.code, r.fatal, r.n) for r in found if isinstance(r, tables.Xid)]


def test_repeated_lines_are_one_row_with_the_last_time() -> None:
    text = "NVRM: Xid (PCI:0000:9b:00): 119, pid={}, name=nvidia-smi, Timeout after 6s of waiting for RPC response"
    [row] = rows(*(text.format(pid) for pid in range(5)))
    assert isinstance(row, tables.Xid)
    assert (5, 14.0) == (row.n, row.stamp)


def test_a_second_recovery_action_is_another_event() -> None:
    text = "NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from {}"
    found = rows(
        text.format("0x0 (None) to 0x1 (GPU Reset Required)"), text.format("0x1 (GPU Reset Required) to 0x0 (None)")
    )
    assert 2 == len(found)


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("mlx5_core 0000:9c:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)", []),
        ("mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 2682): ACCESS_REG(0x805) op_mod(0x1) failed", []),
        ("mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 26): Detected insufficient power on the PCIe slot (27W).", ["nic-slot-power"]),
        ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping", ["peermem-invalid-context"]),
        ("mce: CPU0: Thermal monitoring enabled (TM1)", []),
        ("EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0", []),
        ("Lustre: fs0-MDT0000: Connection restored to 10.1.8.1@o2ib", []),
        ("nfs: server fs01 OK", ["nfs-answers"]),
        ("NETDEV WATCHDOG: CPU: 12: ens3np0 (mlx5_core): transmit queue 3 timed out 5000 ms", ["nic-transmit-stuck"]),
    ],
)  # fmt: skip
def test_lines_that_look_alike(line: str, kinds: list[str]) -> None:
    assert kinds == [row.kind for row in rows(line)]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_faults_of_programs_never_drain(code: int, tmp_path: Path) -> None:
    tree = node.build("p5")
    print_line(
        tree, HOUR, *(f"NVRM: Xid (PCI:0000:48:00): {code}, pid=4321, name=python3, Ch 00000008" for _ in range(50))
    )
    report = judge(tree, tmp_path)
    assert "fit" == report.fitness
    assert report.findings[0].name in ("xid-of-programs", "xid-of-driver")


def test_what_is_older_than_a_day_no_longer_drains(tmp_path: Path) -> None:
    tree = node.build("p5")
    print_line(tree, 25 * HOUR, "NVRM: Xid (PCI:0000:48:00): 95, pid=1, name=python3, Uncontained: LTC")
    report = judge(tree, tmp_path)
    assert ("fit", []) == (report.fitness, [f.name for f in report.findings if f.severity != "note"])


def test_a_line_without_a_time_warns_and_does_not_drain(tmp_path: Path) -> None:
    tree = node.build("p5")
    del tree.extra["kmsg"]
    tree.put("/var/log/dmesg", "NVRM: Xid (PCI:0000:48:00): 79, GPU has fallen off the bus.")
    report = judge(tree, tmp_path)
    assert ("xid-gpu-lost", "fit") == (report.findings[0].name, report.fitness)


JOURNAL = " ".join(next(iter(kernel_log._COMMANDS)))
LOST = "NVRM: Xid (PCI:0000:48:00): 79, GPU has fallen off the bus."
ENTRY = {"MESSAGE": LOST, "SYSLOG_FACILITY": "0", "_SOURCE_MONOTONIC_TIMESTAMP": "345000500000"}


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("dmesg -r", f"<4>[345000.500000] {LOST}"),
        (JOURNAL, json.dumps(ENTRY)),
        ("/var/log/dmesg", f"[345000.500000] {LOST}"),
    ],
)
def test_a_tree_gives_its_log_in_several_ways(source: str, content: str, tmp_path: Path) -> None:
    tree = node.build("p5")
    del tree.extra["kmsg"]
    if source.startswith("/"):
        tree.put(source, content)
    else:
        tree.command(source, content)
    report = judge(tree, tmp_path)
    assert ("xid-gpu-lost", "drain") == (report.findings[0].name, report.fitness)


def test_the_hint_of_journalctl_is_not_a_log(tmp_path: Path) -> None:
    tree = node.build("p5")
    del tree.extra["kmsg"]
    tree.command(JOURNAL, "Hint: You are currently not seeing messages from other users and the system.")
    assert ["kernel-log-unreadable"] == [f.name for f in judge(tree, tmp_path).findings]


def test_a_log_that_nobody_may_read_is_a_note(tmp_path: Path) -> None:
    tree = node.build("p5")
    del tree.extra["kmsg"]
    report = judge(tree, tmp_path)
    assert [("kernel-log-unreadable", "note")] == [(f.name, f.severity) for f in report.findings]


def test_commands_that_hang_do_not_hold_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dmesg", "journalctl"):
        script = tmp_path / name
        script.write_text("#!/bin/sh\nexec sleep 1000000\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(trusted, "command", lambda name, folders: str(tmp_path / name))
    monkeypatch.setattr(kernel_log, "_read_kmsg", lambda root: None)
    assert (None, "") == kernel_log.read_log(Root("/"))


def test_the_log_of_this_machine() -> None:
    root = Root("/")
    found = list(kernel_log.collect(root))
    assert isinstance(found[0], tables.KernelLog)
    if os.geteuid() == 0 and Path("/dev/kmsg").exists():
        assert "/dev/kmsg" == found[0].source
        assert found[0].lines > 0
        now = clock.times(root)
        assert now.boot is not None
        assert found[0].first == pytest.approx(now.boot, abs=86_400 * 365)


BLOCKED = """
#include <unistd.h>
#include <sys/types.h>
int main(void) { if (vfork() == 0) { pause(); _exit(0); } return 0; }
"""


def test_a_process_that_really_hangs_in_the_kernel(tmp_path: Path) -> None:
    """A parent waits for its vfork child in state D, and unlike behind a sick driver it can be killed."""
    (tmp_path / "blocked.c").write_text(BLOCKED)
    try:
        built = subprocess.run(["cc", "-o", "nvidia-smi", "blocked.c"], cwd=tmp_path, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    assert 0 == built.returncode, built.stderr
    process = subprocess.Popen([str(tmp_path / "nvidia-smi")], start_new_session=True)
    try:
        until(lambda: " D " in Path(f"/proc/{process.pid}/stat").read_text())
        said = rows(
            f"INFO: task nvidia-smi:{process.pid} blocked for more than 120 seconds.",
            f"INFO: task nvidia-smi:{process.pid} blocked for more than 241 seconds.",
            "INFO: task python:999999 blocked for more than 120 seconds.",
        )
        found = {task.pid: (task.seconds, task.still) for task in kernel_log._stuck(Root("/"), said)}
        assert {process.pid: (241, 1), 999999: (120, 0)} == found
    finally:
        os.killpg(process.pid, 9)
        process.wait()
