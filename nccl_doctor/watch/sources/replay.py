"""Replays a recording: at any speed, from any time, with the times at which findings began."""

import io
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Any

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.inputs.streams import open_regular
from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.sources.feed import Put, parse_record
from nccl_doctor.watch.state import State, record_time

_LONGEST = 16 << 20  # bytes of a line
MARK_RUNS = 40  # runs of the rules for the marks of a recording, at most
MARK_EVERY = 15.0  # seconds of a recording between two of them, at least

Mark = tuple[float, str]  # when a finding began, and its severity


@dataclass
class Skipped:
    """What of one file could not be replayed."""

    lines: int = 0
    first: int = 0  # number of the first line that is not a record
    lost: Counter[str] = field(default_factory=Counter)  # bytes that the recorder dropped, by reason
    problem: str = ""

    def sentence(self, name: str) -> str:
        """Returns `gpu.jsonl: 3 lines are not records, the first is line 17`; empty where nothing was skipped."""
        parts = [self.problem] if self.problem else []
        if self.lines:
            words = "lines are not records, the first is" if self.lines > 1 else "line is not a record:"
            parts.append(f"{self.lines} {words} line {self.first}")
        parts += [f"{count} bytes were not recorded ({why})" for why, count in self.lost.items()]
        return f"{name}: {'; '.join(parts)}" if parts else ""


class Replay:
    """The records of a folder in order of time, and which one comes next."""

    def __init__(self, put: Put, folder: Path) -> None:
        self._put = put
        self._skipped: dict[str, Skipped] = {}
        self.records = list(self._read(folder))
        if not self.records:
            why = f" ({'; '.join(self.problems)})" if self.problems else ""
            raise UsageProblem(f"{folder} contains no recording of `nccl-doctor record`{why}")
        self.start_time = self.records[0][0]
        self.end_time = self.records[-1][0]
        self.position = 0  # index of the next record
        self.time = self.start_time

    @property
    def problems(self) -> list[str]:
        """What was skipped, a sentence for each file."""
        return [text for name, skipped in self._skipped.items() if (text := skipped.sentence(name))]

    def forward(self, seconds: float) -> None:
        """Pass on the records of the next seconds."""
        self.time = min(self.time + seconds, self.end_time)
        while self.position < len(self.records) and self.records[self.position][0] <= self.time:
            self._put(self.records[self.position][1])
            self.position += 1

    def seek(self, at: float) -> None:
        """Restart and pass on all records up to a time; the receiving state must be new."""
        self.position, self.time = 0, self.start_time
        self.forward(max(at - self.start_time, 0.0))

    @property
    def ended(self) -> bool:
        return self.position >= len(self.records)

    def _read(self, folder: Path) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yields (seconds since the epoch, record) of all `*.jsonl` files below a folder, ordered by time."""
        found = (
            Path(parent, name)
            for parent, folders, names in os.walk(folder)
            for name in (*folders, *names)
            if name.endswith(".jsonl")
        )
        files = [(file, str(file.relative_to(folder))) for file in sorted(found)]
        for at, _, record in merge(*(self._records(file, name) for file, name in files)):
            yield at, record

    def _records(self, file: Path, name: str) -> Iterator[tuple[float, tuple[str, int], dict[str, Any]]]:
        """Yields (seconds since the epoch, place, record); of records of one time the place gives the order."""
        skipped = self._skipped.setdefault(name, Skipped())
        try:
            with io.BufferedReader(open_regular(file)) as lines:
                for number, line in enumerate(iter(lambda: _line(lines), b""), 1):
                    record = parse_record(line)
                    at = record_time(record) if record is not None else None
                    if record is not None and at is not None:
                        yield at, (name, number), record
                    elif (gap := _gap(line)) is not None:
                        skipped.lost[gap[0]] += gap[1]
                    else:
                        skipped.lines, skipped.first = skipped.lines + 1, skipped.first or number
        except OSError as error:
            skipped.problem = f"cannot be read: {error.strerror}"


def _line(lines: "io.BufferedReader[io.FileIO]") -> bytes:
    """The next line, or so much of it as may be held; a hole of a sparse file is passed over."""
    line = lines.readline(_LONGEST)
    if len(line) == _LONGEST and not line.strip(b"\0"):
        try:
            lines.seek(os.lseek(lines.fileno(), lines.tell(), os.SEEK_DATA))
        except OSError:  # ENXIO: there is no data up to the end
            lines.seek(0, os.SEEK_END)
    return line


def _gap(line: bytes) -> tuple[str, int] | None:
    """Returns reason and bytes of the line that the recorder writes where it dropped records."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and isinstance(found.get("dropped"), int):
        return str(found.get("why"))[:80], found["dropped"]
    return None


def find_marks(records: list[tuple[float, dict[str, Any]]], goes_on: Callable[[], bool]) -> Iterator[list[Mark]]:
    """Judges a recording from time to time; yields the marks found so far after each run. Pauses as long as it works."""
    state, diagnosis = State(), LiveDiagnosis()
    every = max(MARK_EVERY, (records[-1][0] - records[0][0]) / MARK_RUNS)
    due = records[0][0] + every
    stops: dict[tuple[str, float], Mark] = {}
    for number, (at, record) in enumerate(records):
        state.add_record(record)
        diagnosis.add_record(record)
        stops |= {(job.job, job.since): (job.since, "error") for job in state.jobs.values() if job.state == "stopped"}
        if at < due and number + 1 < len(records):
            continue
        if not goes_on():
            return
        due = at + every
        started = time.thread_time()
        diagnosis.diagnose(state)
        yield [*stops.values(), *((episode.first, episode.finding.severity) for episode in diagnosis.episodes)]
        time.sleep(time.thread_time() - started)
