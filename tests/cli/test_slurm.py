"""A real Slurm whose Prolog is ours: a healthy node runs the job, a faulty one is drained with our reason."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import prologues
from helpers.prologues import ours
from helpers.slurm_cluster import Cluster, cluster, missing

from nccl_doctor.app.preflight import preflight
from nccl_doctor.cli.fail_open import DRAIN
from nccl_doctor.cli.prologue import reason
from nccl_doctor.node.host import job_processes
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
DRAINS = "gpu-off-the-bus"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with cluster(folder) as running:
        yield running


@pytest.fixture
def nodes(slurm: Cluster, tmp_path: Path) -> Path:
    """Our scripts, with trees of n1, well, and n2, broken; each looks at the tree of its node."""
    node.build("dgx-h100", host="n1").write(tmp_path / "n1")
    node.build("dgx-h100", DRAINS, host="n2").write(tmp_path / "n2")
    assert ("fit", "drain") == tuple(preflight(Root(tmp_path / name))[0].fitness for name in ("n1", "n2"))
    use(slurm, tmp_path, ours(tmp_path, f"--root {tmp_path}/$SLURMD_NODENAME"))
    slurm.idle()
    return tmp_path


def use(slurm: Cluster, folder: Path, python: Path, limit: int = 60) -> None:
    """Let Slurm run our scripts, with this in place of the interpreter."""
    scripts = prologues.install(folder, python, limit)
    for name in ("prolog", "taskprolog"):
        slurm.script(name, f"exec {scripts}/slurm-{name}.sh")


def by_hand(slurm: Cluster, folder: Path, script: str, name: str) -> subprocess.CompletedProcess[str]:
    """A script as slurmd calls it: with a few variables and nothing else."""
    environ = [f"SLURM_CONF={slurm.environ['SLURM_CONF']}", f"SLURMD_NODENAME={name}"]
    return slurm.run("env", "-i", *environ, str(folder / "prologues" / script))


def test_a_healthy_node_runs_the_job(slurm: Cluster, nodes: Path) -> None:
    done = slurm.run("srun", "-w", "n1", "-N1", "echo", "ran")
    assert (0, "ran") == (done.returncode, done.stdout.strip()), done.stderr
    assert slurm.state("n1")[0].startswith(("idle", "alloc", "mix", "comp"))


def test_a_broken_node_is_drained_with_the_reason(slurm: Cluster, nodes: Path) -> None:
    done = slurm.run("srun", "-w", "n2", "-N1", "--immediate=20", "echo", "ran")
    assert done.returncode != 0
    assert "ran" not in done.stdout
    state, words = slurm.state("n2")
    assert "drain" in state
    top = preflight(Root(nodes / "n2"))[0].findings[0]
    assert words.startswith(f"nccl-doctor:{top.rule}")
    assert top.rule in words[:20]
    assert top.name in words


def test_an_observed_node_runs_the_job(slurm: Cluster, nodes: Path) -> None:
    settings = nodes / "preflight.toml"
    settings.write_text("observe = true\n")
    use(slurm, nodes, ours(nodes, f"--settings {settings} --root {nodes}/$SLURMD_NODENAME"))
    done = slurm.run("srun", "-w", "n2", "-N1", "tail", "-n1", "/dev/null")
    assert 0 == done.returncode, done.stderr
    assert "drain" not in slurm.state("n2")[0]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(None, id="missing"),
        pytest.param("echo 'No module named nccl_doctor' >&2; exit 1", id="no-module"),
        pytest.param("kill -SEGV $$", id="crashed"),
        pytest.param("kill -KILL $$", id="out-of-memory"),
        pytest.param("trap '' TERM; sleep 600; sleep 600", id="hung"),
        pytest.param("--config /no/such/file", id="config-missing"),
        pytest.param("--config /etc/hostname", id="config-broken"),
        pytest.param("--expect /no/such/file", id="expect-missing"),
        pytest.param("--rules /no/such/folder", id="rules-missing"),
        pytest.param("--no-such-option", id="wrong-option"),
    ],
)
def test_whatever_is_wrong_with_the_tool_the_job_runs(slurm: Cluster, nodes: Path, program: str | None) -> None:
    """n1 is well, so that with a tool in working order its job would run too; what counts is that the node stays."""
    python = nodes / "python3"
    python.unlink()
    if program is not None and program.startswith("--"):
        ours(nodes, f"--root {nodes}/$SLURMD_NODENAME {program}")
    elif program is not None:
        prologues.program(python, program)
    use(slurm, nodes, python, 1 if program is not None and "sleep" in program else 60)
    done = slurm.run("srun", "-w", "n1", "-N1", "echo", "ran")
    assert (0, "ran") == (done.returncode, done.stdout.strip()), done.stderr
    assert "drain" not in slurm.state("n1")[0]


def test_the_reason_of_an_administrator_stays(slurm: Cluster, nodes: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=waiting for a part")
    done = by_hand(slurm, nodes, "slurm-prolog.sh", "n2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "waiting for a part" == slurm.state("n2")[1]


@pytest.mark.parametrize(
    ("name", "words"), [("n1", "waiting for a part"), ("n2", "waiting for a part"), ("n1", "nccl-doctor:GPU001 x")]
)
def test_down_stays_down(slurm: Cluster, nodes: Path, name: str, words: str) -> None:
    slurm.run("scontrol", "update", f"NodeName={name}", "State=DOWN", f"Reason={words}")
    try:
        done = by_hand(slurm, nodes, "slurm-healthcheck.sh", name)
        assert {"n1": 0, "n2": 1}[name] == done.returncode, done.stderr
        assert ("down", words) == slurm.state(name)
    finally:
        slurm.run("scontrol", "update", f"NodeName={name}", "State=RESUME")


def health(slurm: Cluster, tree: Path, folder: Path, node_name: str = "n1", settings: str = "") -> None:
    """A HealthCheckProgram that looks at this tree and remembers in this folder."""
    file = folder.with_suffix(".toml")
    file.write_text(settings)
    command = ["preflight", "--for", "slurm-health", "--resume", "--root", str(tree), "--state", str(folder)]
    environ = {"SLURMD_NODENAME": node_name, "SLURM_CONF": slurm.environ["SLURM_CONF"]}
    done = slurm.run("env", *(f"{key}={value}" for key, value in environ.items()), sys.executable, "-m", "nccl_doctor",
                     *command, "--timeout", "60", "--settings", str(file))  # fmt: skip
    assert done.returncode in (0, DRAIN), done.stdout + done.stderr


def test_a_node_that_we_drained_comes_back_after_clean_checks_and_no_other(
    slurm: Cluster, nodes: Path, tmp_path: Path
) -> None:
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=nccl-doctor:GPU001 gone")
    for _ in range(2):
        health(slurm, nodes / "n1", tmp_path / "state")
        assert "drain" in slurm.state("n1")[0]
    health(slurm, nodes / "n1", tmp_path / "state")
    assert "drain" not in slurm.state("n1")[0]
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=waiting for a part")
    health(slurm, nodes / "n1", tmp_path / "state")
    assert "drain" in slurm.state("n1")[0]
    slurm.idle()
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=nccl-doctor:GPU001 gone")
    slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=nccl-doctor:GPU001 gone")
    health(slurm, nodes / "n1", tmp_path / "state")
    assert "State=DOWN" in slurm.run("scontrol", "show", "node", "n1", "-o").stdout
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")


def test_beyond_the_cap_a_node_is_not_drained(slurm: Cluster, nodes: Path, tmp_path: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={reason(preflight(Root(nodes / 'n2'))[0])}")
    health(slurm, nodes / "n2", tmp_path / "one", "n2", "cap = 1\ncap_share = 0.0")
    assert "idle" == slurm.state("n2")[0]
    health(slurm, nodes / "n2", tmp_path / "two", "n2", "cap = 2\ncap_share = 0.0")
    assert "drain" in slurm.state("n2")[0]


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


def nccl_doctor(slurm: Cluster, *arguments: str) -> tuple[int, str, str]:
    done = slurm.run(sys.executable, "-m", "nccl_doctor", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_nodes_of_a_job_are_watched_from_within_it(slurm: Cluster, job: str) -> None:
    status, out, err = nccl_doctor(slurm, "watch", "--job", job, "--once", "--format", "json")
    assert (0, "") == (status, err)
    found = {one["name"]: one for one in json.loads(out)["nodes"]}
    assert {"n1", "n2"} == found.keys()
    for shown in found.values():  # both nodes are this machine; what watches is no rank
        own = [one for one in shown["processes"] if one.get("job") == job]  # the machine may run ranks of others
        assert {0, 1} == {one["rank"] for one in own}
        assert ["nccl_doctor" in one["command"] for one in own] == [False, False]


@pytest.mark.parametrize("nodes", [(), ("--nodes", "n[1-2]", "--via", "srun")])
def test_the_ranks_of_a_job_are_dumped_on_all_its_nodes(slurm: Cluster, job: str, nodes: tuple[str, ...]) -> None:
    status, out, err = nccl_doctor(slurm, "stacks", "--job", job, *nodes)
    if "cannot be traced" in err or "py-spy" in err or "ptrace" in err:
        pytest.skip(f"stacks cannot be dumped here: {err.strip()}")
    assert (0, "") == (status, err)
    assert out.startswith("ranks 0-1 on ")


def test_a_job_that_slurm_does_not_know_is_one_line(slurm: Cluster) -> None:
    status, out, err = nccl_doctor(slurm, "watch", "--job", "99999", "--once")
    assert (2, "", 1) == (status, out, err.count("\n"))
    assert "Slurm knows no running job 99999" in err
    assert 2 == nccl_doctor(slurm, "stacks", "--job", "99999")[0]
