"""Reports on logs on which other tools fail."""

import os
import subprocess
import sys
from pathlib import Path

from helpers.places import FIXTURES
from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.simulate import Spec, write_log

HEALTHY = "\n".join(write_log(Spec(nodes=2, gpus=2, steps=4))) + "\n"
FAULTY = "\n".join(write_log(Spec(nodes=2, gpus=2, steps=4, fault="cuda-oom"))) + "\n"


def told(text: str) -> Report:
    return analyze.report_of(analyze.read_text(text))


def run(*arguments: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """The command itself, in a process of its own."""
    command = [sys.executable, "-m", "nccl_doctor", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(FIXTURES.parent)}
    return subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False)


def life(host: str, rank: int, of: int, pid: int = 0, comm: str = "0xc0ffee", call: str = "ncclCommInitRank") -> str:
    pid = pid or 100 + rank
    return (
        f"{host}:{pid}:{pid + 40} [0] NCCL INFO {call} comm 0x55aa{rank} rank {rank} nranks {of} cudaDev 0 nvmlDev 0 "
        f"busId 1a000 commId {comm} - Init COMPLETE\n"
    )
