"""Runs a job with the settings that a diagnosis needs; keeps samples, output and outcome in a folder for `analyze`.

Everything is appended and on disk within a second, so a killed recorder or a dead node loses at most the last second.
The job itself writes its output to files and continues if the recorder dies.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.node.runtime.redact import KEPT, SECRET

SCHEMA = "nccl-doctor/run/1"
RUN = "run-"  # prefix of the folder of a run
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
POLL = 0.05  # seconds between two reads of the output
_FROM_KERNEL = 0x80  # si_code of a signal that the terminal sent to the whole group


def settings(run: Path, environ: Mapping[str, str], torch: bool, horovod: bool) -> dict[str, str]:
    """Returns the variables that make a job log what a diagnosis needs; variables set by the user are left out."""
    wanted = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH",
        "NCCL_DEBUG_FILE": str(run / "nccl.%h.%p.log"),
        "PYTHONUNBUFFERED": "1",  # a killed process loses its buffered output
    }
    if torch:
        wanted |= {
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(run / "flight_recorder_rank_"),
        }
    if horovod:
        wanted |= {"HOROVOD_TIMELINE": str(run / "timeline.json"), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    if "TORCH_FR_BUFFER_SIZE" in environ or "TORCH_NCCL_TRACE_BUFFER_SIZE" in environ:
        wanted.pop("TORCH_FR_BUFFER_SIZE", None)
        wanted.pop("TORCH_NCCL_TRACE_BUFFER_SIZE", None)
    return {name: value for name, value in wanted.items() if name not in environ}


def new_run(folder: Path) -> Path:
    """Create the folder of this run inside a folder that ranks and nodes may share. Raises UsageProblem."""
    name = f"{RUN}{time.strftime('%Y%m%d-%H%M%S')}-{socket.gethostname().split('.')[0]}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        run = folder.resolve() / name
        run.mkdir()
    except OSError as error:
        raise UsageProblem(f"cannot record into {folder}: {error.strerror}") from None
    return run


def rotate(folder: Path, keep: int) -> None:
    """Remove the oldest finished runs of this node until `keep` remain. A run that is still active is never removed."""
    host = f"-{socket.gethostname().split('.')[0]}-"
    ended = sorted(
        run for run in folder.glob(f"{RUN}*{host}*") if (run / "end.json").is_file() and not run.is_symlink()
    )
    for run in ended[: max(len(ended) - keep, 0)]:
        shutil.rmtree(run, ignore_errors=True)


class Recorder:
    """Records one run of one command."""

    def __init__(self, run: Path, interval: float = 1.0) -> None:
        self.run = run
        self._interval = interval
        self._sampler: subprocess.Popen[bytes] | None = None
        self._started = time.time()

    def job(self, command: Sequence[str], torch: bool = False, horovod: bool = False) -> int:
        """Run the command to its end and return its exit status, 128 + the number of the signal that ended it.

        Raises UsageProblem if it cannot be started.
        """
        added = settings(self.run, os.environ, torch, horovod)
        environ = {**os.environ, **added, "NCCL_DOCTOR_RECORDING": str(self.run)}
        self._write_start(command, added)
        signals = {*PASSED_ON, signal.SIGINT, signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        outputs = [self._open("output.log"), self._open("error.log")]
        try:
            child = subprocess.Popen(
                command, env=environ, stdout=outputs[0], stderr=outputs[1],
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )  # fmt: skip
        except OSError as error:
            self._write_end(127, None)
            raise UsageProblem(f"cannot run {command[0]}: {error.strerror}") from None
        try:
            self.sample()
            with _Follower(self.run / "output.log", 1) as out, _Follower(self.run / "error.log", 2) as err:
                while child.poll() is None:
                    _pass_on(child, signals)
                    out.show()
                    err.show()
        finally:
            self.stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = child.returncode
        self._write_end(code if code >= 0 else 128 - code, -code if code < 0 else None)
        return code if code >= 0 else 128 - code

    def attach(self, seconds: float | None = None) -> None:
        """Sample the node until no rank of a job runs, the time is over, or a signal arrives."""
        from nccl_doctor.node.host import job_processes

        self._write_start([], {})
        signals = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        end = None if seconds is None else time.monotonic() + seconds
        got = None
        try:
            self.sample()
            while got is None and (end is None or time.monotonic() < end):
                got = signal.sigtimedwait(signals, 2.0 if end is None else max(min(2.0, end - time.monotonic()), 0.01))
                if end is None and not job_processes.find().ranks:
                    break
        finally:
            self.stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._write_end(0, None)

    def sample(self) -> None:
        """Start the sampler, a child process that exits when this process exits."""
        self._sampler = subprocess.Popen(
            [sys.executable, "-m", "nccl_doctor", "sample", "--into", str(self.run), "--interval", str(self._interval),
             "--while-parent"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()),
        )  # fmt: skip

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._sampler.wait(3)

    def _write_start(self, command: Sequence[str], added: Mapping[str, str]) -> None:
        kept = {n: v for n, v in os.environ.items() if KEPT.match(f"{n}=") and not SECRET.search(n)}
        self._write(
            "run.json",
            {"schema": SCHEMA, "host": socket.gethostname(), "pid": os.getpid(), "command": list(command),
             "folder": str(Path.cwd()), "started": self._started, "interval": self._interval, "added": dict(added),
             "environment": kept},
        )  # fmt: skip

    def _write_end(self, status: int, number: int | None) -> None:
        name = signal.Signals(number).name if number in set(signal.Signals) else None
        self._write("end.json", {"schema": SCHEMA, "host": socket.gethostname(), "status": status, "signal": name,
                                 "started": self._started, "ended": time.time()})  # fmt: skip

    def _write(self, name: str, content: dict[str, Any]) -> None:
        replace_file(self.run / name, (json.dumps(content, indent=1) + "\n").encode(), 0o644)

    def _open(self, name: str) -> BinaryIO:
        return (self.run / name).open("ab", buffering=0)


def _pass_on(child: "subprocess.Popen[bytes]", signals: set[signal.Signals]) -> None:
    """Pass a signal on to the job. Ctrl-C is not passed on: the terminal sends it to the whole process group."""
    got = signal.sigtimedwait(signals, POLL)
    if got is None or got.si_signo == signal.SIGCHLD:
        return
    if got.si_signo == signal.SIGINT and got.si_code == _FROM_KERNEL:
        return
    with suppress(ProcessLookupError):
        child.send_signal(got.si_signo)


class _Follower:
    """Copies to stdout or stderr what the job appends to a file."""

    def __init__(self, file: Path, number: int) -> None:
        self._file = file.open("rb", buffering=0)
        self._number: int | None = number

    def __enter__(self) -> "_Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self.show()
        self._file.close()

    def show(self) -> None:
        while piece := self._file.read(1 << 16):
            if self._number is None:
                continue
            try:
                left = memoryview(piece)
                while left:
                    left = left[os.write(self._number, left) :]
            except OSError:  # the reader closed the pipe; the file keeps everything
                self._number = None
