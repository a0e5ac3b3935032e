"""The scripts for schedulers where the node lacks what a shell needs, and under TORQUE and LSF as their documents describe them.

TORQUE: `popen` of the script, of whose output pbs_mom reads 1,023 bytes; a text that starts with ERROR, in any case, takes the
node down, and pbs_mom waits until the pipe is closed (src/resmom/mom_server.c, src/lib/Libutils/u_mu.c).
LSF: `/bin/sh -c` in /tmp with the variables of the job, a PATH of blanks, and nothing but /dev/null to read and write
(lsb.queues and lsb.applications of the configuration reference: HOST_PRE_EXEC).
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from helpers.prologues import SCRIPTS, install, ours, program

from nccl_doctor.simulate import node

SHELL_SCRIPTS = sorted(file.name for file in SCRIPTS.glob("*.sh") if file.name != "launch.sh")
BROKEN = "echo 'ERROR nccl-doctor:GPU012 gone'; exit 90"
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="root starts the scripts as another user, or mounts")


@root_only
@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_a_shell_that_can_start_no_process_drains_nothing(open_path: Path, script: str) -> None:
    """dash ends with 2 and bash with 254 where fork fails, and each other status than 0 is a verdict for a scheduler."""
    if shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        pytest.skip("no setpriv or prlimit (util-linux)")
    folder = install(open_path, program(open_path / "python3", BROKEN))
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    done = subprocess.run(
        [*user, "prlimit", "--nproc=1", "/bin/sh", "-p", str(folder / script)], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    assert not done.stdout.upper().startswith("ERROR")


@root_only
@pytest.mark.parametrize("script", ["slurm-healthcheck.sh", "slurm-deep.sh"])
def test_nobody_else_can_hold_the_lock(tmp_path: Path, script: str) -> None:
    """flock(1) locks what it can open for reading: a user who holds the lock would switch the health check off."""
    folder = install(tmp_path, program(tmp_path / "python3", "exit 90"))
    inside = f"mount -t tmpfs none /run && umask 000 && {folder / script}; stat -c %a:%u /run/*.lock"
    done = subprocess.run(["unshare", "-m", "/bin/sh", "-c", inside], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert "600:0" == done.stdout.strip()


SIGNALS = {"ignored": "SIGCHLD, SIGTERM, SIGPIPE, SIGHUP, SIGINT, SIGALRM", "blocked": "every signal"}


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize(
    ("tool", "limit", "expected"),
    [(BROKEN, 60, 1), ("exit 1", 60, 0), ("kill -KILL $$", 60, 0), ("trap '' TERM; sleep 600; sleep 600", 1, 0)],
)
def test_signals_that_the_caller_ignores_or_blocks(
    tmp_path: Path, how: str, tool: str, limit: int, expected: int
) -> None:
    def inherit() -> None:
        if how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        else:
            for name in SIGNALS["ignored"].split(", "):
                signal.signal(signal.Signals[name], signal.SIG_IGN)

    script = install(tmp_path, program(tmp_path / "python3", tool), limit) / "slurm-prolog.sh"
    done = subprocess.run([str(script)], capture_output=True, preexec_fn=inherit, check=False)
    assert expected == done.returncode, done.stderr


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trees")
    node.build("dgx-h100", host="node01").write(folder / "well")
    node.build("dgx-h100", "gpu-off-the-bus", host="node02").write(folder / "broken")
    return folder


def torque(script: Path) -> str:
    """What pbs_mom takes for the message of the node; empty where it stays up."""
    with subprocess.Popen(
        ["/bin/sh", "-c", str(script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
        env={"PATH": "/bin:/usr/bin"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.read()[:1023].decode()
    return said if said[:5].upper() == "ERROR" else ""


def test_torque_takes_a_broken_node_down(tmp_path: Path, trees: Path) -> None:
    """Also where there is something to complain about: a warning before the word would hide it."""
    settings = tmp_path / "preflight.toml"
    settings.write_text("typo = 1\n")
    settings.chmod(0o644)
    for tree, down in (("well", False), ("broken", True)):
        python = ours(tmp_path, f"--settings {settings} --root {trees / tree}")
        said = torque(install(tmp_path, python) / "torque-healthcheck.sh")
        assert down == said.startswith("ERROR nccl-doctor:"), said
        assert said.count("\n") == down


@pytest.mark.parametrize(
    "tool", ["exit 1", "kill -KILL $$", "sleep 600", "sleep 600 & exit 0", "echo error in a library; exit 1"]
)
def test_torque_leaves_a_node_up_whatever_happens_to_the_program(tmp_path: Path, tool: str) -> None:
    assert "" == torque(install(tmp_path, program(tmp_path / "python3", tool), 1) / "torque-healthcheck.sh")


def lsf(script: Path, job: dict[str, str]) -> int:
    null = subprocess.DEVNULL
    environ = {**job, "PATH": "/bin /usr/bin /sbin /usr/sbin", "LSB_JOBID": "1"}
    shell = ["/bin/sh", "-c", str(script)]
    return subprocess.run(shell, cwd="/tmp", env=environ, stdin=null, stdout=null, stderr=null, check=False).returncode


@pytest.mark.parametrize(("tree", "expected"), [("well", 0), ("broken", 1)])
def test_lsf_sends_a_job_back_from_a_broken_node(tmp_path: Path, trees: Path, tree: str, expected: int) -> None:
    script = install(tmp_path, ours(tmp_path, f"--root {trees / tree}")) / "lsf-preexec.sh"
    assert expected == lsf(
        script, {"HOME": "/no/such", "PYTHONPATH": str(tmp_path), "IFS": "/", "LSB_SUB_EXTRA": "x\ny"}
    )


@pytest.mark.parametrize(
    ("tool", "expected"), [("exit 91", 99), ("exit 1", 0), ("exit 99", 0), ("kill -SEGV $$", 0), ("sleep 600", 0)]
)
def test_lsf_runs_the_job_for_everything_but_a_verdict(tmp_path: Path, tool: str, expected: int) -> None:
    assert expected == lsf(install(tmp_path, program(tmp_path / "python3", tool), 1) / "lsf-preexec.sh", {})
