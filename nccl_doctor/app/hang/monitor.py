"""Watches the samples of a node for jobs that stand still, looks at them, and passes on what it saw as records."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any

from nccl_doctor.app.hang import evidence
from nccl_doctor.app.hang.look import look
from nccl_doctor.app.hang.signs import Job, Signs
from nccl_doctor.derive.hang.job_state import JobState
from nccl_doctor.derive.hang.job_stop import WAITS, judge
from nccl_doctor.formats.recording.hang_records import Looks

BETWEEN = 5.0  # seconds from the first look to the second
LATER = (25.0, 60.0, 120.0, 300.0)  # seconds to the third look and those behind it
NEGATIVE = (10.0, 20.0, 40.0, 80.0, 160.0, 320.0)  # seconds to the next look after one that found no stop

Put = Callable[[str, dict[str, Any]], None]


@dataclass
class _Watched:
    """How far the looks at one job are."""

    looks: int = 0
    negative: int = 0  # looks in a row that found no stop
    due: float = 0.0
    records: Looks = field(default_factory=Looks)
    state: JobState | None = None


class HangMonitor:
    """Gets every sample of a node; a thread of its own looks, because stacks take seconds on a loaded node."""

    def __init__(self, put: Put, folder: Path | None = None) -> None:
        """`put` gets records of kind `hang`; what else tells of a stop goes into the folder of a recording."""
        self._put = put
        self._folder = folder
        self._lock = threading.Lock()
        self._signs = Signs()
        self._watched: dict[str, _Watched] = {}
        self._stopped = threading.Event()
        self._asked = False

    def start(self) -> None:
        """Look once a second whether to look."""
        threading.Thread(target=self._run, name="hang", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def add(self, record: dict[str, Any]) -> None:
        """Take a sample; called by the threads that sample."""
        now = time.time()
        silence = output_silence(self._folder, now) if self._folder is not None else None
        with self._lock:
            self._signs.add(record, now, silence)

    def ask(self) -> None:
        """Look at all jobs now: another node saw that a job stands still."""
        self._asked = True

    def _run(self) -> None:
        while not self._stopped.wait(1.0):
            self.step(time.time())

    def step(self, now: float) -> None:
        """Look at every job that is due."""
        with self._lock:
            jobs = dict(self._signs.jobs)
            asked, self._asked = self._asked, False
            due = []
            for name, job in jobs.items():
                watched = self._watched.setdefault(name, _Watched())
                if watched.looks and job.moves(now):
                    self._withdraw(name, watched)
                elif now >= watched.due and (watched.looks or asked or job.suspicious(now)):
                    due.append((job, watched))
                elif not watched.looks and job.moves(now):
                    watched.negative = 0
            for name in [name for name in self._watched if name not in jobs]:
                del self._watched[name]
        for job, watched in due:
            self._look(job, watched, now)

    def _look(self, job: Job, watched: _Watched, now: float) -> None:
        watched.looks += 1
        (record,) = look(list(job.ranks.values()), watched.looks, since=job.since, quiet=job.quiet, gpus=job.gpus)
        watched.records.add(record)
        ranks = watched.records.ranks(job.name)
        if watched.looks == 1:
            wait = sum(one.doing in WAITS or one.state in ("stopped", "zombie", "ended") for one in ranks)
            if not wait:
                self._clear(watched, now)
                return
            self._put("hang", record)
            watched.due = time.time() + BETWEEN
            return
        self._put("hang", record)
        before, watched.state = watched.state, judge(ranks, watched.records.sockets(job.name))
        if watched.state is None:
            self._withdraw(job.name, watched)
            return
        watched.due = time.time() + LATER[min(watched.looks - 2, len(LATER) - 1)]
        evidence.collect(self._folder, job, watched.state, first=before is None)

    def _withdraw(self, name: str, watched: _Watched) -> None:
        """Say that the job moves again."""
        stamp = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        self._put("hang", {"kind": "hang", "hostname": gethostname(), "query_time": stamp, "job": name, "over": True})
        self._clear(watched, time.time())
        evidence.withdraw(self._folder)

    def _clear(self, watched: _Watched, now: float) -> None:
        watched.due = now + NEGATIVE[min(watched.negative, len(NEGATIVE) - 1)]
        watched.negative += 1
        watched.looks, watched.state, watched.records = 0, None, Looks()


def output_silence(folder: Path, now: float) -> float | None:
    """Returns seconds since the recorded job wrote anything; None where nothing is recorded."""
    times = []
    for name in ("output.log", "error.log"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(now - max(times), 0.0) if times else None
