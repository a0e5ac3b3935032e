"""Runs a job with the settings that a diagnosis needs; keeps samples, output and outcome in a folder for `analyze`.

Everything is appended and on disk within a second, so a killed recorder or a dead node loses at most the last second.
The job keeps its own output and exit status whatever happens to the folder (full, read-only, removed) or to the recorder.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nccl_doctor.app.recorder.settings import PIPE_FILE, settings
from nccl_doctor.app.recorder.tee import Channel, Tee, write_all
from nccl_doctor.app.recorder.terminal import Terminal
from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.own_command import own_command
from nccl_doctor.common.process_identity import boot_id, start_ticks
from nccl_doctor.node.runtime.redact import KEPT, SECRET

SCHEMA = "nccl-doctor/run/1"
RUN = "run-"  # prefix of the folder of a run
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
REPORT_LIMIT = 120.0  # seconds for `analyze` after the job
KEPT_FREE = ".reserve"  # file that keeps some of a small disk free for end.json
KEPT_BYTES = 1 << 14
POLL = 0.05  # seconds between two looks at the job
_WATCHED = {*PASSED_ON, signal.SIGINT, signal.SIGCHLD, signal.SIGWINCH}
_FROM_KERNEL = 0x80  # si_code of a signal that the terminal sent to the whole group


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

    def __init__(self, run: Path, interval: float = 1.0, rotate: int | None = None, *, auto: bool = True) -> None:
        self.run = run
        self._auto = auto
        self._interval = interval
        self._rotate = rotate
        self._sampler: subprocess.Popen[bytes] | None = None
        self._started = time.time()
        self._signals: list[dict[str, Any]] = []
        self._lacking: dict[str, Any] = {}
        self._unsampled = ""  # why there are no samples

    def job(self, command: Sequence[str], torch: bool = False, horovod: bool = False, tty: bool = False) -> int:
        """Run the command to its end and return its exit status, 128 + the number of the signal that ended it.

        With `tty` the command gets a terminal of its own. Raises UsageProblem if it cannot be started.
        """
        with suppress(OSError):
            (self.run / KEPT_FREE).write_bytes(b"\n" * KEPT_BYTES)
        added = settings(self.run, os.environ, torch, horovod)
        environ = {**os.environ, **added, "NCCL_DOCTOR_RECORDING": str(self.run)}
        self._write_start(command, added)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        terminal = None
        try:
            terminal = Terminal() if tty else None
            child, tee = self._start(command, environ, terminal, before)
            try:
                self.sample(own=True)
            except OSError as error:  # the job matters more
                self._unsampled = str(error.strerror)
            while child.poll() is None:
                self._wait(child, tee, terminal)
            self._lacking = tee.finish()
            remove_pipes(added)
        finally:
            self.stop()
            if terminal is not None:
                terminal.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = child.returncode
        self._write_end(code if code >= 0 else 128 - code, -code if code < 0 else None)
        return code if code >= 0 else 128 - code

    def _start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        terminal: Terminal | None,
        mask: set[int | signal.Signals],
    ) -> tuple["subprocess.Popen[bytes]", Tee]:
        """Start the job with its output in pipes, or in its terminal. Raises UsageProblem.

        What copies the output is there before the job: where the machine has room for one of them only, no job runs unseen.
        """

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if terminal is not None:
                terminal.attach()

        output = self.run / "output.log"
        stdin = None
        tee = child = None
        pipes: list[tuple[int, int]] = []
        try:
            if terminal is not None:
                channels = [Channel(terminal.master, 1, output)]
                writers = [terminal.slave, terminal.slave]
                stdin = terminal.slave if os.isatty(0) else None
            else:
                pipes += [os.pipe()]
                pipes += [os.pipe()]
                (out, out_writer), (err, err_writer) = pipes
                channels = [Channel(out, 1, output), Channel(err, 2, self.run / "error.log")]
                writers = [out_writer, err_writer]
            tee = Tee(channels, self._rotate, {*writers})
            child = subprocess.Popen(
                command, env=environ, stdin=stdin, stdout=writers[0], stderr=writers[1], preexec_fn=prepare
            )
        except OSError as error:
            self._write_end(127, None)
            raise UsageProblem(f"cannot run {command[0]}: {error.strerror}") from None
        finally:
            for writer in {writer for _, writer in pipes} if terminal is None else {terminal.slave}:
                os.close(writer)
            if child is None and tee is not None:
                tee.finish()
        return child, tee

    def _wait(self, child: "subprocess.Popen[bytes]", tee: Tee, terminal: Terminal | None) -> None:
        """Wait a moment for a signal and act on it: pass it on to the job, or replace a killed copying process.

        Ctrl-C is not passed on: the terminal sends it to the whole process group.
        """
        if terminal is not None:
            terminal.pass_input()
        got = signal.sigtimedwait(_WATCHED, POLL)
        if got is None:
            return
        if got.si_signo == signal.SIGCHLD:
            if os.waitpid(tee.pid, os.WNOHANG)[0]:
                tee.restart()
            return
        if got.si_signo == signal.SIGWINCH:
            if terminal is not None:
                terminal.resize()
            return
        name = signal.Signals(got.si_signo).name
        self._signals.append({"signal": name, "time": time.time(), "pid": got.si_pid, "uid": got.si_uid})
        if got.si_signo == signal.SIGINT and got.si_code == _FROM_KERNEL:
            return
        with suppress(ProcessLookupError):
            child.send_signal(got.si_signo)

    def attach(self, seconds: float | None = None, say: Callable[[str], None] = lambda _: None) -> None:
        """Sample the node until the ranks that run, or the first ones to come, have ended, the time is over, or a signal arrives.

        `say` gets a sentence when there is no rank to begin with.
        """
        from nccl_doctor.node.host import job_processes

        self._write_start([], {})
        signals = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        end = None if seconds is None else time.monotonic() + seconds
        got = None
        seen = bool(job_processes.find().ranks)
        if not seen:
            say(
                "no rank of a job runs on this node yet (a process with RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID"
                f" in its environment); sampling {'until one has come and gone' if end is None else 'for the given time'}"
            )
        try:
            self.sample()
            while got is None and (end is None or time.monotonic() < end):
                got = signal.sigtimedwait(signals, 2.0 if end is None else max(min(2.0, end - time.monotonic()), 0.01))
                running = end is None and bool(job_processes.find().ranks)
                if seen and end is None and not running:
                    break
                seen |= running
        finally:
            self.stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._write_end(0, None)

    def lacking(self) -> list[str]:
        """One sentence for each file of the recording that lacks some of the output."""
        lost = [
            f"{self.run / name} lacks {one['dropped']} bytes of the output: {one['why'] or 'the disk did not keep up'}"
            for name, one in self._lacking.items()
        ]
        return lost + ([f"{self.run} lacks samples of the node: {self._unsampled}"] if self._unsampled else [])

    def sample(self, *, own: bool = False) -> None:
        """Start the sampler, a child process that exits when this process exits; `own`: it looks at no other job's stacks."""
        self._sampler = subprocess.Popen(
            [*own_command(), "sample", "--into", str(self.run), "--interval", str(self._interval),
             "--while-parent", str(os.getpid()), *([] if self._auto else ["--no-auto"]),
             *(["--own"] if own else [])],
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
            {"schema": SCHEMA, "host": socket.gethostname(), "pid": os.getpid(), "boot": boot_id(),
             "start_ticks": start_ticks(os.getpid()), "command": list(command), "folder": _working_folder(),
             "started": self._started, "interval": self._interval, "added": dict(added), "environment": kept},
        )  # fmt: skip

    def _write_end(self, status: int, number: int | None) -> None:
        name = signal.Signals(number).name if number in set(signal.Signals) else None
        with suppress(OSError):
            (self.run / KEPT_FREE).unlink()
        self._write("end.json", {"schema": SCHEMA, "host": socket.gethostname(), "status": status, "signal": name,
                                 "signals": self._signals, "lacking": self._lacking,
                                 "started": self._started, "ended": time.time()})  # fmt: skip

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Write a file of the run; where that fails the job matters more."""
        with suppress(OSError):
            replace_file(self.run / name, (json.dumps(content, indent=1) + "\n").encode(), 0o644)


def remove_pipes(added: Mapping[str, str]) -> None:
    """Remove the pipes that PyTorch made for its flight recorder on this node."""
    if prefix := added.get(PIPE_FILE):
        for pipe in Path(prefix).parent.glob(f"{Path(prefix).name}*.pipe"):
            with suppress(OSError):
                pipe.unlink()


def _working_folder() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return None


def report(run: Path) -> None:
    """Print the diagnosis of a run to stderr and keep it as report.txt; never fails, and gives up after REPORT_LIMIT."""
    command = [*own_command(), "analyze", "--color", "never", str(run)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=REPORT_LIMIT, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return
    with suppress(OSError):
        write_all(2, done.stdout)
    with suppress(OSError):
        replace_file(run / "report.txt", done.stdout, 0o644)
