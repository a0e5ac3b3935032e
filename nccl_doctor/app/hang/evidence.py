"""What a stopped job can tell beside its stacks: NCCL's RAS service, PyTorch's flight recorder, and the headline, as files."""

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from nccl_doctor.app.hang import ras
from nccl_doctor.app.hang.signs import Job
from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.derive.hang.job_state import JobState

HEADLINE = "headline.txt"
PIPE = b"TORCH_NCCL_DEBUG_INFO_PIPE_FILE="
RAS_SECONDS = 5.0


def collect(folder: Path | None, job: Job, state: JobState, *, first: bool) -> None:
    """Let PyTorch dump its flight recorder where it waits for that; write headline and RAS into the folder of a recording."""
    if first:
        for pid, rank in job.ranks.items():
            trigger_flight_recorder(pid, rank.rank)
    if folder is None:
        return
    with suppress(OSError):
        replace_file(folder / HEADLINE, f"{state.sentence(time.time(), named=True)}\n".encode(), 0o644)
    if not first or not job.gpus:
        return
    with suppress(OSError, ValueError):
        answer = ras.query_status(ras.address(), RAS_SECONDS)
        replace_file(folder / f"ras-{time.strftime('%H%M%S')}.txt", answer.encode(), 0o644)


def job_of(headline: str) -> str:
    """Returns the job of a headline; empty if it is none."""
    found = re.match(r"JOB (.{1,200}?) (?:STOPPED|WAITS) ", headline)
    return found[1] if found else ""


def withdraw(folder: Path | None) -> None:
    """Remove the headline of a job that moves again."""
    if folder is not None:
        with suppress(OSError):
            (folder / HEADLINE).unlink()


def trigger_flight_recorder(pid: int, rank: int, proc: Path = Path("/proc")) -> bool:
    """Write to the pipe of a rank that dumps its flight recorder (ProcessGroupNCCL.cpp, DumpPipe); returns whether it took it.

    Only for processes of the same user, and only into a FIFO: the name comes from the process.
    """
    try:
        process = proc / str(pid)
        if process.stat().st_uid != os.geteuid():
            return False
        variables = (process / "environ").read_bytes().split(b"\0")
        prefix = next((one.removeprefix(PIPE) for one in variables if one.startswith(PIPE)), b"")
        if not prefix:
            return False
        seen = os.fsencode(process / "root") if prefix.startswith(b"/") else os.fsencode(process / "cwd/")
        pipe = os.open(seen + prefix + b"%d.pipe" % rank, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(pipe)
