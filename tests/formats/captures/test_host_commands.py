"""Commands about a host, alone, behind prefixes, in other languages and older versions."""

from pathlib import Path

import pytest

from nccl_doctor.app.analyze import read_facts, report_of
from nccl_doctor.facts.store import Facts

ALL = Path(__file__).parents[3] / "fixtures/captures/host_commands.txt"


def facts_of(tmp_path: Path, text: str) -> Facts:
    (tmp_path / "capture.txt").write_text(text, encoding="utf-8")
    return read_facts([str(tmp_path / "capture.txt")])[0]


def test_every_command_of_a_session_is_read() -> None:
    facts, _ = read_facts([str(ALL)])
    numbers = {
        (command, name): value for command, name, value in facts.query("SELECT command, name, value FROM host_number")
    }
    assert 65536 == numbers["ulimit", "locked memory"]
    assert 100 == numbers["df", "used of /"] == numbers["df", "inodes used of /scratch"]
    assert (192, 2) == (numbers["lscpu", "CPUs"], numbers["numactl", "NUMA nodes"])
    assert 201.1 == numbers["top", "load"]
    assert [("memlock", 65536)] == facts.query("SELECT name, soft FROM task_limit WHERE name = 'memlock'")
    assert [("mlx5_1", "Down")] == facts.query("SELECT hca, state FROM ib_port WHERE state <> 'Active'")
    assert [("/", "local", 1)] == facts.query("SELECT path, kind, read_only FROM mount WHERE read_only = 1")
    assert [(64 << 20,)] == facts.query("SELECT size FROM shared_memory")
    faults = {finding.name for finding in report_of(facts).findings}
    assert {
        "inodes-used-up",
        "dev-shm-small",
        "host-memory-low",
        "memlock-limit",
        "pcie-link-degraded",
    } <= faults
    assert {"roce-port-without-address", "local-mount-read-only"} <= faults


NEW = "               total        used        free      shared  buff/cache   available"
OLD = "             total       used       free     shared    buffers     cached"
GERMAN = "               gesamt       benutzt     frei      gemns.  Puffer/Cache verfügbar"
NO_SWAP = "Swap:             0           0           0"


@pytest.mark.parametrize(
    ("lines", "total", "available"),
    [
        (
            [NEW, "Mem:     2113417216   100000000  1900000000   1024   113417216  2000000000"],
            2113417216 << 10,
            2000000000 << 10,
        ),
        (
            [NEW, "Mem:        2063884      120000     1900000      1       43884     1930000"],
            2063884 << 20,
            1930000 << 20,
        ),
        ([NEW, "Mem:           2015         117        1855      1          42        1884"], 2015 << 30, 1884 << 30),
        (
            [GERMAN, "Speicher:       2,0Ti       1,0Ti       1,0Ti       1,0Gi        21Gi       1,5Ti"],
            2 << 40,
            3 << 39,
        ),
        (
            [
                OLD,
                "Mem:     264128832  200000000   64128832     0     100000    1000000",
                "-/+ buffers/cache:  198900000   65228832",
            ],
            264128832 << 10,
            65228832 << 10,
        ),
    ],
    ids=["KiB", "MiB", "GiB", "german", "old"],
)
def test_memory_in_any_unit_and_language(tmp_path: Path, lines: list[str], total: int, available: int) -> None:
    assert [(total, available)] == facts_of(tmp_path, "\n".join([*lines, NO_SWAP])).query(
        "SELECT total, available FROM host_memory"
    )


def test_hosts_behind_prefixes_are_kept_apart_and_the_full_one_is_named(tmp_path: Path) -> None:
    head = "Filesystem      Size  Used Avail Use% Mounted on"
    rows = [
        f"gpu{number:02}: {line}"
        for number, left, used in ((1, "263G", 40), (2, "0", 100))
        for line in (head, f"/dev/sda2       439G  176G  {left}  {used}% /")
    ]
    facts = facts_of(tmp_path, "\n".join(rows) + "\n")
    assert ["gpu02"] == [finding.hosts for finding in report_of(facts).findings]


def test_meminfo_of_the_kernel(tmp_path: Path) -> None:
    text = (
        "MemTotal:       2113461232 kB\nMemFree:          812344 kB\nMemAvailable:    1023400 kB\nBuffers:           12000 kB\n"
        "HugePages_Total:       0\nDirectMap1G:    1048576 kB\n"
    )
    facts = facts_of(tmp_path, text)
    assert [(2113461232 << 10, 1023400 << 10)] == facts.query("SELECT total, available FROM host_memory")
    assert "host-memory-low" in {finding.name for finding in report_of(facts).findings}
    assert [] == facts_of(tmp_path, "MemTotal:       2113461232 kB\nMemFr").query("SELECT * FROM host_memory")


def test_loop_mounts_and_small_ones_are_full_by_design(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        "Filesystem     1K-blocks      Used Available Use% Mounted on\n"
        "/dev/loop3         65536     65536         0 100% /snap/core/1\n"
        "/dev/sda1         523248    523248         0 100% /boot/efi\n"
        "/dev/sda2      459937792 100000000 359937792  22% /\n",
    )
    assert [] == [finding.name for finding in report_of(facts).findings]


def test_limits_of_proc_and_zsh(tmp_path: Path) -> None:
    proc = facts_of(
        tmp_path,
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max locked memory         unlimited            unlimited            bytes\n"
        "Max open files            1024                 4096                 files\n",
    )
    assert [("memlock", -1, -1), ("nofile", 1024, 4096)] == proc.query("SELECT name, soft, hard FROM task_limit")
    zsh = facts_of(
        tmp_path, "-t: cpu time (seconds)              unlimited\n-l: locked-in-memory size (kbytes)  8192\n"
    )
    assert [("memlock", 8 << 20, None)] == zsh.query("SELECT name, soft, hard FROM task_limit")


def test_numa_distances_are_no_ranks(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n",
    )
    assert [] == facts.query("SELECT * FROM rank")


def test_what_a_running_job_prints_of_its_host_is_no_fault(tmp_path: Path) -> None:
    steps = "".join(
        f"iteration {n:8}/ 100 | elapsed time per iteration (ms): 661.3 | lm loss: 2.0 |\n" for n in range(1, 60)
    )
    facts = facts_of(tmp_path, "max locked memory           (kbytes, -l) 64\n" + steps)
    assert "memlock-limit" not in {finding.name for finding in report_of(facts).findings}


def test_lscpu_with_rows_below_titles(tmp_path: Path) -> None:
    numa = "NUMA:                     \n  NUMA node(s):           2\n  NUMA node0 CPU(s):      0-55,112-167\n  NUMA node1 CPU(s):    \n"
    text = "Architecture:             x86_64\n  CPU op-mode(s):         32-bit, 64-bit\nCPU(s):                   224\n"
    text += "Vendor ID:                GenuineIntel\n  Model name:             CPU\n    Socket(s):            2\nCaches (sum of all):  \n"
    numbers = "SELECT name, value FROM host_number ORDER BY 1"
    assert [("CPUs", 224), ("NUMA nodes", 2), ("sockets", 2)] == facts_of(tmp_path, text + numa).query(numbers)
    assert [("NUMA nodes", 2)] == facts_of(tmp_path, numa).query(numbers)
