"""Every invented fault of a node is found first, with the verdict of its rule; healthy nodes of every kind are fit."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection, Input
from nccl_doctor.node.runtime import collect, expectations
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node.software import variables

MEMORY = Path("/dev/shm")
PLANTED = [
    (name, sorted(node.FAULTS[name].machines)[n % len(node.FAULTS[name].machines)])
    for n, name in enumerate(node.FAULTS)
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: a tree is more than a thousand files."""
    made = Path(tempfile.mkdtemp(prefix="nccl-doctor-test-", dir=MEMORY if MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)


def judged(tree: node.Tree, folder: Path) -> tuple[Report, Facts]:
    """What `preflight` says of a tree; the collectors run in this process, one after the other, which costs a third."""
    tree.write(folder)
    facts = Facts()
    for name in collect.COLLECTORS:
        *rows, said = collect.answer(name, Root(folder))
        assert isinstance(said, dict)
        collect.enter(facts, preflight.hostname(Root(folder)), name, rows, said)
    facts.add([Input(str(folder), "node", 0, 0, 0, 0, None)])
    expectations.add(facts, {})
    return preflight.report_of(facts), facts


def test_there_are_enough_faults() -> None:
    assert len(PLANTED) >= 50
    assert {machine for _, machine in PLANTED} == set(node.ALL_MACHINES)


@pytest.mark.parametrize(("fault", "machine"), PLANTED)
def test_a_planted_fault_comes_first(fault: str, machine: str, folder: Path) -> None:
    report, facts = judged(node.build(machine, fault), folder)
    assert fault == report.findings[0].name, [(f.name, f.action, f.message) for f in report.findings[:4]]
    first = report.findings[0]
    blind = any(row.outcome in ("hung", "failed") for row in facts.rows(Collection))
    mild = "unknown" if blind else "fit"
    expected = mild if first.severity == "note" else {"drain": "drain", "job": "job", "warn": mild}[first.action]
    assert expected == report.fitness
    assert [] == [(check.name, check.reason) for check in report.checks if check.outcome == "broken"]
    assert [] == [row.note for row in facts.rows(Collection) if row.outcome == "failed"]


def outside_of_a_job(tree: node.Tree) -> None:
    for name in list(tree.extra["environ"]):
        if name.startswith(("SLURM", "CUDA_VISIBLE", "MASTER", "WORLD", "RANK", "LOCAL")):
            variables(tree, **{name: None})
    tree.extra["task"]["environ"] = {}


def as_prolog(tree: node.Tree) -> None:
    """Root before the job starts: no PATH, no HOME, nothing of the task but the job's number."""
    tree.extra["environ"] = {"SLURM_JOB_ID": "4711", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_GPUS": "0,1"}
    tree.extra["task"] = {"environ": {"SLURM_JOB_ID": "4711", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, "uid": 0}
    status = tree.files["/proc/self/status"].replace("CapEff:\t0000000000000000", "CapEff:\t000001ffffffffff")
    tree.put("/proc/self/status", status.replace("Uid:\t1000\t1000\t1000\t1000", "Uid:\t0\t0\t0\t0"))


def in_a_container(tree: node.Tree) -> None:
    tree.put("/.dockerenv", "")
    tree.put("/proc/1/cgroup", "0::/")
    for path in ("/etc/fstab", "/proc/driver/nvidia/params", "/sys/fs/selinux/enforce", "/var/lib/kubelet"):
        tree.remove(path)


def without_lustre(tree: node.Tree) -> None:
    mounts = [line for line in tree.files["/proc/self/mountinfo"].splitlines() if " - lustre " not in line]
    gone = [line.split()[4] for line in tree.files["/proc/self/mountinfo"].splitlines() if line not in mounts]
    tree.put("/proc/self/mountinfo", "\n".join(mounts))
    rows = tree.files["/etc/fstab"].splitlines()
    tree.put("/etc/fstab", "\n".join(row for row in rows if row.split()[1] not in gone))
    for path in ("/sys/module/lustre", "/sys/module/lnet", "/sys/fs/lustre", "/proc/fs/lustre"):
        tree.remove(path)
    tree.extra["commands"].pop("lctl list_nids", None)
    for path in gone:
        tree.extra["mounts"]["paths"].pop(path)


def without_software(tree: node.Tree) -> None:
    for path in ("/opt/conda", "/usr/local/cuda", "/usr/local/cuda-12", "/opt/openmpi"):
        tree.remove(path)
    variables(tree, CONDA_PREFIX=None, CONDA_DEFAULT_ENV=None, LD_LIBRARY_PATH=None, PATH="/usr/bin:/bin")


def without_tools(tree: node.Tree) -> None:
    """No command is installed: no getent, lctl, fi_info, nvidia-smi, systemctl."""
    tree.extra["commands"] = {}


def without_security(tree: node.Tree) -> None:
    for path in ("/sys/fs/selinux", "/etc/selinux", "/sys/module/apparmor", "/sys/kernel/security"):
        tree.remove(path)


def without_log(tree: node.Tree) -> None:
    """An ordinary user may not read the kernel's log."""
    for name in [name for name in tree.extra if "log" in name or "kmsg" in name]:
        del tree.extra[name]
    for path in ("/dev/kmsg", "/var/log"):
        tree.remove(path)


def one_gpu_of_eight(tree: node.Tree) -> None:
    variables(tree, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_GPUS="0", SLURM_GPUS_ON_NODE="1", SLURM_JOB_NUM_NODES="1")
    variables(tree, WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", SLURM_NTASKS="1", SLURM_TASKS_PER_NODE="1")
    tree.extra["task"]["environ"] |= {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_NUM_NODES": "1"}


def unknown_machine(tree: node.Tree) -> None:
    tree.put("/sys/class/dmi/id/product_name", "Some Server 9000")
    tree.put("/sys/class/dmi/id/sys_vendor", "Somebody")


VARIANTS: list[tuple[str, Callable[[node.Tree], Any]]] = [
    ("p4d", outside_of_a_job), ("dgx-h100", as_prolog), ("p5", in_a_container), ("dgx-h100", in_a_container),
    ("nd-h100-v5", without_lustre), ("b200-roce", without_software), ("p3dn", without_tools),
    ("l40s-pcie", without_security), ("a3-highgpu", without_log), ("nd-a100-v4", one_gpu_of_eight),
    ("p5en", outside_of_a_job), ("dgx-h100", unknown_machine), ("b200-roce", as_prolog), ("dgx-h100", without_tools),
]  # fmt: skip


@pytest.mark.parametrize("machine", node.ALL_MACHINES)
def test_a_healthy_node_is_fit(machine: str, folder: Path) -> None:
    assert_fit(*judged(node.build(machine), folder))


@pytest.mark.parametrize(("machine", "change"), VARIANTS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_healthy_node_that_lacks_what_not_all_have_is_fit(
    machine: str, change: Callable[[node.Tree], Any], folder: Path
) -> None:
    tree = node.build(machine, host="rack7-gpu-0042")
    change(tree)
    assert_fit(*judged(tree, folder))


def assert_fit(report: Report, facts: Facts) -> None:
    assert [] == [(f.name, f.message) for f in report.findings if f.severity != "note"]
    assert "fit" == report.fitness
    assert [] == [row.note for row in facts.rows(Collection) if row.outcome in ("failed", "hung")]
