"""SIGINT and SIGTERM in each state of a command: status 130 or 143, one process less, and no file left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import DEMO
from helpers.processes import runs
from helpers.waiting import until

# What waits in each state: the module, the function that is replaced, and whether the children of the command wait in it.
STATES = {
    "before reading": ("nccl_doctor.app.analyze", "InputReader"),
    "recognising": ("nccl_doctor.inputs.sources", "sniff"),
    "in a scan": ("nccl_doctor.log.scanner", "_is_dense"),
    "in a decompressor": ("nccl_doctor.inputs.streams", "_cut"),
    "in a derivation": ("nccl_doctor.app.analyze", "derive_all"),
    "in a function of a query": ("nccl_doctor.facts.sql_functions", "version_number"),
    "in a rule": ("nccl_doctor.rules.engine", "_refs"),
    "while saving": ("nccl_doctor.facts.store", "_create_tables"),
    "while rendering": ("nccl_doctor.cli.commands.analyze", "render"),
    "in a process that reads a part": ("nccl_doctor.log.parallel", "_packed"),
}
SCRIPT = """
import importlib, os, sys, time
from pathlib import Path
from nccl_doctor.cli import main
from nccl_doctor.facts import sql_functions, store
from nccl_doctor.log import parallel
module, name, mark = sys.argv[1:4]
def waits(*_, **__):
    (Path(mark) / str(os.getpid())).touch()
    while True:
        time.sleep(1000)
if module == "nccl_doctor.facts.sql_functions":
    register = store.register_functions
    def registered(db):
        register(db)
        db.create_function("regexp", 2, waits)
    store.register_functions = registered
elif module == "nccl_doctor.facts.store":
    saved = store.Facts._save
    store.Facts._save = waits
else:
    setattr(importlib.import_module(module), name, waits)
if name == "_packed":
    parallel.PARALLEL, parallel.processors = 1000, lambda: 3
sys.argv[1:] = sys.argv[4:]
main.run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("state", STATES)
def test_a_signal_ends_a_command_in_every_state(state: str, number: signal.Signals, tmp_path: Path) -> None:
    work, marks, temporary = (tmp_path / name for name in ("work", "marks", "tmp"))
    for folder in (work, marks, temporary):
        folder.mkdir()
    log = work / "job.log"
    log.write_bytes(DEMO.read_bytes())
    if state == "in a decompressor":
        subprocess.run(["gzip", str(log)], check=True)
    before = set(work.iterdir())
    command = [sys.executable, "-c", SCRIPT, *STATES[state], str(marks)]
    command += ["analyze", str(work), "-o", str(work / "report.json")]
    command += ["--save", str(work / "x.db")] if state == "while saving" else []
    environment = {**os.environ, "TMPDIR": str(temporary)}

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        until(lambda: any(marks.iterdir()) or process.poll() is not None)
        process.send_signal(number)  # to this process only, as `kill` and batch systems do
        _, said = process.communicate()

    assert (128 + number, b"") == (process.returncode, said.replace(b"\n", b"")), said.decode()
    assert (before, []) == (set(work.iterdir()), list(temporary.iterdir()))
    until(lambda: not any(runs(int(mark.name)) for mark in marks.iterdir()))


def test_a_caller_that_ignores_sigterm_is_obeyed() -> None:
    script = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from nccl_doctor.cli import interruption; interruption.end_on_sigterm()\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)"
    )
    assert "True\n" == subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
