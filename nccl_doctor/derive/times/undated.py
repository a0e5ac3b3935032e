"""Kernel events of which no clock tells when they were, seen from the job: the report says so beside them.

In one file the order of the lines may tell. A kernel log of its own has a date, or seconds since boot, or a clock of another zone.
"""

import re
from collections.abc import Iterator

from nccl_doctor.common.timestamps import Moment, moment
from nccl_doctor.derive.declaration import Rows, derivation
from nccl_doctor.derive.prejob_kernel_events import KERNEL, job_moments, job_year
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    Env,
    IbError,
    KernelLog,
    Message,
    Process,
    ProcessEnd,
    PythonError,
    SocketError,
    Step,
    ThroughputRun,
    Timeline,
    Undated,
    Watchdog,
    Xid,
)  # fmt: skip

_LEAP_YEAR = 2000  # for dates without a year, where no line of the job names one
_SINCE_BOOT = re.compile(r"\[ {0,8}\d{1,10}\.\d{3,9}\]")
_EVENTS = f"""
SELECT t.host, e.id, e.file, e.text FROM evidence e JOIN (
  SELECT host, ref FROM xid WHERE code <> 45
  UNION ALL SELECT host, ref FROM message WHERE kind IN ({", ".join(f"'{kind}'" for kind in KERNEL)})
) t ON t.ref = e.id
"""
_FILES = """
SELECT DISTINCT e.file FROM evidence e WHERE e.id IN (
  SELECT ref FROM process UNION ALL SELECT ref FROM communicator UNION ALL SELECT ref FROM watchdog UNION ALL SELECT ref FROM step
  UNION ALL SELECT ref FROM python_error)
"""


@derivation(
    fills=[Undated],
    reads=[
        Communicator, Env, IbError, KernelLog, Process, ProcessEnd, PythonError, SocketError, Step, ThroughputRun,
        Timeline, Watchdog,
    ],
    needs=[Xid, Message],
)  # fmt: skip
def undated(facts: Facts) -> Rows:
    """One row for each such event, where other files show a job."""
    if facts.query("SELECT EXISTS (SELECT 1 FROM kernel_log)")[0][0]:
        return None  # a node's own log has the clock of the node
    events = facts.query(_EVENTS)
    of_job = {file for (file,) in facts.query(_FILES)} if events else set()
    apart = [row for row in events if row[2] not in of_job] if of_job else []
    return _undated(facts, apart) if apart else None


def _undated(facts: Facts, events: list[tuple[str | None, int, str, str]]) -> Iterator[Undated]:
    year = job_year(facts) or _LEAP_YEAR
    of_job = job_moments(facts, year)
    for host, ref, _, text in events:
        why = unplaced(text, year, of_job)
        if why:
            yield Undated(host, why, ref)


def unplaced(text: str, year: int, of_job: list[Moment]) -> str:
    """Why the time of a line cannot be compared with the job's; empty where it can."""
    when = moment(text, year)
    if when is None:
        return "its line counts seconds since boot" if _SINCE_BOOT.search(text) else "its line has no date"
    if not of_job:
        return "no line of the job has a date"
    return "" if any(when.until(one) is not None for one in of_job) else "one of the two clocks names no time zone"
