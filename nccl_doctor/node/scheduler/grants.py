"""What a scheduler granted to the task, how its processes are to be started, and what containers get."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import Allocation, ContainerFact, Launch
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.node.scheduler import launch
from nccl_doctor.node.software import containers
from nccl_doctor.node.software.environment import device_files, gpus
from nccl_doctor.node.software.variables import variables

TABLES = (Allocation, Launch, ContainerFact)
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def collect(root: Root) -> Iterator[Any]:
    """Raises Absent without scheduler, launcher and containers."""
    environment = variables(root)
    any_row = False
    for row in (*allocations(root, environment), *containers.facts(root), *launch.launches(root, environment)):
        any_row = True
        yield row
    if not any_row:
        raise Absent("no variable of a scheduler or launcher, no container runtime")


def number(text: str | None) -> int | None:
    """A count, of `8`, `8(x2)` or `gpu:8`; None where it is none."""
    match = re.search(r"(?:^|[:=])(\d{1,9})(?:\(|$)", text or "")
    return int(match[1]) if match else None


def _count(text: str | None) -> int | None:
    """How many entries a list of indices has: `0,1,4-7`."""
    if not text or not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return None
    total = 0
    for part in text.split(","):
        first, mark, last = part.partition("-")
        total += int(last) - int(first) + 1 if mark else 1
    return total


def allocations(root: Root, environment: Mapping[str, str]) -> Iterator[Allocation]:
    """One row for each thing granted, of the scheduler that the task runs under."""
    if environment.get("SLURM_JOB_ID"):
        yield from _slurm(root, environment)
    elif environment.get("PBS_JOBID"):
        yield from _pbs(root, environment)
    elif environment.get("LSB_JOBID"):
        yield from _lsf(root, environment)
    elif environment.get("PE_HOSTFILE") or (environment.get("JOB_ID") and environment.get("NSLOTS")):
        yield from _gridengine(root, environment)
    elif environment.get("KUBERNETES_SERVICE_HOST") or root.exists(_ACCOUNT):
        yield from _kubernetes(root, environment)


def _row(scheduler: str, resource: str, granted: int | None, found: int | None, setting: str, said: str | None) -> Allocation:  # fmt: skip
    return Allocation(None, scheduler, resource, granted, found, setting, Seen("environment", f"{setting}={said}"))


def cpus(root: Root) -> int | None:
    """CPUs that this process may run on (Cpus_allowed_list of /proc/self/status)."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)$", root.text("/proc/self/status") or "", re.MULTILINE)
    return _count(match[1]) if match else None


def _slurm(root: Root, environment: Mapping[str, str]) -> Iterator[Allocation]:
    get = environment.get
    devices = gpus(root)
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"):
        granted = number(get(name)) if name == "SLURM_GPUS_ON_NODE" else _count(get(name))
        if granted is not None:
            yield _row("slurm", "gpus", granted, devices, name, get(name))
            break
    else:
        if devices and get("SLURM_STEP_ID") is not None:
            yield _row("slurm", "gpus", 0, devices, "SLURM_JOB_GPUS", "")
    # A task of a step is bound to its own share of the node.
    name = "SLURM_CPUS_PER_TASK" if get("SLURM_PROCID") else "SLURM_CPUS_ON_NODE"
    if get(name):
        yield _row("slurm", "cpus", number(get(name)), cpus(root), name, get(name))
    for resource, name in (
        ("nodes", "SLURM_JOB_NUM_NODES"), ("tasks", "SLURM_NTASKS"), ("tasks-here", "SLURM_TASKS_PER_NODE"),
    ):  # fmt: skip
        if get(name):
            yield _row("slurm", resource, number(get(name)), None, name, get(name))


def _lines(root: Root, path: str | None) -> list[str]:
    text = root.text(path) if path and path.startswith("/") else None
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def _here(root: Root) -> str:
    return (root.value("/proc/sys/kernel/hostname") or "").partition(".")[0]


def _pbs(root: Root, environment: Mapping[str, str]) -> Iterator[Allocation]:
    nodes = _lines(root, environment.get("PBS_NODEFILE"))
    if nodes:
        here = _here(root)
        yield _row("pbs", "nodes", len(set(nodes)), None, "PBS_NODEFILE", environment["PBS_NODEFILE"])
        mine = sum(node.partition(".")[0] == here for node in nodes)
        yield _row("pbs", "tasks-here", mine, None, "PBS_NODEFILE", environment["PBS_NODEFILE"])
        yield _row("pbs", "tasks", len(nodes), None, "PBS_NODEFILE", environment["PBS_NODEFILE"])
    devices = [line for line in _lines(root, environment.get("PBS_GPUFILE")) if line.startswith(_here(root))]
    if devices:
        yield _row("pbs", "gpus", len(devices), gpus(root), "PBS_GPUFILE", environment["PBS_GPUFILE"])


def _lsf(root: Root, environment: Mapping[str, str]) -> Iterator[Allocation]:
    parts = environment.get("LSB_MCPU_HOSTS", "").split()
    slots = {parts[i].partition(".")[0]: number(parts[i + 1]) for i in range(0, len(parts) - 1, 2)}
    if slots:
        value = environment["LSB_MCPU_HOSTS"]
        yield _row("lsf", "nodes", len(slots), None, "LSB_MCPU_HOSTS", value)
        if _here(root) in slots:
            yield _row("lsf", "cpus", slots[_here(root)], cpus(root), "LSB_MCPU_HOSTS", value)
    if environment.get("LSB_DJOB_NUMPROC"):
        value = environment["LSB_DJOB_NUMPROC"]
        yield _row("lsf", "tasks", number(value), None, "LSB_DJOB_NUMPROC", value)


def _gridengine(root: Root, environment: Mapping[str, str]) -> Iterator[Allocation]:
    slots = {}
    for line in _lines(root, environment.get("PE_HOSTFILE")):
        words = line.split()
        if len(words) > 1:
            slots[words[0].partition(".")[0]] = number(words[1])
    if slots:
        yield _row("gridengine", "nodes", len(slots), None, "PE_HOSTFILE", environment["PE_HOSTFILE"])
        if _here(root) in slots:
            mine = slots[_here(root)]
            yield _row("gridengine", "cpus", mine, cpus(root), "PE_HOSTFILE", environment["PE_HOSTFILE"])
    if environment.get("NSLOTS"):
        yield _row("gridengine", "tasks", number(environment["NSLOTS"]), None, "NSLOTS", environment["NSLOTS"])


def _kubernetes(root: Root, environment: Mapping[str, str]) -> Iterator[Allocation]:
    value = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    files = device_files(root)
    listed = [part for part in value.split(",") if part.isdecimal() or part.startswith(("GPU-", "MIG-"))]
    if listed:
        yield _row("kubernetes", "gpus", len(listed), len(files), "NVIDIA_VISIBLE_DEVICES", value)
    quota = (root.value("/sys/fs/cgroup/cpu.max") or "").split()
    if len(quota) == 2 and quota[0].isdecimal() and quota[1].isdecimal() and int(quota[1]):
        granted = int(quota[0]) // int(quota[1])
        yield _row("kubernetes", "cpus", granted, cpus(root), "cpu.max", " ".join(quota))
