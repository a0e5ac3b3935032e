"""The scripts for schedulers: only a verdict drains a node, and nothing that a job controls is run or believed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.prologues import SCRIPTS, install, ours, program

from nccl_doctor.app.preflight_config import Settings
from nccl_doctor.node.deep import active_tests
from nccl_doctor.simulate import node

# script -> exit status for a broken node, for a job that cannot work
STATUSES = {
    "slurm-prolog.sh": (1, 0), "slurm-healthcheck.sh": (1, 0), "slurm-taskprolog.sh": (0, 0), "gridengine-prolog.sh": (1, 100),
    "slurm-deep.sh": (1, 0), "lsf-preexec.sh": (1, 99), "torque-healthcheck.sh": (0, 0), "node-problem-detector.sh": (1, 0),
}  # fmt: skip
NEEDED = ("/usr/bin/env", "/usr/bin/timeout", "/usr/bin/flock", "/bin/sed")
pytestmark = pytest.mark.skipif(
    not all(Path(name).exists() for name in NEEDED),
    reason=f"the scripts need {', '.join(NEEDED)} (coreutils, util-linux, sed)",
)


def call(script: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", **more}
    return subprocess.run([str(script)], env=environ, capture_output=True, text=True, check=False)


def test_every_script_is_tried() -> None:
    assert {"launch.sh", *STATUSES} == {file.name for file in SCRIPTS.glob("*.sh")}
    assert all(os.access(file, os.X_OK) for file in SCRIPTS.glob("*.sh"))


@pytest.mark.parametrize("script", STATUSES)
@pytest.mark.parametrize(("status", "which"), [(90, 0), (91, 1)])
def test_a_verdict_becomes_what_the_scheduler_expects(tmp_path: Path, script: str, status: int, which: int) -> None:
    python = program(tmp_path / "python3", f"echo 'ERROR nccl-doctor:GPU012 gone'; exit {status}")
    done = call(install(tmp_path, python) / script)
    assert STATUSES[script][which] == done.returncode, done.stderr
    assert "GPU012" in done.stdout + done.stderr


ENDS = {
    "import-error": "echo \"ModuleNotFoundError: No module named 'nccl_doctor'\" >&2; exit 1",
    "usage": "exit 2",
    "our-failure": "exit 3",
    "not-executable": "exit 126",
    "not-found": "exit 127",
    "flush-failed": "exit 120",
    "ssh": "exit 255",
    "grid-engine-words": "exit 100",
    "killed": "kill -KILL $$",
    "terminated": "kill -TERM $$",
    "segmentation-fault": "kill -SEGV $$",
    "aborted": "kill -ABRT $$",
    "hung": "sleep 600",
    "hung-and-deaf": "trap '' TERM; sleep 600; sleep 600",
    "forges-a-status": "echo 'status 90'; echo '90'; echo 'x 90'; exit 1",
    "daemon-keeps-stdout": "sleep 600 & exit 1",
}


@pytest.mark.parametrize("script", STATUSES)
@pytest.mark.parametrize("end", ["import-error", "killed"])
def test_whichever_script_the_job_runs(tmp_path: Path, script: str, end: str) -> None:
    done = call(install(tmp_path, program(tmp_path / "python3", ENDS[end])) / script)
    assert 0 == done.returncode, done.stdout
    assert "nothing is drained" in done.stderr
    assert not done.stdout.startswith("ERROR")


@pytest.mark.parametrize("end", ENDS)
def test_whatever_happens_to_the_program_the_job_runs(tmp_path: Path, end: str) -> None:
    limit = 1 if end.startswith("hung") else 60
    done = call(install(tmp_path, program(tmp_path / "python3", ENDS[end]), limit) / "slurm-prolog.sh")
    assert (0, "") == (done.returncode, done.stdout)
    (line,) = [line for line in done.stderr.splitlines() if "nothing is drained" in line]
    assert line.startswith("nccl-doctor: ")


@pytest.mark.parametrize(("script", "limit"), [("slurm-deep.sh", 1), ("slurm-prolog.sh", 60)])
def test_deep_tests_have_a_limit_of_their_own(tmp_path: Path, script: str, limit: int) -> None:
    python = program(tmp_path / "python3", 'case "$*" in *--deep*) sleep 600 ;; esac; exit 0')
    folder = install(tmp_path, python, 60)
    launch = folder / "launch.sh"
    launch.write_text(re.sub(r"(?m)^DEEP_LIMIT=\d+", "DEEP_LIMIT=1", launch.read_text()))
    done = call(folder / script)
    assert 0 == done.returncode
    assert (f"no answer within {limit} s" in done.stderr) == (limit == 1)


def test_the_limits_of_the_launcher_are_above_those_of_the_program() -> None:
    limits = dict(re.findall(r"(?m)^(LIMIT|DEEP_LIMIT)=(\d+)", (SCRIPTS / "launch.sh").read_text()))
    assert int(limits["LIMIT"]) >= 4 * Settings().timeout  # the scheduler is asked afterwards
    assert int(limits["DEEP_LIMIT"]) > Settings().deep_timeout + 60
    longest = (
        sum(active_tests.SECONDS.values())
        + 8 * active_tests.SECONDS["ib_write_bw"]
        + active_tests.SECONDS["nvbandwidth"]
    )
    assert Settings().deep_timeout > active_tests.DCGM_SECONDS[2] + longest


@pytest.mark.parametrize("what", ["missing", "no-permission", "no-module", "folder-missing", "launcher-missing"])
def test_what_is_missing_lets_the_job_run(tmp_path: Path, what: str) -> None:
    python = tmp_path / "python3"
    if what == "no-permission":
        python.write_text("")
    elif what == "no-module":
        base = Path(sys.base_prefix) / "bin" / "python3"
        python = base if base.exists() else Path(sys.executable)
    folder = install(tmp_path, tmp_path / "no" / "x" if what == "folder-missing" else python)
    if what == "no-module":
        launch = folder / "launch.sh"
        launch.write_text(launch.read_text().replace("'-m nccl_doctor'", "'-m no_such_module'"))
    if what == "launcher-missing":
        (folder / "launch.sh").unlink()
    done = call(folder / "slurm-prolog.sh")
    assert 0 == done.returncode, done.stderr
    assert "" != done.stderr


def with_logger(folder: Path, log: Path) -> None:
    """Let the scripts write to a file what they would send to syslog."""
    logger = program(folder / "logger", f"printf '%s\\n' \"$*\" >> {log}")
    for script in folder.glob("*.sh"):
        script.write_text(script.read_text().replace("/usr/bin/logger", str(logger)))


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("missing", ["launch.sh", "flock", "folder"])
@pytest.mark.parametrize("script", STATUSES)
def test_a_missing_launcher_is_one_line_in_syslog(tmp_path: Path, script: str, missing: str, shell: str) -> None:
    """`sh -p` of a missing file ends with 2 in dash and with 127 in bash."""
    interpreter = shutil.which(shell)
    if interpreter is None:
        pytest.skip(f"{shell} is not installed")
    folder, log = install(tmp_path, tmp_path / "no" / "python3"), tmp_path / "log"
    with_logger(folder, log)
    text = (folder / script).read_text()
    if missing == "flock":
        if "/usr/bin/flock" not in text:
            pytest.skip("takes no lock")
        (folder / script).write_text(text.replace("/usr/bin/flock", "/usr/bin/no-such-flock"))
    else:
        (folder / script).write_text(text.replace("/bin/sh -p", f"{interpreter} -p"))
    if missing == "launch.sh":
        (folder / "launch.sh").unlink()
    done = call(folder / script)
    assert (0, "") == (done.returncode, done.stdout)
    (line,) = log.read_text().splitlines()
    expected = "python3 was not found" if missing == "folder" else "launch.sh ended with status"
    assert line.startswith("-t nccl-doctor -p daemon.warning -- ")
    assert expected in line
    assert line.endswith("nothing is drained")


@pytest.mark.parametrize("script", STATUSES)
@pytest.mark.parametrize("status", [0, 90, 91])
def test_a_verdict_is_no_failure_of_the_launcher(tmp_path: Path, script: str, status: int) -> None:
    folder, log = install(tmp_path, program(tmp_path / "python3", f"exit {status}")), tmp_path / "log"
    with_logger(folder, log)
    call(folder / script)
    assert not log.exists()


def test_a_program_that_cannot_be_killed_is_left_behind(tmp_path: Path) -> None:
    folder = install(tmp_path, program(tmp_path / "python3", "echo $$ > $0.pid; exec sleep 600"), 1)
    launch = folder / "launch.sh"
    # Without the inner time limit the program stays, as one that blocks in the kernel does.
    launch.write_text(launch.read_text().replace('/usr/bin/timeout -k 2 "$LIMIT" "$PYTHON"', '"$PYTHON"'))
    done = call(folder / "slurm-prolog.sh")
    os.kill(int((tmp_path / "python3.pid").read_text()), 9)
    assert 0 == done.returncode
    assert "does not end" in done.stderr


@pytest.mark.parametrize("stdout", ["full", "closed"])
def test_a_report_that_cannot_be_written_drains_nothing(tmp_path: Path, stdout: str) -> None:
    script = install(tmp_path, program(tmp_path / "python3", "echo broken; exit 90")) / "slurm-prolog.sh"
    where = {"full": ">/dev/full", "closed": ">&-"}[stdout]
    done = subprocess.run(["/bin/sh", "-c", f"{script} {where}"], capture_output=True, text=True, check=False)
    assert 0 == done.returncode
    assert "the report cannot be written" in done.stderr


def hostile(folder: Path, proof: Path) -> dict[str, str]:
    """An environment in which everything that can be redirected leads to programs that touch `proof`."""
    touch = f"/usr/bin/touch {proof}"
    for name in ("env", "sh", "timeout", "logger", "sed", "flock", "python3", "python", "ip", "scontrol", "chronyc", "timedatectl",
                 "getent", "nvidia-smi", "cd", "umask", "read", "echo", "printf"):  # fmt: skip
        program(folder / name, touch)
    for name in ("sitecustomize", "usercustomize", "json", "click", "nccl_doctor"):
        (folder / f"{name}.py").write_text(f"import os\nos.system({touch!r})\n")
    (folder / "rc").write_text(f"{touch}\n")
    (folder / "libnvidia-ml.so.1").write_text("")
    rules = folder / ".config" / "nccl-doctor" / "rules"
    rules.mkdir(parents=True)
    (rules / "x.toml").write_text("broken")
    functions = {f"BASH_FUNC_{name}%%": f"() {{ {touch}; }}" for name in
                 ("env", "case", "read", "echo", "printf", "cd", "umask", "timeout", "/usr/bin/env", "exit", "test")}  # fmt: skip
    return {
        **functions, "PATH": f"{folder}:.:", "ENV": str(folder / "rc"), "BASH_ENV": str(folder / "rc"), "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"), "PYTHONPATH": str(folder), "PYTHONHOME": str(folder),
        "PYTHONSTARTUP": str(folder / "json.py"), "PYTHONINSPECT": "1", "PYTHONUSERBASE": str(folder),
        "LD_LIBRARY_PATH": str(folder), "SHIV_ROOT": str(folder), "SHIV_ENTRY_POINT": "os:abort", "TMPDIR": str(folder),
        "NCCL_DOCTOR": str(folder / "env"), "NCCL_DOCTOR_OPTIONS": "--rules /", "NCCL_DOCTOR_DEBUG": "1", "IFS": "/",
        "PYTHON": str(folder / "env"), "PROGRAM": str(folder / "json.py"), "LIMIT": "0", "POSIXLY_CORRECT": "1", "CDPATH": "/",
        "SHELLOPTS": "xtrace", "PS4": f"$({touch})", "BASHOPTS": "extdebug", "BASH_XTRACEFD": "1", "PROMPT_COMMAND": touch,
        "GCONV_PATH": str(folder), "LOCPATH": str(folder), "NLSPATH": f"{folder}/%N", "LC_ALL": "x.EVIL", "LANG": "x.EVIL",
        "TZ": f":{folder}/rc", "GLIBC_TUNABLES": "glibc.malloc.check=3", "MALLOC_TRACE": f"{folder}/trace",
        "RES_OPTIONS": "debug", "HOSTALIASES": str(folder / "rc"), "LOCALDOMAIN": "evil", "OPENSSL_CONF": str(folder / "rc"),
        "PYTHONBREAKPOINT": "os.abort", "PYTHONWARNINGS": "error", "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDEVMODE": "1",
        "SLURM_JOB_ID": f"1;{touch};$({touch})", "SLURM_JOB_GPUS": f"$({touch})", "SLURM_CONF": str(folder / "rc"),
        "SLURM_SCRIPT_CONTEXT": f"`{touch}`", "SLURMD_NODENAME": f"-x $({touch})", "USER": f"$({touch})", "TERM": f"{folder}/x",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="what root runs")
@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("script", [name for name in STATUSES if name != "slurm-taskprolog.sh"])
def test_nothing_of_the_job_is_run_by_root(tmp_path: Path, script: str, shell: str) -> None:
    """A user of Grid Engine became root with `qsub -v NCCL_DOCTOR=/home/me/evil`."""
    interpreter = shutil.which(shell)
    if interpreter is None:
        pytest.skip(f"{shell} is not installed")
    evil, proof, tree = tmp_path / "evil", tmp_path / "proof", tmp_path / "tree"
    evil.mkdir()
    node.build("dgx-h100", host="node01").write(tree)
    folder = install(tmp_path, ours(tmp_path))
    sh = tmp_path / "bin" / "sh"  # a shell that is called sh, as the kernel does for #!/bin/sh
    sh.parent.mkdir()
    sh.symlink_to(interpreter)
    done = subprocess.run(
        [str(sh), "-p", str(folder / script)], env=hostile(evil, proof), cwd=evil, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    assert not proof.exists()
    assert "nothing is drained" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="what root runs")
@pytest.mark.parametrize(
    "what", [".", "bin/python3", "lib/python3.11/site-packages", "lib/python3.11/site-packages/click"]
)
@pytest.mark.parametrize("weak", ["group", "owner"])
def test_an_environment_that_others_can_change_is_not_run(tmp_path: Path, what: str, weak: str) -> None:
    venv = tmp_path / "venv"
    (venv / "lib" / "python3.11" / "site-packages" / "click").mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "pyvenv.cfg").touch()
    script = (
        install(tmp_path, program(venv / "bin" / "python3", f"/usr/bin/touch {tmp_path}/ran; exit 90"))
        / "lsf-preexec.sh"
    )
    assert 1 == call(script).returncode
    (tmp_path / "ran").unlink()
    if weak == "owner":
        os.chown(venv / what, 12345, 0)
    else:
        (venv / what).chmod(0o775)
    done = call(script)
    assert (0, False) == (done.returncode, (tmp_path / "ran").exists())
    assert "not only root can change the program: " in done.stderr


@pytest.mark.parametrize("rank", ["0", "1", ""])
def test_a_task_prolog_speaks_once_a_node(tmp_path: Path, rank: str) -> None:
    python = program(tmp_path / "python3", "echo 'print nccl-doctor: job: x'; exit 0")
    done = call(install(tmp_path, python) / "slurm-taskprolog.sh", **({"SLURM_LOCALID": rank} if rank else {}))
    assert (0, rank != "1") == (done.returncode, "print nccl-doctor" in done.stdout)


def test_a_task_prolog_survives_the_pythons_of_users(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    node.build("dgx-h100", host="node01").write(tree)
    folder = install(tmp_path, ours(tmp_path, f"--root {tree}"))
    done = call(
        folder / "slurm-taskprolog.sh", PYTHONHOME="/no/such", PYTHONPATH=str(SCRIPTS), PYTHONSTARTUP="/dev/full"
    )
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_the_pod_is_what_the_schema_of_kubernetes_says() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    pod = yaml.safe_load((SCRIPTS / "kubernetes-init.yaml").read_text())
    validate.validate(pod, validate.latest_version(), strict=True)
    pod["spec"]["initContainers"][0]["volumeMount"] = []
    with pytest.raises(validate.ValidationError):
        validate.validate(pod, validate.latest_version(), strict=True)


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 0), (2, 0), (90, 1), (91, 1), (137, 0)])
def test_the_command_of_the_pod_fails_for_a_verdict_alone(tmp_path: Path, status: int, expected: int) -> None:
    program(tmp_path / "nccl-doctor", f"exit {status}")
    pod = yaml.safe_load((SCRIPTS / "kubernetes-init.yaml").read_text())
    command = pod["spec"]["initContainers"][0]["command"]
    assert expected == subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False).returncode


def test_the_taint_is_for_the_condition_of_the_detector() -> None:
    rule = yaml.safe_load((SCRIPTS / "kubernetes-taint.yaml").read_text())
    detector = json.loads((SCRIPTS / "node-problem-detector.json").read_text())
    assert ("readiness.node.x-k8s.io/v1alpha1", "NodeReadinessRule") == (rule["apiVersion"], rule["kind"])
    conditions = [{"type": one["type"], "requiredStatus": "False"} for one in detector["conditions"]]
    assert conditions == rule["spec"]["conditions"]
    assert {one["condition"] for one in detector["rules"]} == {one["type"] for one in conditions}
    assert rule["spec"]["taint"]["effect"] in ("NoSchedule", "PreferNoSchedule", "NoExecute")
