"""Starts one job under `record` on this node, on two hosts that are namespaces, or under MPI, and watches its recording."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import wire
from faults import BAD, Fault

HERE = Path(__file__).resolve().parent
DOCTOR = [sys.executable, "-m", "nccl_doctor"]
START = 240.0  # seconds from the start of a job to its fault, at most
AT = 60  # step of the fault
ADDRESSES = ("10.77.0.1", "10.77.0.2")
# Becomes a host: a name, a loopback, and the device that `wire` makes.
HOST = (
    'hostname "$1"; ip link set lo up; while ! ip addr add "$2/24" dev tun0; do sleep 0.1; done 2>/dev/null; '
    "ip link set tun0 up mtu 1400; mount -t tmpfs tmpfs /dev/shm; shift 2; exec \"$@\""
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """What the jobs run with."""

    torch: Path  # virtual environment with torch
    mpi: Path | None  # one with mpi4py and mpirun
    ranks: int


class Job:
    """One job under `record`."""

    def __init__(self, machine: Machine, fault: Fault, folder: Path, port: int, steps: int | None = None) -> None:
        self.folder, self.port = folder, port
        self._machine, self._fault, self._steps = machine, fault, steps
        self._out = (folder / "out.txt").open("wb")
        self._over = threading.Event()
        if fault.place == "hosts":
            if fault.name == "port":
                (folder / "wire").write_text(f"only {port}")
            self._processes = [self._start(self._host(number)) for number in range(2)]
            threading.Thread(target=self._carry, daemon=True).start()
        else:
            inside = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=8m tmpfs /dev/shm; exec "$@"', "sh"]
            self._processes = [self._start([*(inside if fault.name == "shm" else []), *self._command()])]

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent.parent)}
        environ["GLOO_SOCKET_IFNAME"] = "tun0" if self._fault.place == "hosts" else "lo"
        return subprocess.Popen(command, env=environ, stdout=self._out, stderr=self._out, start_new_session=True)

    def _command(self, host: int | None = None) -> list[str]:
        machine, fault = self._machine, self._fault
        options = [fault.name, f"--bad={BAD}", f"--at={AT}", f"--folder={self.folder}"]
        options += [f"--steps={self._steps}"] if self._steps else []
        record = [*DOCTOR, "record", "-o", str(self.folder / "run"), "--"]
        if fault.place == "mpi":
            assert machine.mpi is not None
            mpirun = [str(machine.mpi / "bin/mpirun"), "-n", str(machine.ranks)]
            return [*record, *mpirun, str(machine.mpi / "bin/python"), str(HERE / "train_mpi.py"), *options]
        nodes = [] if host is None else ["--nnodes=2", f"--node-rank={host}"]
        each = machine.ranks if host is None else machine.ranks // 2
        return [
            *record, str(machine.torch / "bin/torchrun"), *nodes, f"--nproc-per-node={each}",
            f"--master-addr={'127.0.0.1' if host is None else ADDRESSES[0]}", f"--master-port={self.port}",
            str(HERE / "train.py"), *options,
        ]  # fmt: skip

    def _host(self, number: int) -> list[str]:
        spaces = ["unshare", "--net", "--uts", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
        return [*spaces, "sh", "-c", HOST, "sh", f"node0{number + 1}", ADDRESSES[number], *self._command(number)]

    def inside(self, host: int) -> list[str]:
        """Returns what runs a command on one of the two hosts."""
        child = psutil.Process(self._processes[host].pid).children()[0]
        return ["nsenter", f"--target={child.pid}", "--net", "--uts", "--pid", "--mount"]

    def _carry(self) -> None:
        """Connect the two hosts as long as the job runs."""
        tuns = []
        for process in self._processes:
            while not (children := psutil.Process(process.pid).children()):
                time.sleep(0.02)
            tuns.append(wire.open_tun(children[0].pid))
        with contextlib.suppress(OSError):  # a namespace ended
            wire.carry(tuns[0], tuns[1], self.folder / "wire", lambda: not self._over.is_set())
        for tun in tuns:
            os.close(tun)

    @property
    def runs(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def headline(self) -> tuple[str, float] | None:
        """Returns the headline of the recording and when it was written; of two hosts, the one that knows more."""
        found = []
        for file in self.folder.glob("run/run-*/headline.txt"):
            with contextlib.suppress(OSError):
                found.append((file.read_text().strip(), file.stat().st_mtime))
        return min(found, key=lambda one: "nothing is known" in one[0], default=None)

    def fault_time(self) -> float | None:
        """Returns when the fault began; None before it."""
        try:
            return float((self.folder / "fault").read_text())
        except (OSError, ValueError):
            return None

    def wait(self, *, headline: bool, limit: float) -> tuple[float | None, str | None]:
        """Waits for the headline, or for the end of the job, at most `limit` after the fault.

        Returns seconds since the fault, None where nothing came, and the headline.
        """
        end = time.time() + START
        while self.runs and (time.time() < end or self.fault_time() is not None):
            at = self.fault_time()
            if headline and at is not None and (found := self.headline()):
                half = "nothing is known" in found[0] and time.time() - at < limit  # the other host will say more
                if not half:
                    return found[1] - at, found[0]
            if at is not None and time.time() - at > limit:
                return None, None
            time.sleep(0.1)
        at, found = self.fault_time(), self.headline()
        if headline and at is not None and found:
            return found[1] - at, found[0]
        return (time.time() - at if at is not None else None), None

    def stop(self) -> None:
        """End the job as a scheduler does; then the rest of it, which a stopped rank would outlive."""
        for process in self._mine():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "record" in words[:4] and "nccl_doctor" in words[:4]:
                    process.send_signal(signal.SIGTERM)
        end = time.time() + 15
        while self.runs and time.time() < end:
            time.sleep(0.1)
        for process in self._mine():
            for number in (signal.SIGCONT, signal.SIGKILL):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
        for started in self._processes:
            started.wait(30)
        self._over.set()
        self._out.close()

    def _mine(self) -> Iterator[psutil.Process]:
        """Processes whose command line names the folder of this job."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and any(str(self.folder) in word for word in process.cmdline()):
                    yield process
