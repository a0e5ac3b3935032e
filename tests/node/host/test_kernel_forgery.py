"""Text that a user's program can put into the kernel's log, beside the genuine lines that it imitates.

The templates are messages of Linux about programs: a program chooses its name (15 bytes of any value), the names of its files
and control groups, and the version that it claims to the NVIDIA driver.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_doctor.facts.tables import Message, Xid
from nccl_doctor.node.host import kernel_forms, kernel_log, kernel_records
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node.kernel_log import HOUR, print_line
from nccl_doctor.simulate.node.tree import Tree
from tests.node.host.test_kernel_log import DRAINED, judge

COMM = 15  # bytes of a process name
TEMPLATES: dict[str, Callable[[str, str], str]] = {
    "segfault": lambda name, path: (
        f"{name}[4321]: segfault at 10 ip 00007f12a4c01234 sp 00007f1299ffe0 error 4 in {path}[7f12a4a00000+9c0000]"
    ),
    "trap": lambda name, path: f"traps: {name}[4321] general protection fault ip:7f12 sp:7f11 error:0 in {path}[7f12+9c]",
    "vsyscall": lambda name, path: f"{name}[4321] vsyscall attempted with vsyscall=none ip:ffffffffff600000 cs:33 {path}",
    "listed by the OOM killer": lambda name, path: f"[   4321]  1000  4321    56    12   4096        0             0 {name}",
    "stack": lambda name, path: f"CPU: 3 PID: 4321 Comm: {name} Tainted: P 5.15.0-105-generic #115-Ubuntu {path}",
    "allocation": lambda name, path: (
        f"{name}: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL), nodemask=(null),cpuset={path},mems_allowed=0"
    ),
    "caches": lambda name, path: f"{name} (4321): drop_caches: 3",
    "signal": lambda name, path: f"{name}/4321: potentially unexpected fatal signal 11.",
    "control group": lambda name, path: (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={path},mems_allowed=0,oom_memcg=/{path},"
        f"task_memcg=/{path},task={name},pid=4321,uid=1000"
    ),
    "statistics": lambda name, path: f"Memory cgroup stats for /{path}:",
    "old control group": lambda name, path: f"Task in /{path} killed as a result of limit of /{path}",
    "executable stack": lambda name, path: f"process '{path}' started with executable stack",
    "killed": lambda name, path: f"Out of memory: Killed process 4321 ({name}) total-vm:1234kB, anon-rss:1234kB, file-rss:0kB",
    "blocked": lambda name, path: f"INFO: task {name}:4321 blocked for more than 120 seconds.",
    "lockup": lambda name, path: f"watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [{name}:4321]",
    "file system": lambda name, path: f"EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm {name}: {path}",
    "client of the driver": lambda name, path: f"NVRM: API mismatch: the client has the version {path[:63]}, but",
    "client of the GPU": lambda name, path: f"NVRM: Xid (PCI:0000:48:00): 31, pid=4321, name={name}, Ch 00000008, intr 0",
    "signal frame": lambda name, path: f"{name}[4321] bad frame in rt_sigreturn frame:7ffd ip:7f12 sp:7f11 orax:f in {path}[7f12]",
    "split lock": lambda name, path: f"x86/split lock detection: #AC: {name}/4321 took a split_lock trap at address: 0x401a2b",
    "end of device": lambda name, path: f"{name}: attempt to access beyond end of device\nloop0: rw=2049, sector=9, nr_sectors = 8",
    "packet socket": lambda name, path: f"{name} uses obsolete (PF_INET,SOCK_PACKET)",
    "deprecated call": lambda name, path: f"{name} (4321): Using mlock ulimits for SHM_HUGETLB is deprecated",
    "compatibility": lambda name, path: f"process `{name}' is using obsolete setsockopt SO_BSDCOMPAT",
    "interface": lambda name, path: f"IPv6: ADDRCONF(NETDEV_CHANGE): {interface(name)}: link becomes ready",
    "interface renamed": lambda name, path: f"{interface(name)}: renamed from {interface(path[:15])}",
    "interface listens": lambda name, path: f"device {interface(name)} entered promiscuous mode",
    "bridge": lambda name, path: f"{interface(name)}: port 1({interface(path[:15])}) entered disabled state",
    "audit of addresses": lambda name, path: f"audit: type=1400 audit(1.1:3): apparmor=\"DENIED\" profile=\"{path}\" comm=\"{name}\"",
    "audit": lambda name, path: f'audit: type=1701 audit(1.1:2): auid=0 uid=1000 pid=4321 comm="{name}" exe="/{path}" sig=11',
}  # fmt: skip


def interface(name: str) -> str:
    """A name that a user can give to an interface in a network namespace of his own (dev_valid_name of net/core/dev.c)."""
    return re.sub(r"[\s/:%]", "_", name)[:15] or "_"


def genuine() -> list[str]:
    """Samples of all patterns that kernels print, and the lines of all planted faults."""
    lines = [sample for pattern in kernel_log.grammar() for sample in pattern.sample if "\n" not in sample]
    for fault in node.FAULTS.values():
        if fault.change.__module__.endswith(".kernel_log"):
            lines += added(fault.name, fault.machines[0])
    return list(dict.fromkeys(lines))


def added(fault: str, machine: str) -> list[str]:
    """What a fault adds to the log of a healthy node."""
    healthy, faulty = (
        [record.text for record in kernel_records.parse(node.build(machine, name).extra["kmsg"]["text"], 0.0)]
        for name in (None, fault)
    )
    return list((Counter(faulty) - Counter(healthy)).elements())


def kinds(records: list[kernel_records.Record], source: str) -> set[tuple[str, int, int | None]]:
    """Kinds of messages that count, with code and class of an Xid."""
    rows = kernel_log.fold(records, source)
    return {
        (row.kind, row.code, row.fatal) if isinstance(row, Xid) else (row.kind, 0, None)
        for row in rows
        if not (isinstance(row, Message) and row.kind == kernel_log.NOT_BELIEVED)
    }


def imitations(line: str) -> list[tuple[str, str]]:
    """Names of programs and of files that imitate a line: every piece of it that fits, also behind a newline."""
    pieces = {line[at : at + COMM] for at in range(max(1, len(line) - COMM + 1))}
    pieces |= {f"\n{line[at : at + COMM - 1]}" for at in range(0, len(line), 7)} | {
        f"a, {line[:12]}",
        "Xid (0000): 79",
        "a, Fatal",
    }
    paths = (line, f"\n{line}", f"{line}\n", f"a\n{line}\nb")
    return [(piece, "libc.so.6") for piece in sorted(pieces)] + [("python3", path) for path in paths]


def kmsg(texts: list[str]) -> list[kernel_records.Record]:
    tree = Tree()
    print_line(tree, HOUR, *texts)
    return kernel_records.parse(tree.extra["kmsg"]["text"], 0.0)


def dmesg(texts: list[str]) -> list[kernel_records.Record]:
    """As syslog(2) gives it: each line of a message has the header of the message."""
    lines = (f"<4>[{i:5d}.{i:06d}] {line}" for i, text in enumerate(texts) for line in text.split("\n"))
    return kernel_records.parse("\n".join(lines), 0.0)


@pytest.mark.parametrize("template", TEMPLATES)
def test_names_add_nothing_to_what_a_message_about_a_program_says(template: str) -> None:
    harmless = kinds(kmsg([TEMPLATES[template]("python3", "libc.so.6")]), "/dev/kmsg")
    forged = [TEMPLATES[template](*names) for line in genuine() for names in imitations(line)]
    assert harmless >= kinds(kmsg(forged), "/dev/kmsg")
    assert harmless >= kinds(dmesg(forged), "dmesg -r")


def test_genuine_lines_count() -> None:
    for line in genuine():
        if not line.startswith(("[", "May ", "Unable", "systemd-")) and not kernel_forms.KINDS.isdisjoint(shapes(line)):
            assert kinds(dmesg([line]), "dmesg -r"), line
            assert kinds(kmsg([line]), "/dev/kmsg"), line


def shapes(line: str) -> list[str]:
    return [pattern.name for pattern in kernel_log.grammar() if pattern.match(line)]


def test_what_programs_write_to_kmsg_does_not_count() -> None:
    tree = Tree()
    print_line(tree, HOUR, *genuine(), priority=12)
    assert set() == kinds(kernel_records.parse(tree.extra["kmsg"]["text"], 0.0), "/dev/kmsg")
    lines = "\n".join(f"<12>[{i:5d}.000000] {line}" for i, line in enumerate(genuine()))
    assert set() == kinds(kernel_records.parse(lines, 0.0), "dmesg -r")


def test_a_message_about_a_device_names_it_twice() -> None:
    line = "pcieport 0000:47:01.0: AER: Uncorrected (Fatal) error received: 0000:48:00.0"
    text = f"4,1,1000,-;{line}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:47:01.0\n"
    assert {("aer-error", 0, None)} == kinds(kernel_records.parse(text, 0.0), "/dev/kmsg")
    assert set() == kinds(kernel_records.parse(text.replace(":47:01.0\n", ":00:00.0\n"), 0.0), "/dev/kmsg")
    other = f"{text}4,2,2000,-;{line.replace('47', '46')}\n"
    assert [1] == [r.n for r in kernel_log.fold(kernel_records.parse(other, 0.0), "/dev/kmsg") if r.kind == "aer-error"]


@pytest.mark.parametrize("fault", sorted(DRAINED))
def test_the_genuine_line_drains_and_the_forged_one_does_not(fault: str, tmp_path: Path) -> None:
    machine = node.FAULTS[fault].machines[0]
    tree, healthy = node.build(machine, fault), node.build(machine)
    assert "drain" == judge(tree, tmp_path / "genuine").fitness
    lines = added(fault, machine)
    tree.extra["kmsg"] = healthy.extra["kmsg"]
    for template in TEMPLATES.values():
        texts = [template(*names) for line in lines for names in imitations(line)]
        print_line(tree, HOUR, *(text for text in texts if "blocked for" not in text))
    print_line(tree, HOUR, *lines, priority=12)
    report = judge(tree, tmp_path / "forged")
    assert "fit" == report.fitness, [(f.name, f.message) for f in report.findings if f.action == "drain"]
    assert "kernel-line-not-believed" in {finding.name for finding in report.findings}
