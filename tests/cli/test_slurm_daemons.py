"""A real slurmd that calls Prolog, Epilog and HealthCheckProgram itself, with its own time limits."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import prologues
from helpers.other_user import NOBODY
from helpers.places import ROOT
from helpers.prologues import ours
from helpers.slurm_cluster import SCRIPTS, Cluster, cluster, missing

from nccl_doctor.simulate import node

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
LIMIT = 20  # seconds until slurmd kills a Prolog or an Epilog, which drains the node
DRAINS = "gpu-off-the-bus"
RULE = "GPU002"  # of that fault


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm"), LIMIT) as running:
        yield running


@pytest.fixture
def nodes(slurm: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Trees of n1, well, and n2, broken. Afterwards Slurm calls nothing and both nodes are back."""
    node.build("dgx-h100", host="n1").write(tmp_path / "n1")
    node.build("dgx-h100", DRAINS, host="n2").write(tmp_path / "n2")
    yield tmp_path
    for name in SCRIPTS:
        slurm.script(name, "exit 0")
    for name in ("n1", "n2"):  # a call that still runs could drain a node that was given back
        slurm.wait(lambda name=name: calls(tmp_path / "begun", name) == calls(tmp_path / "called", name))
    for name in ("n1", "n2"):
        slurm.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    slurm.idle()


def use(
    slurm: Cluster,
    folder: Path,
    name: str,
    options: str = "",
    *,
    python: Path | None = None,
    limit: int = 60,
    more: str = "",
) -> Path:
    """Let Slurm call our script of this name; returns the file that gets a line with the node for each call that ended."""
    settings = folder / "preflight.toml"
    settings.write_text(
        f'slurm_conf = "{slurm.environ["SLURM_CONF"]}"\n{more}'
    )  # which slurmd does not hand to a health check
    program = python or ours(folder, f"--root {folder}/$SLURMD_NODENAME --settings {settings} {options}")
    scripts = prologues.install(folder, program, limit)
    check = scripts / "slurm-healthcheck.sh"  # both nodes are this machine
    check.write_text(check.read_text().replace("/run/nccl-doctor.lock", f'"{folder}/lock.$SLURMD_NODENAME"'))
    script = {"healthcheck": "slurm-healthcheck.sh"}.get(name, "slurm-prolog.sh")
    slurm.script(
        name,
        f"echo $SLURMD_NODENAME >> {folder}/begun; {scripts}/{script}; status=$?;"
        f" echo $SLURMD_NODENAME >> {folder}/called; exit $status",
    )
    return folder / "called"


def calls(file: Path, name: str) -> int:
    return file.read_text().split().count(name) if file.exists() else 0


def drained(slurm: Cluster, name: str) -> bool:
    return "drain" in slurm.state(name)[0]


def run(slurm: Cluster, name: str) -> str:
    done = slurm.run("srun", "-w", name, "-N1", "echo", "ran")
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def test_an_epilog_drains_a_broken_node_after_the_job(slurm: Cluster, nodes: Path) -> None:
    called = use(slurm, nodes, "epilog")
    for name in ("n1", "n2"):
        assert "ran" == run(slurm, name)
    slurm.wait(lambda: all(calls(called, name) for name in ("n1", "n2")) and drained(slurm, "n2"))
    assert slurm.state("n2")[1].startswith(f"nccl-doctor:{RULE} ")
    assert not drained(slurm, "n1")


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_a_program_that_hangs_ends_before_slurm_kills_it(slurm: Cluster, nodes: Path, script: str) -> None:
    """Without the inner limit the program stays, as one that blocks in the kernel does."""
    python = prologues.program(nodes / "python3", "trap '' TERM; sleep 600; sleep 600")
    called = use(slurm, nodes, script, python=python, limit=1)
    launch = nodes / "prologues" / "launch.sh"
    launch.write_text(launch.read_text().replace('/usr/bin/timeout -k 2 "$LIMIT" "$PYTHON"', '"$PYTHON"'))
    assert "ran" == run(slurm, "n1")
    slurm.wait(lambda: calls(called, "n1") > 0)
    slurm.idle()


def test_slurm_drains_a_node_whose_prolog_it_kills(slurm: Cluster, nodes: Path) -> None:
    """What our limits keep away."""
    slurm.script("prolog", f"sleep {20 * LIMIT}")
    slurm.run("srun", "-w", "n1", "-N1", f"--immediate={LIMIT}", "true")
    slurm.wait(lambda: drained(slurm, "n1"))
    assert not slurm.state("n1")[1].startswith("nccl-doctor:")


def test_slurm_calls_the_health_check_that_drains_and_gives_back(slurm: Cluster, nodes: Path) -> None:
    called = use(slurm, nodes, "healthcheck", f"--state {nodes}/state.$SLURMD_NODENAME")
    slurm.wait(lambda: calls(called, "n1") > 0 and drained(slurm, "n2"))
    assert slurm.state("n2")[1].startswith(f"nccl-doctor:{RULE} ")
    assert "idle" == slurm.state("n1")[0]
    shutil.rmtree(nodes / "n2")
    node.build("dgx-h100", host="n2").write(nodes / "n2")
    slurm.wait(lambda: "idle" == slurm.state("n2")[0])


def test_slurm_calls_the_health_check_of_a_node_that_is_down(slurm: Cluster, nodes: Path) -> None:
    called = use(slurm, nodes, "healthcheck", f"--state {nodes}/state.$SLURMD_NODENAME")
    for name in ("n1", "n2"):
        slurm.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=nccl-doctor:GPU001 but by hand")
    before = {name: calls(called, name) for name in ("n1", "n2")}
    slurm.wait(
        lambda: all(calls(called, name) >= count + 4 for name, count in before.items())
    )  # three clean ones give back
    assert [("down", "nccl-doctor:GPU001 but by hand")] * 2 == [slurm.state(name) for name in ("n1", "n2")]


@pytest.mark.parametrize("end", ["exit 1", "kill -KILL $$", "trap '' TERM; sleep 600; sleep 600"])
def test_a_health_check_that_fails_harms_no_node(slurm: Cluster, nodes: Path, end: str) -> None:
    called = use(slurm, nodes, "healthcheck", python=prologues.program(nodes / "python3", end), limit=1)
    slurm.wait(lambda: all(calls(called, name) > 1 for name in ("n1", "n2")))
    assert ["idle", "idle"] == [slurm.state(name)[0] for name in ("n1", "n2")]


def test_a_drain_beyond_the_cap_is_undone_and_the_job_runs(slurm: Cluster, nodes: Path) -> None:
    """n1 is drained between the moment at which n2 counts and the one at which it drains itself."""
    real = shutil.which("scontrol", path=slurm.environ["PATH"])
    (nodes / "bin").mkdir()
    first = f'{real} update NodeName=n1 State=DRAIN "Reason=nccl-doctor:{RULE} gone"'
    prologues.program(
        nodes / "bin" / "scontrol",
        f'echo "$*" >> {nodes}/asked; case "$*" in *State=DRAIN*) {first}; sleep 1.1 ;; esac; exec {real} "$@"',
    )
    use(slurm, nodes, "prolog", more=f'cap = 1\ncap_share = 0.0\ncommands = ["{nodes}/bin"]\n')
    assert "ran" == run(slurm, "n2")
    assert (True, False) == (drained(slurm, "n1"), drained(slurm, "n2"))
    asked = (nodes / "asked").read_text()
    assert asked.index("State=DRAIN") < asked.index("update NodeName=n2 State=UNDRAIN")


def report_of_job(slurm: Cluster, python: Path | str, output: Path, command: str, *options: str) -> None:
    """Run a batch job on both nodes with the epilog that leaves a report, and wait until that has ended on both."""
    folder = output.parent
    script = folder / "epilog-report.sh"
    text = (ROOT / "packaging" / "slurm" / "epilog-report.sh").read_text()
    script.write_text(text.replace("PYTHON=/opt/nccl-doctor/bin/python3", f"PYTHON={python}"))
    script.chmod(0o755)
    called = folder / "called"
    slurm.script("epilog", f"{script}; status=$?; echo $status >> {called}; exit $status")
    done = slurm.run("sbatch", "-N2", f"--output={output}", f"--wrap={command}", *options)
    assert 0 == done.returncode, done.stderr
    slurm.wait(lambda: called.exists() and len(called.read_text().split()) == 2)
    assert ["0", "0"] == called.read_text().split()


def test_an_epilog_leaves_a_report_beside_a_job_that_failed(slurm: Cluster, open_path: Path) -> None:
    output = open_path / "job.out"
    report_of_job(slurm, sys.executable, output, f"cat {ROOT}/fixtures/demo.log; exit 1")
    report = open_path / "job.out.nccl-doctor.txt"
    assert report.read_text().startswith("ERROR: The locked-memory limit")
    slurm.idle()


@pytest.mark.parametrize(("user", "names"), [(NOBODY, ["job.out.nccl-doctor.txt"]), (0, [])])
def test_the_report_is_written_as_the_user_and_for_a_failure_alone(
    slurm: Cluster, open_path: Path, user: int, names: list[str]
) -> None:
    """A program that writes down who it is, in a folder of the user. The job of nobody fails: it may not enter Slurm's folder here."""
    program = 'while [ "$1" != -o ]; do shift; done; { id -u; id -g; grep -E "^(CapEff|NoNewPrivs)" /proc/self/status; env; } > "$2"'
    python = prologues.program(open_path / "python3", program)
    folder = open_path / "home"
    folder.mkdir()
    os.chown(folder, user, user)
    report_of_job(slurm, python, folder / "job.out", "true", f"--uid={user}", f"--gid={user}", f"--chdir={folder}")
    assert names == [path.name for path in open_path.rglob("*.nccl-doctor.txt")]
    for name in names:
        said = (folder / name).read_text().split()
        assert [str(NOBODY)] * 2 == said[:2]
        assert "0000000000000000" == said[said.index("CapEff:") + 1]
        assert "1" == said[said.index("NoNewPrivs:") + 1]
        assert {"PATH", "LC_ALL", "HOME"} >= {one.split("=")[0] for one in said if "=" in one} - {
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
        }
        assert NOBODY == (folder / name).stat().st_uid
    slurm.idle()
