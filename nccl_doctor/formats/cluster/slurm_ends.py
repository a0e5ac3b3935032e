"""How Slurm says that a job ended, as rows that the rules for logs judge.

Ends that Slurm itself announces in the log of a job (time limit, preemption, a lost node) become the messages of the patterns
for those lines, so that the same rules judge both. Any other end with a status or signal becomes a row of `process_end`.
"""

import json
import re
import signal
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, ProcessEnd

# State of the job -> pattern of the line that Slurm writes into its log (nccl_doctor/log/patterns/launcher.toml).
ANNOUNCED = {
    "TIMEOUT": "slurm-time-limit",
    "DEADLINE": "slurm-time-limit",
    "CANCELLED": "slurm-cancelled",
    "PREEMPTED": "slurm-preempted",
    "NODE_FAIL": "slurm-node-failure",
    "OUT_OF_MEMORY": "slurm-oom-kill",
}


_SIGNALS = {one.value: one.name for one in signal.Signals}


class End(NamedTuple):
    """What a command says of the end of one job."""

    job: str | None
    state: str
    exit_code: str  # `STATUS:SIGNAL`; empty where it is not shown
    host: str | None
    reason: str | None
    stamp: float | None
    line: int
    text: str
    reporter: str  # scontrol, sacct, seff
    process: str | None = None  # what of the job ended, for a sentence; None for all of it


def end_rows(facts: Facts, file: str, end: End) -> Iterator[Message | ProcessEnd]:
    """The rows of one end; none for a job that waits, runs or is complete."""
    # The status of a job that failed is never 0: `sacct --json` of 22.05 shows that where it has lost it.
    if end.state in ANNOUNCED:
        words = {
            "what": "JOB",
            "job": end.job,
            "accounted": end.job,
            "node": end.host,
            "state": end.state,
            "reason": end.reason,
        }
        if end.process is not None:
            words["process"] = end.process
        yield Message(
            kind=ANNOUNCED[end.state], level=None, host=end.host, rank=None, pid=None, source=None, text=end.text,
            fields=json.dumps(words, ensure_ascii=False), n=1, last_line=end.line, stamp=end.stamp,
            ref=facts.evidence(file, end.line, end.text),
        )  # fmt: skip
    elif end.state == "FAILED" and (match := re.fullmatch(r"(?:(\d{1,3}):(\d{1,2}))?", end.exit_code)):
        status, number = int(match[1] or 0), int(match[2] or 0)
        yield ProcessEnd(
            host=end.host, rank=None, local_rank=None, pid=None, exitcode=status or -number or None, signal=signal_name(number),
            reporter=end.reporter, first=None, job=end.job, n=1, stamp=end.stamp,
            ref=facts.evidence(file, end.line, f"{end.text} ExitCode={match[0]}" if match[0] not in end.text else end.text),
        )  # fmt: skip


def signal_name(number: int) -> str | None:
    """`SIGKILL` for 9; None for 0 and for numbers without a name."""
    return _SIGNALS.get(number)
