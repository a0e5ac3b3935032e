"""The processes of a job on this node: who is which rank, and what each started (/proc, proc_pid_environ(5))."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "HOROVOD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK")
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
STEP = "SLURM_PROCID"  # also a launcher that starts the ranks of a node has one
# A collector of ours that a launcher started beside the ranks has their variables too.
_OURS = re.compile(r"\S+(?: -\S+)* (?:\S*/nccl-doctor|-m nccl_doctor)(?: |$)")
JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
# What ranks of one launch share and two launches do not, on all nodes.
LAUNCHES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "PMI_JOBID")
ADDRESSES = (("MASTER_ADDR", "MASTER_PORT"), ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"))
_HERE = ("localhost", "127.", "::1")


RECORDING = "NCCL_DOCTOR_RECORDING"  # set by `record`: the folder of the run
_SESSION = "=session"  # no name of a variable has an equals sign


class RankProcess(NamedTuple):
    """A process that is a rank of a job."""

    pid: int
    rank: int
    local_rank: int | None
    world: int | None  # number of ranks
    user: int  # uid
    job: str | None  # id of the scheduler
    command: str
    name: str = ""  # of the launch: two jobs on one node have two
    recording: str | None = None  # folder of the recording that it runs under


class Found(NamedTuple):
    """The ranks of this node, and the number of processes that could not be read."""

    ranks: list[RankProcess]
    hidden: int


def find(proc: Path = Path("/proc"), job: str | None = None) -> Found:
    """All ranks that run on this node, or those of one job."""
    rows: dict[int, tuple[int, dict[str, str], str, int]] = {}
    hidden = 0
    for pid in _pids(proc):
        try:
            environ = _environ((proc / str(pid) / "environ").read_bytes())
            command = (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            _, parent, _, session = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[:4]
            user = (proc / str(pid)).stat().st_uid
        except PermissionError:
            hidden += 1
            continue
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
        if command and not _OURS.match(command):
            rows[pid] = (int(parent), {**environ, _SESSION: session}, command, user)
    ranks = {
        pid: parsed
        for pid, (_, environ, command, user) in rows.items()
        if (parsed := _rank(pid, environ, command, user))
    }
    for number in ranks:  # Hydra gives each rank a session
        above, variables, _, _ = rows[number]
        if "PMI_RANK" in variables and variables[_SESSION] == str(number) and above in rows:
            variables[_SESSION] = rows[above][1][_SESSION]
    ranks = {
        pid: one._replace(name=_name(rows[pid][1], proc / str(pid)), recording=rows[pid][1].get(RECORDING) or None)
        for pid, one in ranks.items()
    }
    if job is not None:
        ranks = {pid: one for pid, one in ranks.items() if job in (one.job, one.name)}
    tops = [one for pid, one in ranks.items() if _is_top(pid, ranks, rows)]
    return Found(sorted(tops, key=lambda one: one.rank), hidden)


def _name(environ: Mapping[str, str], process: Path) -> str:
    """Returns what tells a launch from others, equal on all its nodes where its address is not that of one node.

    A scheduler's job and step, the launcher's own name for the launch, or the address where its ranks meet; the network
    namespace tells containers apart whose ranks meet at the same local address. Without any of these, the session.
    """
    parts = [next((environ[one] for one in JOBS if environ.get(one)), "")]
    if parts[0] and environ.get("SLURM_STEP_ID", "").isdecimal():
        parts[0] += f".{environ['SLURM_STEP_ID']}"
    if launch := next((environ[one] for one in LAUNCHES if environ.get(one)), ""):
        parts.append(launch)
    for address, port in ADDRESSES:
        if environ.get(port):
            host = environ.get(address, "")
            parts.append(f"{host}:{environ[port]}")
            if host.startswith(_HERE):
                parts.append(_namespace(process))
            break
    return " ".join(part for part in parts if part)[:120] or f"session {environ.get(_SESSION, '?')}"


def _namespace(process: Path) -> str:
    """Returns the network namespace of a process where it is not ours; empty if it is or cannot be read."""
    try:
        theirs, ours = os.readlink(process / "ns/net"), os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
    return theirs if theirs != ours else ""


def _is_top(
    pid: int, ranks: Mapping[int, RankProcess], told: Mapping[int, tuple[int, Mapping[str, str], str, int]]
) -> bool:
    """Not what a rank started, and no launcher of ranks."""
    mine = ranks[pid]
    parent = told[pid][0]
    while parent in told:
        above = ranks.get(parent)
        if above is not None and above.rank == mine.rank and _explicit(told[parent][1]) == _explicit(told[pid][1]):
            return False
        parent = told[parent][0]
    if _explicit(told[pid][1]):
        return True
    return not any(_descends(other, pid, told) for other in ranks if other != pid and _explicit(told[other][1]))


def _descends(pid: int, above: int, told: Mapping[int, tuple[int, Mapping[str, str], str, int]]) -> bool:
    seen = 0
    while pid in told and seen < 64:
        pid, seen = told[pid][0], seen + 1
        if pid == above:
            return True
    return False


def _explicit(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in RANKS)


def _pids(proc: Path) -> Iterator[int]:
    own = os.getpid()
    for entry in os.listdir(proc):
        if entry.isdigit() and int(entry) != own:
            yield int(entry)


def _environ(data: bytes) -> dict[str, str]:
    pairs = (one.partition(b"=") for one in data.split(b"\0"))
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, mark, value in pairs if mark}


def _rank(pid: int, environ: Mapping[str, str], command: str, user: int) -> RankProcess | None:
    if "python" not in os.path.basename(command.split(" ")[0]):
        return None
    rank = next((environ[name] for name in (*RANKS, STEP) if environ.get(name, "").isdecimal()), None)
    if rank is None:
        return None
    local = next((environ[n] for n in LOCAL_RANKS if n in environ), "")
    world = next((environ[n] for n in WORLDS if n in environ), "")
    job = next((environ[name] for name in JOBS if environ.get(name)), None)
    return RankProcess(
        pid,
        int(rank),
        int(local) if local.isdecimal() else None,
        int(world) if world.isdecimal() else None,
        user,
        job,
        command,
    )
