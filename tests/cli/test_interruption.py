"""SIGINT and SIGTERM in each state of a command: status 130 or 143, a report on what was read, no process and no file left behind."""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from helpers.places import DEMO, ROOT
from helpers.processes import runs
from helpers.waiting import until

from nccl_doctor.simulate import Spec, write_log

# What is running in each state: the module, the function that the signal comes in, and how much is reported then.
STATES = {
    "before reading": ("nccl_doctor.app.analyze", "InputReader", "nothing"),
    "recognising": ("nccl_doctor.inputs.sources", "sniff", "nothing"),
    "in a scan": ("nccl_doctor.log.scanner", "_is_dense", "a part"),
    "in a decompressor": ("nccl_doctor.inputs.streams", "_cut", "a part"),
    "in a derivation": ("nccl_doctor.app.analyze", "derive_all", "all"),
    "in a function of a query": ("nccl_doctor.facts.sql_functions", "_field", "all"),
    "in a rule": ("nccl_doctor.rules.engine", "_refs", "all"),
    "while saving": ("nccl_doctor.facts.store", "Facts._save", "nothing"),
    "while rendering": ("nccl_doctor.cli.commands.analyze", "render", "nothing"),
    "in a process that reads a part": ("nccl_doctor.log.parallel", "_packed", "a part"),
}
SCRIPT = """
import importlib, os, sys, time
from pathlib import Path
from nccl_doctor.cli import main
from nccl_doctor.inputs import sources
from nccl_doctor.log import parallel, scanner
module, name, number, times, mark = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), Path(sys.argv[5])
scanner.BLOCK = scanner.DENSE_BLOCK = 1 << 15
owner = importlib.import_module(module)
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
real = getattr(owner, name, None)
def signalled(*given, **named):
    signalled.calls += 1
    if signalled.calls == (5 if name == "_cut" else 1):  # the first ones recognise the file
        for _ in range(times):
            os.kill(os.getpid(), number)
    return real(*given, **named)
signalled.calls = 0
def waits(*_):
    (mark.parent / f"{mark.name}.{os.getpid()}").touch()
    while True:
        time.sleep(1000)
def marked(*given):
    data = real(*given)
    marked.size += len(data)
    if marked.size == int(os.environ["BYTES"]):
        mark.touch()
    return data
if name == "_packed":
    parallel.PARALLEL, parallel.processors = 1000, lambda: 3
    setattr(owner, name, waits)
elif name == "read":
    marked.size = 0
    owner.read = lambda *given: marked(*given)
else:
    setattr(owner, name, signalled)
sys.argv[1:] = sys.argv[6:]
main.run()
"""


def _command(state: tuple[str, str, str], number: int, times: int, mark: Path) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *state[:2], str(number), str(times), str(mark), "analyze", "--width", "200"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a log of many blocks and one behind it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "job.log").write_text("\n".join(write_log(Spec(nodes=1, gpus=8, steps=1500))) + "\n")
    (folder / "other.log").write_bytes(DEMO.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("state", "number", "times"),
    [
        *((state, signal.SIGINT, 1) for state in STATES),
        *((state, signal.SIGTERM, 1) for state in ("in a scan", "in a rule", "while saving")),
        *((state, signal.SIGINT, 2) for state in ("in a scan", "in a rule", "in a process that reads a part")),
    ],
)
def test_a_signal_in_every_state(state: str, number: signal.Signals, times: int, work: Path, tmp_path: Path) -> None:
    temporary, marks = tmp_path / "tmp", tmp_path / "marks"
    temporary.mkdir()
    marks.mkdir()
    _, function, reported = STATES[state]
    if state == "in a decompressor":
        subprocess.run(["gzip", str(work / "job.log")], check=True)
    before = set(work.iterdir())
    command = [*_command(STATES[state], number, times, marks / "mark"), str(work)]
    command += ["--save", str(work / "x.db")] if state == "while saving" else []
    environment = {**os.environ, "TMPDIR": str(temporary)}

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        if function == "_packed":
            until(lambda: any(marks.iterdir()) or process.poll() is not None)
            for _ in range(times):
                process.send_signal(number)  # to this process only, as `kill` and batch systems do
        printed, said = process.communicate()

    assert 128 + number == process.returncode, said.decode()
    assert "Traceback" not in said.decode()
    if times == 1:
        assert (reported != "nothing") == bool(printed)
        assert (reported == "a part") == ("interrupted after" in " ".join(printed.decode().split()))
        assert (reported != "a part") or "HEALTHY" not in printed.decode()
    elif function != "_packed":  # two signals that are sent from outside may come as one
        assert b"" == printed
    assert (before, []) == (set(work.iterdir()), list(temporary.iterdir()))
    until(lambda: not any(runs(int(mark.suffix[1:])) for mark in marks.glob("mark.*")))


def test_a_pipe_that_stays_open_is_reported_on(tmp_path: Path) -> None:
    """As of `tail -f job.log | nccl-doctor analyze -`."""
    data = DEMO.read_bytes()
    state = ("nccl_doctor.inputs.sources", "_Pipe.read", "a part")
    mark = tmp_path / "mark"
    command = [*_command(state, 0, 0, mark), "-"]
    environment = {**os.environ, "BYTES": str(len(data))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdin is not None
        process.stdin.write(data)
        process.stdin.flush()
        until(lambda: mark.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate()

    assert 130 == process.returncode, said.decode()
    assert "interrupted after the first bytes" in " ".join(printed.decode().split())
    assert b"NET001" in printed or b"ERROR" in printed


def test_a_caller_that_ignores_sigterm_is_obeyed() -> None:
    script = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from nccl_doctor.cli import interruption; interruption.end_on_sigterm()\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)"
    )
    assert "True\n" == subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("module", ["signal", "click"])  # what other programs load first, and a later one
def test_ctrl_c_while_modules_are_loaded_leaves_no_traceback(module: str) -> None:
    script = (
        "import os, runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == '{module}': os.kill(os.getpid(), {signal.SIGINT:d})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "runpy.run_module('nccl_doctor', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (-signal.SIGINT, b"") == (done.returncode, done.stderr)


def test_ctrl_c_while_the_one_file_unpacks_leaves_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "nccl-doctor.pyz"
    with file.open("wb") as made:
        made.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(made, "w") as parts:
            parts.writestr("__main__.py", "")
            parts.writestr("_bootstrap/__init__.py", f"import os; os.kill(os.getpid(), {signal.SIGINT:d})")
    start = ROOT / "pyz_start.py"
    assert 0 == subprocess.run([sys.executable, start, file], check=False).returncode
    done = subprocess.run([sys.executable, file], capture_output=True, env={"SHIV_ROOT": str(tmp_path)}, check=False)

    assert (-signal.SIGINT, b"") == (done.returncode, done.stderr)
