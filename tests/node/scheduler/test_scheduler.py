"""What schedulers grant, how processes are launched, and what containers get."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.places import ROOT

from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.node.scheduler import grants, launch
from nccl_doctor.node.software import containers
from nccl_doctor.simulate import node


def tree_of(
    folder: Path, files: dict[str, str] | None = None, gpus: int = 8, **environ: str
) -> tuple[Root, dict[str, str]]:
    tree = node.Tree()
    tree.put("/proc/sys/kernel/hostname", "node01")
    tree.put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3,8-11")
    for number in range(gpus):
        tree.put(f"/proc/driver/nvidia/gpus/0000:{number}b:00.0/information", "Model: x")
    for path, text in (files or {}).items():
        tree.put(path, text)
    tree.write(folder)
    return Root(folder), environ


def granted(root: Root, environ: dict[str, str]) -> dict[str, tuple[int | None, int | None, str]]:
    return {row.resource: (row.granted, row.found, row.setting) for row in grants.allocations(root, environ)}


def test_slurm_before_a_task_starts(tmp_path: Path) -> None:
    root, environ = tree_of(
        tmp_path, SLURM_JOB_ID="1", SLURM_JOB_GPUS="0-3,6", SLURM_CPUS_ON_NODE="96", SLURM_JOB_NUM_NODES="2", SLURM_NTASKS="16",
        SLURM_TASKS_PER_NODE="8(x2)",
    )  # fmt: skip
    assert {
        "gpus": (5, 8, "SLURM_JOB_GPUS"),
        "cpus": (96, 8, "SLURM_CPUS_ON_NODE"),
        "nodes": (2, None, "SLURM_JOB_NUM_NODES"),
        "tasks": (16, None, "SLURM_NTASKS"),
        "tasks-here": (8, None, "SLURM_TASKS_PER_NODE"),
    } == granted(root, environ)


def test_a_task_of_slurm_is_compared_with_its_own_share(tmp_path: Path) -> None:
    root, environ = tree_of(
        tmp_path, SLURM_JOB_ID="1", SLURM_PROCID="3", SLURM_CPUS_ON_NODE="96", SLURM_CPUS_PER_TASK="8"
    )
    assert {"cpus": (8, 8, "SLURM_CPUS_PER_TASK")} == granted(root, environ)


def test_a_step_of_slurm_without_gpus(tmp_path: Path) -> None:
    root, environ = tree_of(tmp_path, SLURM_JOB_ID="1", SLURM_STEP_ID="0")
    assert {"gpus": (0, 8, "SLURM_JOB_GPUS")} == granted(root, environ)


def test_pbs(tmp_path: Path) -> None:
    files = {
        "/var/nodes": "node01\nnode01\nnode02.cluster\nnode02.cluster\n",
        "/var/gpus": "node01-gpu0\nnode01-gpu1\nnode02-gpu0\n",
    }
    root, environ = tree_of(tmp_path, files, PBS_JOBID="7.server", PBS_NODEFILE="/var/nodes", PBS_GPUFILE="/var/gpus")
    assert {
        "nodes": (2, None, "PBS_NODEFILE"),
        "tasks-here": (2, None, "PBS_NODEFILE"),
        "tasks": (4, None, "PBS_NODEFILE"),
        "gpus": (2, 8, "PBS_GPUFILE"),
    } == granted(root, environ)


def test_lsf(tmp_path: Path) -> None:
    root, environ = tree_of(tmp_path, LSB_JOBID="7", LSB_MCPU_HOSTS="node01 16 node02 16", LSB_DJOB_NUMPROC="32")
    assert {
        "nodes": (2, None, "LSB_MCPU_HOSTS"),
        "cpus": (16, 8, "LSB_MCPU_HOSTS"),
        "tasks": (32, None, "LSB_DJOB_NUMPROC"),
    } == granted(root, environ)


def test_grid_engine(tmp_path: Path) -> None:
    files = {"/var/hosts": "node01.cluster 4 all.q@node01 UNDEFINED\nnode02.cluster 4 all.q@node02 UNDEFINED\n"}
    root, environ = tree_of(tmp_path, files, JOB_ID="7", NSLOTS="8", PE_HOSTFILE="/var/hosts")
    assert {"nodes": (2, None, "PE_HOSTFILE"), "cpus": (4, 8, "PE_HOSTFILE"), "tasks": (8, None, "NSLOTS")} == granted(
        root, environ
    )


def test_kubernetes(tmp_path: Path) -> None:
    files = {"/dev/nvidia0": "", "/sys/fs/cgroup/cpu.max": "1200000 100000"}
    root, environ = tree_of(
        tmp_path, files, KUBERNETES_SERVICE_HOST="10.96.0.1", NVIDIA_VISIBLE_DEVICES="GPU-1a,GPU-2b"
    )
    assert {"gpus": (2, 1, "NVIDIA_VISIBLE_DEVICES"), "cpus": (12, 8, "cpu.max")} == granted(root, environ)


def test_no_scheduler_at_all(tmp_path: Path) -> None:
    root, _ = tree_of(tmp_path, gpus=0)
    with pytest.raises(Absent):
        list(grants.collect(root))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("/usr/bin/python3 /opt/env/bin/torchrun --nnodes=2 --nproc-per-node 8 --rdzv_endpoint=gpu-a:29400 train.py --lr 1",
         {"nnodes": "2", "nproc_per_node": "8", "rdzv_endpoint": "gpu-a:29400"}),
        ("python -m torch.distributed.run --standalone --nproc_per_node=gpu train.py", {"standalone": "", "nproc_per_node": "gpu"}),
        ("python -m torch.distributed.launch --nproc_per_node=4 --master_addr 10.1.0.4 --master_port 29500 x.py",
         {"nproc_per_node": "4", "master_addr": "10.1.0.4", "master_port": "29500"}),
        ("python train.py --nnodes 2", None),
        ("", None),
        ("torchrun --nnodes", {"nnodes": ""}),
    ],
    ids=["torchrun", "standalone", "launch", "other", "nothing", "cut"],
)  # fmt: skip
def test_a_command_line_of_torchrun(words: str, options: dict[str, str] | None) -> None:
    assert options == launch.torchrun(words.split())


def started(folder: Path, extra: dict[str, Any], gpus: int = 8, **environ: str) -> list[Any]:
    root, environ = tree_of(folder, gpus=gpus, **environ)
    root._cache.update(extra)
    return list(launch.launches(root, environ))


def test_torchrun_on_each_node(tmp_path: Path) -> None:
    extra = {"launchers": {"torchrun": {"nnodes": "2:4", "nproc_per_node": "gpu", "rdzv_endpoint": "10.1.0.4:29400"}}}
    (row,) = started(tmp_path, extra, CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert ("torchrun", 8, 4, 2, 4, "10.1.0.4", 29400, 0) == (
        row.source, row.world, row.local, row.nodes, row.gpus, row.master, row.port, row.loopback,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "address", "loopback", "answer"),
    [
        ({"status": 0, "text": "127.0.1.1 STREAM gpu-a\n"}, "127.0.1.1", 1, None),
        ({"status": 0, "text": "10.1.0.4 STREAM gpu-a\n"}, "10.1.0.4", 0, "timeout"),
        ({"status": 2, "text": ""}, None, None, "unresolved"),
    ],
    ids=["itself", "elsewhere", "nowhere"],
)
def test_the_rendezvous(
    tmp_path: Path, said: dict[str, Any], address: str | None, loopback: int | None, answer: str | None
) -> None:
    extra = {"commands": {"getent ahosts gpu-a": said}, "rendezvous": {"10.1.0.4 29500": "timeout"}}
    (row,) = started(tmp_path, extra, MASTER_ADDR="gpu-a", MASTER_PORT="29500", WORLD_SIZE="16", RANK="8")
    assert (address, loopback, answer) == (row.address, row.loopback, row.answer)


def test_the_first_rank_does_not_ask_itself(tmp_path: Path) -> None:
    extra = {"rendezvous": {"10.1.0.4 29500": "refused"}}
    (row,) = started(tmp_path, extra, MASTER_ADDR="10.1.0.4", MASTER_PORT="29500", WORLD_SIZE="16", RANK="0")
    assert None is row.answer


def test_connections_are_tried_with_a_deadline() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert "refused" == launch.connect("127.0.0.1", port)
        one.listen()
        assert "accepted" == launch.connect("127.0.0.1", port)
    assert "unreachable" == launch.connect("127.0.0.1", 999_999_999)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc here")
def test_a_torchrun_above_this_process_is_found(tmp_path: Path) -> None:
    program = tmp_path / "torchrun"
    program.write_text(
        "import subprocess, sys\ncode = 'from nccl_doctor.node.scheduler import launch; print(launch._above())'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', code]).returncode)\n"
    )
    command = [sys.executable, str(program), "--nproc_per_node=3", "train.py", "--password=x"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert "{'torchrun': {'nproc_per_node': '3'}}" == done.stdout.strip()


def found(root: Root) -> dict[str, str]:
    return {row.name: row.value for row in containers.facts(root)}


@pytest.mark.parametrize(
    ("path", "text", "driver"),
    [
        ("/etc/docker/daemon.json", '{"exec-opts": ["native.cgroupdriver=cgroupfs"]}', "cgroupfs"),
        ("/etc/docker/daemon.json", "{broken", "cgroupfs"),
        ("/etc/docker/daemon.json", "[]", "cgroupfs"),
        ("/etc/containerd/config.toml", "  SystemdCgroup = true\n", "systemd"),
        ("/etc/containerd/config.toml", "  SystemdCgroup = false\n", "cgroupfs"),
        ("/etc/crio/crio.conf", "[crio.runtime]\n", "systemd"),
    ],
)
def test_who_manages_the_cgroups_of_containers(tmp_path: Path, path: str, text: str, driver: str) -> None:
    root, _ = tree_of(tmp_path, {path: text})
    assert {"cgroup-driver": driver} == found(root)


def test_devices_without_a_link(tmp_path: Path) -> None:
    files = {
        "/etc/containerd/config.toml": "SystemdCgroup = true",
        "/dev/nvidia0": "",
        "/dev/nvidia1": "",
        "/dev/char/195:0": "",
    }
    root, _ = tree_of(tmp_path, files)
    assert {"cgroup-driver": "systemd", "dev-char-missing": "nvidia1"} == found(root)


def test_a_specification_in_json(tmp_path: Path) -> None:
    text = '{"devices": [{"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}], "x": "/usr/lib64/libcuda.so.550.54.15"}'
    root, _ = tree_of(tmp_path, {"/var/run/cdi/nvidia.json": text})
    assert {"cdi-driver": "550.54.15", "cdi-gpus": "1"} == found(root)
