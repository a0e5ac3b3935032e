"""Looks at inputs again while they grow, and reports when the findings change."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nccl_doctor.common import interruption
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.log.readers.followed import Follower

PAUSE = 1.0  # seconds between looks at sizes, at least
REST = 4.0  # seconds of pause for each second of processor time of the last look

Look = Callable[[Sequence[str], Follower], Report]
_Sizes = dict[str, tuple[int, int, int]]


class Following:
    """Inputs that are looked at until a signal comes, they rest, or their report is `enough`."""

    def __init__(
        self, paths: Sequence[str], look: Look, show: Callable[[Report], None], say: Callable[[str], None],
        pause: float | None = None, rest: float | None = None,
    ) -> None:  # fmt: skip
        """`look` reads inputs and diagnoses them; `show` gets a report with other findings, `say` a line of state.

        `pause` is the least number of seconds between two looks, `rest` that for each second of processor time of the last one.
        Raises UsageProblem for standard input.
        """
        if "-" in paths:
            raise UsageProblem(
                "--follow needs files or folders; standard input is reported on when it ends or at Ctrl-C"
            )
        self._paths = paths
        self._look, self._show, self._say = look, show, say
        self._pause = PAUSE if pause is None else pause
        self._rest = REST if rest is None else rest
        self._follower = Follower()
        self._problem: UsageProblem | None = None
        self._report: Report | None = None
        self._shown: Report | None = None

    def run(self, enough: Callable[[Report], bool], idle: float | None = None) -> Report:
        """The last report. `idle` is for how many seconds nothing may be appended.

        Raises UsageProblem if nothing could be read, also at the end where the report before was `healthy`.
        """
        sizes: _Sizes = {}
        grown = time.monotonic()
        while True:
            stopping = interruption.requested()  # before the last look
            began = time.process_time()
            paths = [*self._paths, *self._moved()]
            found = dict(_sizes(paths))
            if found != sizes or (self._report is None and self._problem is None):
                grown, sizes = time.monotonic(), found
                self._look_again(paths, sum(size for _, size, _ in found.values()))
            cost = time.process_time() - began
            resting = idle is not None and time.monotonic() - grown >= idle
            if stopping or resting or (self._report is not None and enough(self._report)):
                break
            try:
                with interruption.wait():
                    time.sleep(max(self._pause, self._rest * cost))
            except interruption.Stopped:
                continue
        if self._report is None:
            raise self._problem or UsageProblem("nothing to read")
        if self._problem is not None and self._report.verdict == "healthy":
            raise UsageProblem(f"{self._problem}; the last report is of what could be read before")
        if self._report != self._shown:
            self._show(self._report)
        return self._report

    def _look_again(self, paths: Sequence[str], size: int) -> None:
        try:
            with interruption.held():
                report = self._look(paths, self._follower)
        except UsageProblem as problem:
            if str(problem) != str(self._problem):
                self._say(f"waiting: {problem}")
            self._problem = problem
            return
        self._problem = None
        if self._shown is None or _findings(report) != _findings(self._shown):
            self._show(report)
            self._shown = report
        else:
            self._say(f"{size:,} bytes read, no new finding")
        self._report = report

    def _moved(self) -> Iterator[str]:
        """Logs that were renamed or copied to a name that the user did not give."""
        given = {Path(path) for path in self._paths}
        for path in dict.fromkeys(self._follower.refresh()):
            if given.isdisjoint((path, *path.parents)):
                yield str(path)


def _sizes(paths: Sequence[str]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Inode, size and time of change of every file."""
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - Path() drops what was typed
            for folder, _, names in os.walk(path):
                for name in names:
                    yield from _size(f"{folder}/{name}")
        else:
            yield from _size(path)


def _size(path: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands of files
    except OSError:
        return
    yield path, (found.st_ino, found.st_size, found.st_mtime_ns)


def _findings(report: Report) -> list[Any]:
    """What makes a report a new one: verdict and findings, without their numbers."""
    own = [report.verdict, *((one.rule, one.severity, one.hosts, one.ranks) for one in report.findings)]
    return [own, *(_findings(job) for job in report.jobs)]
