"""A real Slurm on one machine: munge, slurmctld and two slurmd, all in one folder, stopped at the end."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helpers.processes import runs
from helpers.waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sinfo", "srun", "sbatch")
SCRIPTS = ("prolog", "epilog", "taskprolog", "healthcheck")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
ReturnToService=1
MpiDefault=none
SwitchType=switch/none
PrologFlags=Alloc
PrologEpilogTimeout={limit}
Prolog={folder}/prolog
Epilog={folder}/epilog
TaskProlog={folder}/taskprolog
HealthCheckProgram={folder}/healthcheck
HealthCheckInterval=3
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=100 State=UNKNOWN
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why Slurm cannot run here; empty where it can."""
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)" if absent else ""


class Cluster:
    """Two nodes n1 and n2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, cwd=self.folder, check=False)

    def script(self, name: str, text: str) -> None:
        """The program that slurm.conf names; written anew for each test."""
        part = self.folder / f"{name}.part"
        part.write_text(f"#!/bin/sh\n{text}\n")
        part.chmod(0o755)
        part.replace(self.folder / name)

    def state(self, node: str) -> tuple[str, str]:
        """State and reason of a node."""
        state, _, reason = self.run("sinfo", "-h", "-n", node, "-o", "%T|%E").stdout.strip().partition("|")
        return state, reason

    def idle(self) -> None:
        """Give both nodes back and wait until they take jobs."""
        for node in ("n1", "n2"):
            if "drain" in self.state(node)[0]:
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait(lambda: {self.state(node)[0] for node in ("n1", "n2")} == {"idle"})

    def wait(self, reached: Callable[[], bool]) -> None:
        until(reached, lambda: self.run("sinfo", "-N", "-l").stdout)


def _free_ports() -> int:
    """The first of three ports in a row that nobody uses."""
    for first in range(26817, 27800, 10):
        with suppress(OSError):
            sockets = [socket.create_server(("127.0.0.1", port)) for port in range(first, first + 3)]
            for one in sockets:
                one.close()
            return first
    raise AssertionError("no free ports")


@contextmanager
def cluster(folder: Path, limit: int = 60) -> Iterator[Cluster]:
    """Start everything, and stop it whatever happens. slurmd kills a Prolog or an Epilog after `limit` seconds."""
    first = _free_ports()
    host = socket.gethostname()
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(host=host, folder=folder, limit=limit, port=first, first=first + 1, last=first + 2)
    )
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    slurm = Cluster(folder)
    for name in SCRIPTS:
        slurm.script(name, "exit 0")
    try:
        _started(slurm, "munged", "--force", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid",
                 f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed", f"--key-file={key}")  # fmt: skip
        _started(slurm, "slurmctld", "-c", "-f", f"{folder}/slurm.conf")
        for node in ("n1", "n2"):
            _started(slurm, "slurmd", "-N", node, "-f", f"{folder}/slurm.conf")
        slurm.wait(lambda: {slurm.state(node)[0] for node in ("n1", "n2")} == {"idle"})
        yield slurm
    finally:
        stopped = []
        for file in folder.glob("*.pid"):
            with suppress(OSError, ValueError):
                stopped.append(int(file.read_text()))
                os.kill(stopped[-1], signal.SIGKILL if file.name == "munged.pid" else signal.SIGTERM)
        until(lambda: not any(map(runs, stopped)))


def _started(slurm: Cluster, *command: str) -> None:
    done = slurm.run(*command)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
