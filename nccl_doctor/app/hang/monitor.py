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
from nccl_doctor.app.hang.signs import BLOCKED, Job, Signs
from nccl_doctor.derive.hang.job_state import JobState
from nccl_doctor.derive.hang.job_stop import judge
from nccl_doctor.derive.hang.stacks import WAITS
from nccl_doctor.formats.recording.hang_records import Looks

BETWEEN = 5.0  # seconds from the first look to the second
EAGER_BLOCKED, EAGER_BETWEEN = (
    0.8,
    2.0,
)  # the same where somebody waits, or where connections are stuck and will soon fail
LATER = (25.0, 60.0, 120.0, 300.0)  # seconds to the third look and those behind it
OTHERS_EVERY = 5.0  # seconds between two looks for headlines of other nodes
OTHERS_FRESH = 60.0  # seconds for which the headline of another node counts
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
    broken: int = 0  # ranks that had ended or were stopped at the last look
    asked: bool = False  # another node says that the job stands still


class HangMonitor:
    """Gets every sample of a node; a thread of its own looks, because stacks take seconds on a loaded node."""

    def __init__(
        self,
        put: Put,
        folder: Path | None = None,
        *,
        eager: bool = False,
        own: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`put` gets records of kind `hang`; what else tells of a stop goes into the folder of a recording.

        With `own` only ranks that run under this recording count. With `eager` a moment without a move is enough for a
        look, and the second one follows soon: for one page.
        """
        self._put = put
        self._clock = clock
        self._eager = eager
        self._tick, self._between = (0.25, EAGER_BETWEEN) if eager else (1.0, BETWEEN)
        self._folder = folder
        self._lock = threading.Lock()
        self._signs = Signs(EAGER_BLOCKED if eager else BLOCKED, folder.name if own and folder is not None else None)
        self._watched: dict[str, _Watched] = {}
        self._stopped = threading.Event()
        self._others_read = float("-inf")

    def start(self) -> None:
        """Look once a second whether to look."""
        threading.Thread(target=self._run, name="hang", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def add(self, record: dict[str, Any]) -> None:
        """Take a sample; called by the threads that sample."""
        now = self._clock()
        silence = output_silence(self._folder, now) if self._folder is not None else None
        with self._lock:
            self._signs.add(record, now, silence)

    def _run(self) -> None:
        while not self._stopped.wait(self._tick):
            self.step()

    def step(self) -> None:
        """Look at every job that is due."""
        now = self._clock()
        elsewhere = self._stopped_elsewhere(now)
        with self._lock:
            jobs = dict(self._signs.jobs)
            due = [job for name, job in jobs.items() if self._is_due(job, now, name in elsewhere)]
            for name in [name for name in self._watched if name not in jobs]:
                del self._watched[name]
        for job in due:
            self._look(job, self._watched[job.name])

    def _is_due(self, job: Job, now: float, elsewhere: bool) -> bool:
        """Returns whether to look at a job now; says so where it moves again."""
        watched = self._watched.setdefault(job.name, _Watched())
        moves = job.moves(now)
        if watched.looks and moves and not elsewhere:
            self._withdraw(job.name, watched)
            return False
        if moves:
            watched.negative, watched.due = 0, min(watched.due, now + NEGATIVE[0])
        watched.asked |= elsewhere and not watched.looks
        if watched.state is not None and len(job.broken) > watched.broken:
            return False  # the job is being ended: what it shows now is not why it stopped
        return (now >= watched.due and (watched.looks > 0 or job.suspicious(now))) or (
            watched.asked and not watched.looks
        )

    def _stopped_elsewhere(self, now: float) -> set[str]:
        """Returns the jobs of which a recorder of another node, in the same folder, says that they stand still."""
        if self._folder is None or now - self._others_read < OTHERS_EVERY:
            return set()
        self._others_read = now
        found = set()
        for file in self._folder.parent.glob(f"run-*/{evidence.HEADLINE}"):
            with suppress(OSError):
                if file.parent != self._folder and now - file.stat().st_mtime < OTHERS_FRESH:
                    found.add(evidence.job_of(file.read_text("utf-8", "replace")))
        return found

    def _look(self, job: Job, watched: _Watched) -> None:
        watched.looks += 1
        watched.broken = len(job.broken)
        (record,) = look(list(job.ranks.values()), watched.looks, since=job.since, quiet=job.quiet, gpus=job.gpus)
        watched.records.add(record)
        ranks = watched.records.ranks(job.name)
        if watched.looks == 1:
            wait = sum(one.doing in WAITS or one.state in ("stopped", "zombie", "ended") for one in ranks)
            if not wait and not watched.asked:
                if self._eager:  # somebody waits for the answer
                    self._withdraw(job.name, watched)
                else:
                    self._clear(watched, self._clock())
                return
            self._put("hang", record)
            watched.due = self._clock() + (EAGER_BETWEEN if record.get("sockets") else self._between)
            return
        self._put("hang", record)
        before, watched.state = watched.state, judge(ranks, watched.records.sockets(job.name))
        if watched.state is None:
            if watched.asked:
                watched.due = self._clock() + LATER[-1]
            else:
                self._withdraw(job.name, watched)
            return
        watched.due = self._clock() + LATER[min(watched.looks - 2, len(LATER) - 1)]
        evidence.collect(self._folder, job, watched.state, first=before is None)

    def _withdraw(self, name: str, watched: _Watched) -> None:
        """Say that the job moves again."""
        stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        self._put("hang", {"kind": "hang", "hostname": gethostname(), "query_time": stamp, "job": name, "over": True})
        self._clear(watched, self._clock())
        evidence.withdraw(self._folder)

    def _clear(self, watched: _Watched, now: float) -> None:
        watched.due = now + NEGATIVE[min(watched.negative, len(NEGATIVE) - 1)]
        watched.negative += 1
        watched.looks, watched.state, watched.records, watched.asked = 0, None, Looks(), False


def output_silence(folder: Path, now: float) -> float | None:
    """Returns seconds since the recorded job wrote anything; None where nothing is recorded."""
    times = []
    for name in ("output.log", "error.log"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(now - max(times), 0.0) if times else None
