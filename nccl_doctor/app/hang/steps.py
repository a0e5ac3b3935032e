"""How fast a job makes steps, from the newest step line of its log while the log grows.

The time of a step is the one that the program prints, in a format of `formats.training`; else it follows from when the lines came.
"""

import os
import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.formats.training.steps.step_columns import read_step
from nccl_doctor.formats.training.steps.step_formats import TOOLS
from nccl_doctor.inputs.streams import open_regular
from nccl_doctor.node.host.job_processes import RankProcess

WINDOW = 30.0  # seconds over which lines without a time are measured
PIECE = 1 << 18  # bytes of a log that one look reads; of more, the newest
LINES = 200  # lines of a look in which a step is searched, from the newest
OUTPUT = "output.log"  # of a recording
_LIVE_STEP = re.compile(rb"(?i)\b(?:step|iter|iteration)s?\b[ :=#\[]{1,4}(\d{1,12})\b")


class Step(NamedTuple):
    """The newest step of a log."""

    step: int
    seconds: float | None  # of one step
    at: float  # when its line came


class StepTail:
    """Follows one log that may be truncated, replaced or not there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: tuple[int, int] | None = None
        self._offset = 0
        self._seen: deque[tuple[float, int]] = deque()  # when a step came, and its number
        self.last: Step | None = None

    def read(self, now: float) -> Step | None:
        """Returns the newest step; None before the first. Only what was appended is read."""
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                inode = found.st_dev, found.st_ino
                began = self._inode is None
                if inode != self._inode or found.st_size < self._offset:
                    self._inode, self._offset = inode, 0
                start = max(self._offset, found.st_size - PIECE)
                if found.st_size == start:
                    return self.last
                file.seek(start)
                piece = file.read(PIECE)
        except OSError:
            return self.last
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        self._offset = start + end
        step = newest_step(piece[:end])
        if step is not None:
            self._add(*step, found.st_mtime if began else now)
        return self.last

    def _add(self, step: int, seconds: float | None, at: float) -> None:
        if self._seen and step < self._seen[-1][1]:  # it began again
            self._seen.clear()
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((at, step))
        while len(self._seen) > 2 and self._seen[0][0] < at - WINDOW:
            self._seen.popleft()
        (first, least), (last, most) = self._seen[0], self._seen[-1]
        if seconds is None and most > least:
            seconds = (last - first) / (most - least)
        self.last = Step(step, seconds, at)


def newest_step(text: bytes) -> tuple[int, float | None] | None:
    """Returns number and seconds of the last step line of a text: `iter 120: loss 2.1, time 412.0ms, mfu 31.2%` is (120, 0.412)."""
    for line in reversed(re.split(rb"[\r\n]+", text)[-LINES:]):
        for tool in TOOLS:
            if tool.literal in line and (point := read_step(tool, line)) is not None and point[0] is not None:
                return point[0], point[1]
        if (found := _LIVE_STEP.search(line[:1000])) is not None:
            return int(found[1]), None
    return None


class JobSteps:
    """The steps of the jobs on a node, from the output of the lowest rank of each where that is a file."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._tails: dict[str, list[StepTail]] = {}
        self._leads: dict[str, int] = {}  # job -> pid whose files are followed

    def read(self, ranks: Iterable[RankProcess], now: float) -> list[dict[str, object]]:
        """Returns `{"name": job, "step": 120, "seconds": 0.412, "at": 1780000000.0}` of each job whose steps are known."""
        leads: dict[str, RankProcess] = {}
        for one in ranks:
            if one.name not in leads or one.rank < leads[one.name].rank:
                leads[one.name] = one
        for name, lead in leads.items():
            if self._leads.get(name) != lead.pid:
                self._leads[name] = lead.pid
                self._tails[name] = [StepTail(path) for path in self._outputs(lead)]
        for name in self._leads.keys() - leads.keys():
            del self._leads[name], self._tails[name]
        found = []
        for name, tails in self._tails.items():
            steps = [step for tail in tails if (step := tail.read(now)) is not None]
            if steps:
                found.append({"name": name, **max(steps, key=lambda step: step.at)._asdict()})
        return found

    def _outputs(self, lead: RankProcess) -> list[Path]:
        """Returns the files that a process writes its output to: its own, and those of the recording that it runs under."""
        descriptors = self._proc / str(lead.pid) / "fd"
        recorded = [Path(lead.recording) / OUTPUT, Path(lead.recording) / "error.log"] if lead.recording else []
        return [descriptors / "1", descriptors / "2", *recorded]
