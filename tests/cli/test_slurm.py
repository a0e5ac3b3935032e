"""A real Slurm whose Prolog is ours: a healthy node runs the job, a faulty one is drained with our reason."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.slurm_cluster import Cluster, cluster, missing

from nccl_doctor.app.preflight import preflight
from nccl_doctor.node.host import job_processes
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
DRAINS = "gpu-off-the-bus"
PROLOGUES = ROOT / "docs" / "prologues"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with cluster(folder) as running:
        yield running


@pytest.fixture
def nodes(slurm: Cluster, tmp_path: Path) -> Path:
    """Trees of n1, well, and n2, broken; the prologs look at the tree of their node."""
    node.build("dgx-h100", host="n1").write(tmp_path / "n1")
    node.build("dgx-h100", DRAINS, host="n2").write(tmp_path / "n2")
    assert ("fit", "drain") == tuple(preflight(Root(tmp_path / name))[0].fitness for name in ("n1", "n2"))
    for name, script in (("prolog", "slurm-prolog.sh"), ("taskprolog", "slurm-taskprolog.sh")):
        slurm.script(name, call(PROLOGUES / script, tmp_path))
    slurm.idle()
    return tmp_path


def call(script: Path, trees: Path, options: str = "") -> str:
    """A prolog that knows nothing but the node's name, as Slurm leaves it."""
    path = Path(sys.executable).with_name("nccl-doctor")
    return f"NCCL_DOCTOR={path} NCCL_DOCTOR_OPTIONS='--root {trees}/'$SLURMD_NODENAME'{options}' exec {script}"


def test_a_healthy_node_runs_the_job(slurm: Cluster, nodes: Path) -> None:
    done = slurm.run("srun", "-w", "n1", "-N1", "echo", "ran")
    assert (0, "ran") == (done.returncode, done.stdout.strip()), done.stderr
    assert slurm.state("n1")[0].startswith(("idle", "alloc", "mix", "comp"))


def test_a_broken_node_is_drained_with_the_reason(slurm: Cluster, nodes: Path) -> None:
    done = slurm.run("srun", "-w", "n2", "-N1", "--immediate=20", "echo", "ran")
    assert done.returncode != 0
    assert "ran" not in done.stdout
    state, reason = slurm.state("n2")
    assert "drain" in state
    report = preflight(Root(nodes / "n2"))[0]
    top = report.findings[0]
    assert reason.startswith(f"nccl-doctor:{top.rule}")
    assert top.rule in reason[:20]
    assert top.name in reason


def test_the_reason_of_an_administrator_stays(slurm: Cluster, nodes: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=waiting for a part")
    environ = {**os.environ, "SLURM_CONF": slurm.environ["SLURM_CONF"], "SLURMD_NODENAME": "n2"}
    done = slurm.run("env", *(f"{k}={environ[k]}" for k in ("SLURM_CONF", "SLURMD_NODENAME")), "sh", "-c",
                     call(PROLOGUES / "slurm-prolog.sh", nodes))  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "waiting for a part" == slurm.state("n2")[1]


def test_a_node_that_we_drained_comes_back_and_no_other(slurm: Cluster, nodes: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=nccl-doctor:GPU001 gone")
    health = (
        f"SLURMD_NODENAME=n1 {sys.executable} -m nccl_doctor preflight --for slurm-health --resume --root {nodes}/n1"
    )
    assert 0 == slurm.run("sh", "-c", health).returncode
    assert "drain" not in slurm.state("n1")[0]
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=waiting for a part")
    slurm.run("sh", "-c", health)
    assert "drain" in slurm.state("n1")[0]


def test_a_task_prolog_tells_the_job(slurm: Cluster, nodes: Path) -> None:
    slurm.script("prolog", "exit 0")
    done = slurm.run("srun", "-w", "n2", "-N1", "echo", "ran")
    assert 0 == done.returncode, done.stderr
    assert "nccl-doctor: drain:" in done.stdout
    assert "ran" in done.stdout


@pytest.fixture
def job(slurm: Cluster) -> Iterator[str]:
    """A job of two ranks on both nodes that do nothing."""
    for name in ("prolog", "taskprolog"):
        slurm.script(name, "exit 0")
    slurm.idle()
    wait = f"srun --ntasks=2 {sys.executable} -c 'import time; time.sleep(300)'"
    number = slurm.run("sbatch", "--parsable", "-N2", "-n2", "-o", "/dev/null", "--wrap", wait).stdout.strip()
    slurm.wait(lambda: 2 == len(job_processes.find(job=number).ranks))
    yield number
    slurm.run("scancel", number)
    slurm.idle()


def ours(slurm: Cluster, *arguments: str) -> tuple[int, str, str]:
    done = slurm.run(sys.executable, "-m", "nccl_doctor", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_nodes_of_a_job_are_watched_from_within_it(slurm: Cluster, job: str) -> None:
    status, out, err = ours(slurm, "watch", "--job", job, "--once", "--format", "json")
    assert (0, "") == (status, err)
    found = {one["name"]: one for one in json.loads(out)["nodes"]}
    assert {"n1", "n2"} == found.keys()
    for shown in found.values():  # both nodes are this machine; what watches is no rank
        assert {0, 1} == {one["rank"] for one in shown["processes"]}
        assert ["nccl_doctor" in one["command"] for one in shown["processes"]] == [False, False]


@pytest.mark.parametrize("nodes", [(), ("--nodes", "n[1-2]", "--via", "srun")])
def test_the_ranks_of_a_job_are_dumped_on_all_its_nodes(slurm: Cluster, job: str, nodes: tuple[str, ...]) -> None:
    status, out, err = ours(slurm, "stacks", "--job", job, *nodes)
    if "may not be looked into" in err or "py-spy" in err or "ptrace" in err:
        pytest.skip(f"stacks cannot be dumped here: {err.strip()}")
    assert (0, "") == (status, err)
    assert out.startswith("ranks 0-1 on ")


def test_a_job_that_slurm_does_not_know_is_one_line(slurm: Cluster) -> None:
    status, out, err = ours(slurm, "watch", "--job", "99999", "--once")
    assert (2, "", 1) == (status, out, err.count("\n"))
    assert "Slurm knows no running job 99999" in err
    assert 2 == ours(slurm, "stacks", "--job", "99999")[0]
