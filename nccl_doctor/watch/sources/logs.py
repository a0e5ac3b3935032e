"""Logs that grow while they are watched: the newest step of each, and what `analyze` finds in all of them."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from nccl_doctor.app.analyze import analyze
from nccl_doctor.app.follow import Following
from nccl_doctor.app.hang.steps import StepTail
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.log.readers.followed import Follower
from nccl_doctor.watch.sources.feed import Put

STEPS_EVERY = 1.0  # seconds between two looks for a new step
JUDGED_EVERY = 10.0  # seconds between two runs of the rules over the logs, at least
REST = 20.0  # pause after such a run, as a multiple of its CPU time
FOLLOWED = 64  # files of a folder whose steps are followed

Found = Callable[[list[Finding]], None]


class LogSource:
    """Follows files and folders in two threads: one looks for steps, one runs the rules when a file has grown."""

    def __init__(self, put: Put, found: Found, say: Callable[[str], None], paths: Sequence[str]) -> None:
        """`put` gets records of kind `log`, `found` the findings, `say` why the logs cannot be read. Raises UsageProblem."""
        if "-" in paths:
            raise UsageProblem("--log needs files or folders that grow, not standard input")
        self._put, self._found, self._say = put, found, say
        self._paths = list(paths)
        self._tails: dict[Path, StepTail] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._follow_steps, name="steps", daemon=True).start()
        threading.Thread(target=self._follow_findings, name="logs", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def look_once(self) -> None:
        """Read the steps and what the rules find now, without a thread."""
        self.read_steps()
        try:
            self._judged(_look(self._paths, Follower()))
        except UsageProblem as problem:
            self._say(str(problem))

    def read_steps(self) -> None:
        """Pass on the newest step of each log."""
        now = time.time()
        for path in self._files():
            if path not in self._tails:
                self._tails[path] = StepTail(path)
        steps = [
            {"name": path.name, **step._asdict()}
            for path, tail in self._tails.items()
            if (step := tail.read(now)) is not None
        ]
        if steps:
            stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
            self._put({"kind": "log", "hostname": os.uname().nodename, "query_time": stamp, "steps": steps})

    def _follow_steps(self) -> None:
        while not self._stopped.is_set():
            self.read_steps()
            self._stopped.wait(STEPS_EVERY)

    def _follow_findings(self) -> None:
        try:
            following = Following(self._paths, _look, self._judged, self._say, JUDGED_EVERY, REST)
            following.run(lambda _: self._stopped.is_set())
        except UsageProblem as problem:
            self._say(str(problem))

    def _judged(self, report: Report) -> None:
        self._found([finding for one in (report, *report.jobs) for finding in one.findings])

    def _files(self) -> list[Path]:
        """Returns the files that were named, and those directly in the folders that were named."""
        found: list[Path] = []
        for path in map(Path, self._paths):
            inside = (
                sorted(one for one in path.glob("*") if one.suffix in ("", ".log", ".out", ".txt", ".err"))
                if os.path.isdir(path)  # noqa: PTH112  (Path raises where it may not look)
                else [path]
            )
            found += inside[:FOLLOWED]
        return found


def _look(paths: Sequence[str], follower: Follower) -> Report:
    """The report on the logs as they are now. Raises UsageProblem where they cannot be read."""
    try:
        return analyze(paths, apart="auto", read_ahead=follower)[0]
    except QueryProblem as problem:  # of a saved fact base
        raise UsageProblem(str(problem)) from None
