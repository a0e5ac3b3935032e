"""`preflight --for`: a verdict drains a node, and nothing that goes wrong with the tool does."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.prologues import program

from nccl_doctor.app import preflight
from nccl_doctor.cli import fail_open, slurm
from nccl_doctor.cli.fail_open import DRAIN
from nccl_doctor.cli.main import main
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

CALL = [sys.executable, "-I", "-m", "nccl_doctor", "preflight", "--state", "-", "--timeout", "60"]
SCHEDULERS = ("slurm", "slurm-health", "pbs", "torque", "lsf", "gridengine", "k8s", "npd")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    node.build("dgx-h100", "gpu-off-the-bus", host="node02").write(folder)
    return folder


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("well")
    node.build("dgx-h100", host="node01").write(folder)
    return folder


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What syslogd would receive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.setblocking(False)
        monkeypatch.setattr(fail_open, "LOG", str(tmp_path / "log"))
        yield server


def received(log: socket.socket) -> list[str]:
    lines = []
    while True:
        try:
            lines.append(log.recv(4096).decode())
        except BlockingIOError:
            return lines


def call(*arguments: str, shell: str = '"$@"') -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *CALL, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("caller", [name for name in SCHEDULERS if not name.startswith("slurm")])
def test_a_verdict_about_the_node_drains_it(broken: Path, caller: str, log: socket.socket) -> None:
    assert DRAIN == main(["preflight", "--state", "-", "--for", caller, "--root", str(broken)])
    (line,) = received(log)
    assert "]: drain: nccl-doctor:" in line


def test_the_status_is_of_nothing_else() -> None:
    programs = {
        1,
        2,
        120,
        124,
        125,
        126,
        127,
        137,
        255,
        *range(64, 79),
        *range(128, 193),
        99,
        100,
        123,
        fail_open.JOB,
        0,
        3,
        130,
    }
    assert DRAIN not in programs


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param('"$@" >/dev/full', id="stdout-full"),
        pytest.param('"$@" >&-', id="stdout-closed"),
        pytest.param('"$@" >/dev/full 2>/dev/full', id="both-full"),
        pytest.param('"$@" <&- >&- 2>&-', id="all-closed"),
        pytest.param('ulimit -n 8; "$@"', id="few-files"),
        pytest.param('ulimit -n 4; "$@"', id="hardly-any-file"),
        pytest.param('ulimit -v 20000; "$@"', id="no-memory"),
        pytest.param('ulimit -t 0; "$@"', id="no-time"),
        pytest.param('"$@" --no-such-option', id="wrong-option"),
        pytest.param('"$@" --timeout x', id="wrong-value"),
        pytest.param('"$@" --for slrum', id="wrong-scheduler"),
        pytest.param('"$@" --expect /no/such', id="expect-missing"),
        pytest.param('"$@" --expect /etc/hostname', id="expect-broken"),
        pytest.param('"$@" --config /no/such', id="config-missing"),
        pytest.param('"$@" --config /etc/hostname', id="config-broken"),
        pytest.param('"$@" --settings /no/such', id="settings-missing"),
        pytest.param('"$@" --settings /etc/hostname', id="settings-broken"),
        pytest.param('"$@" --root /no/such', id="root-missing"),
        pytest.param('"$@" --save /no/such/x.tar --root /', id="save-impossible"),
        pytest.param('"$@" -o /no/such/x', id="output-impossible"),
        pytest.param('"$@" --only teapot', id="unknown-collector"),
        pytest.param('"$@" & kill -TERM $!; wait $!', id="terminated"),
        pytest.param('"$@" & kill -KILL $!; wait $!', id="killed"),
    ],
)
def test_whatever_goes_wrong_a_broken_node_is_not_drained_for_it(broken: Path, shell: str) -> None:
    done = call("--for", "gridengine", "--root", str(broken), shell=shell)
    assert DRAIN != done.returncode, done.stderr
    if "kill" not in shell and "ulimit" not in shell:
        assert 0 == done.returncode, done.stderr


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param('"$@" <&-', id="stdin-closed"),
        pytest.param('"$@" <&- 2>&-', id="stdin-and-stderr-closed"),
        pytest.param('cd "$(mktemp -d)" && rmdir "$PWD" && "$@"', id="folder-gone"),
        pytest.param('LC_ALL=tlh_XX LANG=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0 "$@"', id="unknown-locale"),
        pytest.param('LC_ALL=POSIX "$@"', id="locale-of-ascii"),
        pytest.param('ulimit -f 0; "$@"', id="no-file-may-grow"),
        pytest.param('ulimit -n 24; "$@"', id="two-dozen-files"),
        pytest.param('ulimit -c 0; ulimit -s 256; ulimit -v 400000; "$@"', id="little-memory"),
    ],
)
def test_odd_surroundings_change_no_verdict(broken: Path, shell: str) -> None:
    done = call("--for", "lsf", "--root", str(broken), shell=shell)
    assert (DRAIN, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("nccl-doctor: drain: ")


@pytest.mark.parametrize("umask", ["0", "777"])
def test_the_umask_of_the_caller_opens_and_closes_nothing(broken: Path, tmp_path: Path, umask: str) -> None:
    options = [
        "--for",
        "lsf",
        "--root",
        str(broken),
        "--state",
        str(tmp_path / "state"),
        "--learn",
        str(tmp_path / "learned"),
    ]
    assert DRAIN == call(*options, shell=f'umask {umask}; "$@"').returncode
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}
    assert {"state": "0o700", "node.json": "0o600", "learned": "0o644"}.items() <= modes.items()


@pytest.mark.parametrize(
    "options",
    [("-I", "-S"), ("-I", "-c", "import no_such_module"), ("/no/such/file",), ("-c", "raise SystemExit('90')")],
)
def test_an_interpreter_that_cannot_start_the_program_drains_nothing(options: tuple[str, ...]) -> None:
    arguments = [
        sys.executable,
        *options,
        *(["-m", "nccl_doctor", "preflight", "--for", "slurm"] if "-S" in options else []),
    ]
    assert DRAIN != subprocess.run(arguments, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    "arguments", [["--config", "/no/such"], ["--nonsense"], ["--root", "/no/such"], ["--expect", "/no/such"]]
)
def test_a_failure_is_one_line_in_syslog(
    log: socket.socket, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["preflight", "--for", "slurm", *arguments])
    (line,) = received(log)
    assert line.startswith("<28>nccl-doctor[")
    assert line.endswith("; nothing is drained")
    assert 1 == capfd.readouterr().err.count("\n")
    assert 2 == main(["preflight", *arguments])  # a person gets the status of the command line
    assert [] == received(log)


def test_a_bug_of_ours_is_one_line_in_syslog(log: socket.socket, well: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_code(*_: object, **__: object) -> None:
        raise RecursionError("x\ny")

    monkeypatch.setattr(preflight, "report_of", broken_code)
    monkeypatch.setenv("NCCL_DOCTOR_DEBUG", "1")  # of the job
    for caller, status in (("slurm", 0), ("gridengine", 0), ("npd", 2), ("nagios", 3)):
        assert status == main(["preflight", "--state", "-", "--for", caller, "--root", str(well)])
        assert 1 == len(received(log))


@pytest.mark.parametrize(("caller", "status"), [(None, 3), ("slurm", 0), ("npd", 2), ("nagios", 3)])
def test_rules_that_never_end_end_with_the_job_running(caller: str | None, status: int, log: socket.socket) -> None:
    script = (
        "import sys, time; from nccl_doctor.app import preflight; from nccl_doctor.cli import fail_open, main\n"
        f"fail_open.GRACE, fail_open.LOG = 0.1, {fail_open.LOG!r}\n"
        "preflight.report_of = lambda *_, **__: time.sleep(3600)\n"
        "main.run()"
    )
    options = ["preflight", "--state", "-", "--timeout", "0.5", *(["--for", caller] if caller else [])]
    done = subprocess.run([sys.executable, "-c", script, *options], capture_output=True, text=True, check=False)

    assert (status, "nccl-doctor: preflight found no verdict within 1.1 s\n") == (done.returncode, done.stderr)
    assert bool(caller) == any("; nothing is drained" in line for line in received(log))


def test_a_log_that_nobody_reads_holds_nobody_up(log: socket.socket) -> None:
    for _ in range(2000):
        fail_open.syslog("x" * 900)
    assert len(received(log)) < 2000


@pytest.mark.parametrize("how", ["--observe", "--no-drain", "settings"])
@pytest.mark.parametrize("caller", SCHEDULERS)
def test_observe_says_what_would_be_done_and_does_nothing(
    broken: Path, caller: str, how: str, tmp_path: Path, log: socket.socket, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    program(tmp_path / "scontrol", f'echo "$@" >> {tmp_path}/asked; echo NodeName=node02 State=IDLE')
    monkeypatch.setattr(slurm, "FOLDERS", (str(tmp_path),))
    (tmp_path / "preflight.toml").write_text("observe = true\n")
    option = ["--settings", str(tmp_path / "preflight.toml")] if how == "settings" else [how]
    assert 0 == main(["preflight", "--state", "-", "--for", caller, *option, "--root", str(broken)])
    (line,) = received(log)
    assert "observe: would drain: nccl-doctor:" in line
    asked = tmp_path / "asked"
    assert not asked.exists() or "update" not in asked.read_text()
    out = capfd.readouterr().out
    assert not out.startswith("ERROR")


def test_one_configuration_serves_analyze_and_preflight(well: Path, broken: Path, tmp_path: Path) -> None:
    """NET003 is a rule about logs, which preflight does not ask; today's typo must not be tomorrow's drain."""
    file = tmp_path / "c.toml"
    file.write_text('off = ["NET003"]\n[severity]\nNET001 = "note"\n')
    assert 0 == main(["preflight", "--state", "-", "--config", str(file), "--root", str(well)])
    log = tmp_path / "job.log"
    log.write_text("node01:101:140 [0] NCCL INFO NET/IB : No device found.\n")
    assert 2 != main(["analyze", "--config", str(file), str(log)])
    drains = [one.rule for one in preflight.preflight(Root(broken))[0].findings if one.action == "drain"]
    file.write_text(f"off = {json.dumps(['NET003', *drains])}\n")
    assert DRAIN != main(["preflight", "--state", "-", "--config", str(file), "--root", str(broken)])
    file.write_text('off = ["NOSUCH001"]\n')
    assert 2 == main(["preflight", "--state", "-", "--config", str(file), "--root", str(broken)])
    assert 0 == main(["preflight", "--state", "-", "--for", "lsf", "--config", str(file), "--root", str(broken)])


@pytest.mark.parametrize("content", ["= broken", 'id = "SITE001"', ""])
def test_rules_of_the_site_that_do_not_load_are_left_out(
    well: Path, broken: Path, tmp_path: Path, content: str, log: socket.socket
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "x.toml").write_text(content)
    for tree, status in ((well, 0), (broken, DRAIN)):
        assert status == main(["preflight", "--state", "-", "--for", "lsf", "--rules", str(rules), "--root", str(tree)])
        assert "rule left out" in received(log)[0]
    assert 0 == main(["preflight", "--state", "-", "--for", "lsf", "--rules", "/no/such", "--root", str(well)])


def test_the_settings_are_explained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "preflight.toml"
    file.write_text('observe = true\ntypo = 1\nrules = ["/no/such"]\n')
    assert 0 == main(["preflight", "--settings", str(file), "--timeout", "9", "--explain-config"])
    rows = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    assert any(row.startswith("# ") and "unknown key typo" in row for row in rows)
    assert any(row.startswith(f"observe = true # {file}: ") for row in rows)
    assert any(row.startswith("timeout = 9 # option: ") for row in rows)
    assert "# /no/such: absent" in rows
