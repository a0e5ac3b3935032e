"""The host as a node shows it: parsers, invented nodes with faults, hostile trees, and this very machine."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.other_user import run_as_nobody

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts import tables
from nccl_doctor.facts.store import Facts
from nccl_doctor.node.host import cgroup, clock, gpu_locality, host, task
from nccl_doctor.node.network import routes
from nccl_doctor.node.runtime import expectations
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

OURS = ("host", "kernel_log", "storage")
NEEDED = (*OURS, "infiniband", "pci")
FITNESS = {
    "cpus-fewer-than-gpus": "job", "dev-shm-small": "job", "hostname-is-loopback": "job", "hostname-unresolved": "job",
    "memlock-limit-in-task": "job", "memory-uncorrected-errors": "drain", "node-dev-shm-full": "job",
}  # fmt: skip


def judge(tree: node.Tree, folder: Path, names: tuple[str, ...] = OURS) -> tuple[Report, Facts]:
    tree.write(folder)
    root = Root(folder)
    facts = preflight.look(root, names=names)
    expectations.add(facts, root.expect)
    return preflight.report_of(facts), facts


def faults(module: str) -> list[tuple[str, str]]:
    """(fault, machine type): the last machine type of each fault of a module; tests/node/test_matrix.py takes all of them."""
    planted = [fault for fault in node.FAULTS.values() if fault.change.__module__.endswith(f".{module}")]
    return [(fault.name, fault.machines[-1]) for fault in planted]


def ours(report: Report) -> list[Any]:
    return [finding for finding in report.findings if finding.rule.startswith("HOST")]


@pytest.mark.parametrize(("fault", "machine"), faults("host"))
def test_a_planted_fault_of_the_host_comes_first(fault: str, machine: str, tmp_path: Path) -> None:
    names = NEEDED if fault in ("acs-redirect-above-gpus", "memlock-limit-in-task") else OURS
    report, _ = judge(node.build(machine, fault), tmp_path, names)
    assert fault == ours(report)[0].name
    assert FITNESS.get(fault, "fit") == report.fitness or names is NEEDED


@pytest.mark.parametrize("machine", node.MACHINES)
def test_a_healthy_node_gives_notes_at_most(machine: str, tmp_path: Path) -> None:
    report, facts = judge(node.build(machine), tmp_path)
    assert [] == [finding.name for finding in ours(report) if finding.severity != "note"]
    assert {"ok"} == {row.outcome for row in facts.rows(tables.Collection)}
    assert [] == [(check.name, check.reason) for check in report.checks if check.outcome == "broken"]
    assert node.MACHINES[machine].cores == facts.rows(tables.HostTask)[0].cpus


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             96365                96365                processes
Max open files            1024                 524288               files
Max locked memory         65536                65536                bytes
Max nonsense              x                    y                    bytes
"""


def test_limits() -> None:
    found = {name: (soft, hard) for name, soft, hard, _ in task.parse_limits(LIMITS)}
    assert {
        "stack": (8388608, -1),
        "nproc": (96365, 96365),
        "nofile": (1024, 524288),
        "memlock": (65536, 65536),
    } == found


def test_the_limit_of_slurmd_is_read_through_its_pid(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    tree.put("/run/slurmd.pid", 812)
    tree.put("/proc/812/limits", LIMITS)
    tree.write(tmp_path)
    found = {(row.process, row.name): row.soft for row in task.read_limits(Root(tmp_path))}
    assert 65536 == found["slurmd", "memlock"]
    assert -1 == found["self", "memlock"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("x-y", set()), ("3-1", set()), ("0-9999999", set())],
)
def test_lists_of_cpus(text: str, expected: set[int]) -> None:
    assert expected == task.cpu_set(text)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}, "task"),
        ({"SLURM_JOB_ID": "1"}, "prolog"),
        ({"SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURM_PROCID": "0"}, "task_prolog"),
    ],
)
def test_part_of_a_job(variables: dict[str, str], expected: str | None) -> None:
    assert expected == task.context(variables)


@pytest.mark.parametrize(
    ("status", "namespace", "expected"),
    [
        ("CapEff:\t000001ffffffffff", "0 0 4294967295", 1),
        ("CapEff:\t00000000a80465fb", "0 0 4294967295", 1),
        ("CapEff:\t0000000000000000", "0 0 4294967295", 0),
        ("CapEff:\t000001ffffffffff", "0 100000 65536", 0),  # root of a container without rights on the host
        ("CapEff:\tzzz", "0 0 4294967295", None),
    ],
)
def test_the_right_to_lock_memory(status: str, namespace: str, expected: int | None, tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/proc/self/status", f"{status}\nUid:\t0\t0\t0\t0")
    tree.put("/proc/self/uid_map", namespace)
    tree.write(tmp_path)
    assert expected == next(task.collect(Root(tmp_path))).ipc_lock


def test_a_trial_of_mlock_says_what_can_be_locked() -> None:
    assert 0 < task.locked(1 << 20) <= 1 << 20


def test_control_groups_of_version_2(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/proc/self/cgroup", "0::/a/b")
    tree.put("/sys/fs/cgroup/a/b/memory.max", "max")
    tree.put("/sys/fs/cgroup/a/b/cpu.max", "400000 100000")
    tree.put("/sys/fs/cgroup/a/b/memory.events", "oom 3\noom_kill 2")
    tree.put("/sys/fs/cgroup/a/memory.max", 1 << 30)
    tree.put("/sys/fs/cgroup/a/memory.current", 1 << 20)
    tree.put("/sys/fs/cgroup/a/cpu.max", "200000 100000")
    tree.put("/sys/fs/cgroup/a/pids.max", "512")
    tree.write(tmp_path)
    rows = list(cgroup.collect(Root(tmp_path)))
    limits = {row.name: (row.value, row.used) for row in rows if isinstance(row, tables.CgroupLimit)}
    assert {"memory": (float(1 << 30), float(1 << 20)), "cpu": (2.0, None), "pids": (512.0, None)} == limits
    assert [2] == [row.times for row in rows if isinstance(row, tables.CgroupEvent)]


def test_control_groups_of_version_1_inside_a_container(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/proc/self/cgroup", "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n2:pids:/docker/0123")
    tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", 1 << 34)
    tree.put("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1")
    tree.put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", -1)
    tree.put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    tree.put("/sys/fs/cgroup/pids/pids.max", "max")
    tree.write(tmp_path)
    rows = list(cgroup.collect(Root(tmp_path)))
    assert [("memory", float(1 << 34))] == [(r.name, r.value) for r in rows if isinstance(r, tables.CgroupLimit)]
    assert [1] == [row.times for row in rows if isinstance(row, tables.CgroupEvent)]


def test_no_limit_of_version_1_is_none(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/proc/self/cgroup", "4:memory:/")
    tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    tree.write(tmp_path)
    assert [] == list(cgroup.collect(Root(tmp_path)))


ROUTES = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t0100010A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "eth0\t0000010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "eth9\t0000020A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    "torn\tzz\t00\n"
)


def test_routes_that_are_up() -> None:
    found = [(r.interface, r.subnet, r.gateway) for r in routes.parse_routes(ROUTES)]
    assert [
        ("eth0", "0.0.0.0/0", "10.1.0.1"),
        ("eth0", "10.1.0.0/24", None),
        ("docker0", "172.17.0.0/16", None),
    ] == found


def test_names_in_hosts() -> None:
    assert ["127.0.1.1"] == routes.lookup("127.0.0.1 localhost\n127.0.1.1 node01.cluster node01 # own\n", "node01")
    assert [] == routes.lookup("# 10.1.0.4 node01\n", "node01")


def test_a_name_server_that_never_answers_does_not_hold_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_resolve", lambda name: signal.pause())
    told = routes._ask(0.3)
    assert "no answer within 0.3 s" == told["error"]


def test_chrony_tells_the_offset() -> None:
    text = "Stratum         : 3\nSystem time     : 0.250000000 seconds slow of NTP time\nLeap status     : Normal\n"
    assert (1, -0.25) == clock.tracking(text)
    assert (0, 2.0) == clock.tracking(
        "System time : 2.000000000 seconds fast of NTP time\nLeap status : Not synchronised"
    )
    assert (None, None) == clock.tracking("506 Cannot talk to daemon")


def test_the_time_of_a_tree_without_an_answer_comes_from_its_own_files(tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put("/proc/stat", "cpu 1 2 3\nbtime 1700000000\n")
    tree.put("/proc/uptime", "100.50 90.0")
    tree.write(tmp_path)
    assert clock.Times(1700000100.5, 1700000000.0) == clock.times(Root(tmp_path))


@pytest.mark.parametrize(
    ("vendor", "product", "expected"),
    [
        ("Amazon EC2", "p5.48xlarge", 1),
        ("Amazon EC2", "p5.metal", 0),
        ("Microsoft Corporation", "Virtual Machine", 1),
        ("Google", "Google Compute Engine", 1),
        ("NVIDIA", "DGXH100", 0),
        (None, None, None),
    ],
)
def test_guests(vendor: str | None, product: str | None, expected: int | None, tmp_path: Path) -> None:
    assert expected == host.virtual(Root(tmp_path), vendor, product)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice", "kubernetes"),
        ("/proc/1/cgroup", "0::/init.scope", None),
    ],
)
def test_containers(path: str, text: str, expected: str | None, tmp_path: Path) -> None:
    tree = node.Tree()
    tree.put(path, text)
    tree.write(tmp_path)
    assert expected == host.container(Root(tmp_path))


def gpu_tree() -> node.Tree:
    tree = node.Tree()
    for number, near in enumerate((0, 0, 1, 1)):
        pci = f"0000:{0x1B + 32 * number:02x}:00.0"
        folder = f"/sys/devices/pci0000:00/{pci}"
        tree.link(f"/sys/bus/pci/devices/{pci}", f"../../../devices/pci0000:00/{pci}")
        for name, value in {
            "class": "0x030200",
            "vendor": "0x10de",
            "numa_node": near,
            "local_cpulist": f"{near * 8}-{near * 8 + 7}",
        }.items():
            tree.put(f"{folder}/{name}", value)
    for near in (0, 1):
        tree.put(f"/sys/devices/system/node/node{near}/cpulist", f"{near * 8}-{near * 8 + 7}")
        tree.put(f"/sys/devices/system/node/node{near}/distance", "10 21" if near == 0 else "21 10")
    tree.put("/proc/self/status", "Cpus_allowed_list:\t8-15")
    return tree


@pytest.mark.parametrize(
    ("environ", "granted"),
    [
        ({}, [None, None, None, None]),
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, [1, 0, 0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}, [0, 0, 1, 1]),
        ({"CUDA_VISIBLE_DEVICES": "2,3", "SLURM_STEP_GPUS": "2,3"}, [0, 0, 1, 1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, [0, 1, 0, 0]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1234"}, [None, None, None, None]),
    ],
)
def test_which_gpus_the_task_is_given(environ: dict[str, str], granted: list[int | None], tmp_path: Path) -> None:
    tree = gpu_tree()
    tree.extra["task"] = {"environ": environ}
    tree.put("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t A100\nGPU UUID: \t GPU-bbbb-cccc\n")
    tree.write(tmp_path)
    found = list(gpu_locality.collect(Root(tmp_path)))
    assert granted == [row.granted for row in found]
    assert [21, 21, 10, 10] == [row.distance for row in found]


GARBAGE = {
    "nothing": "",
    "binary": "\udcff\x00\x01\x7fELF" * 50,
    "numbers": "99999999999999999999999999 -1 0x",
    "words": "\n:::\nnull [ } - ,,,\tunlimited unlimited\n\n" * 3,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_every_file_breaks_nothing(kind: str, tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    tree.write(tmp_path)
    for path in tree.files:
        (tmp_path / path.lstrip("/")).write_bytes(GARBAGE[kind].encode("utf-8", "surrogateescape"))
    for path in (tmp_path / ".nccl-doctor").glob("*.json"):
        path.write_bytes(GARBAGE[kind].encode("utf-8", "surrogateescape"))
    facts = preflight.look(Root(tmp_path), names=OURS)
    assert {"ok"} == {row.outcome for row in facts.rows(tables.Collection)}, facts.rows(tables.Collection)
    report = preflight.report_of(facts)
    assert [] == [f.name for f in ours(report) if f.action == "drain"]


@pytest.mark.parametrize(
    "answer", [[], "x", 7, {"paths": 3, "environ": 4, "size": "x", "text": 5, "now": "x", "name": 8}]
)
def test_answers_of_another_shape_break_nothing(answer: Any, tmp_path: Path) -> None:
    tree = node.build("l40s-pcie")
    tree.write(tmp_path)
    for path in (tmp_path / ".nccl-doctor").glob("*.json"):
        path.write_text(json.dumps(answer))
    facts = preflight.look(Root(tmp_path), names=OURS)
    assert {"ok"} == {row.outcome for row in facts.rows(tables.Collection)}, facts.rows(tables.Collection)


def test_an_empty_tree_breaks_nothing(tmp_path: Path) -> None:
    facts = preflight.look(Root(tmp_path), names=OURS)
    report = preflight.report_of(facts)
    assert "fit" == report.fitness
    assert [] == [f.name for f in ours(report) if f.severity != "note"]


LIVE = f"""
import json
from nccl_doctor.app import preflight
from nccl_doctor.facts import tables
from nccl_doctor.node.runtime.root import Root
facts = preflight.look(Root("/"), names={OURS!r})
print(json.dumps({{
    "outcomes": [(row.source, row.outcome, row.note) for row in facts.rows(tables.Collection)],
    "drained": [f.message for f in preflight.report_of(facts).findings if f.action == "drain" and f.severity != "note"],
    "limits": len(facts.rows(tables.TaskLimit)),
}}))
"""


def assert_sensible(done: subprocess.CompletedProcess[str]) -> None:
    """What a look at this machine found."""
    assert (0, "") == (done.returncode, done.stderr)
    found = json.loads(done.stdout)
    assert [] == [line for line in found["outcomes"] if line[1] not in ("ok", "partial", "absent")]
    assert [] == found["drained"]
    assert found["limits"] > 0


def test_this_machine() -> None:
    assert_sensible(subprocess.run([sys.executable, "-c", LIVE], capture_output=True, text=True, check=False))


def test_this_machine_as_nobody(open_path: Path) -> None:
    assert_sensible(run_as_nobody(LIVE, open_path))
