"""Sources of records besides `feed.NodeFeeds`: none for a replay, which the screen drives, and the demo with its own clock."""

import threading
from collections.abc import Callable
from typing import Any

from nccl_doctor.watch.sources.demo import Demo

Put = Callable[[dict[str, Any]], None]


class IdleSource:
    """A source that sends nothing: the screen drives the replay itself."""

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""

    def pids(self) -> list[int]:
        """Returns no process: there are no children."""
        return []


class DemoSource:
    """The demo: one second of records every `pace` seconds, after `ahead` seconds of records at the start."""

    def __init__(self, put: Put, pace: float = 1.0, ahead: int = 0) -> None:
        self._put = put
        self._pace = pace
        self.demo = Demo()
        self._ahead = ahead
        self._stopped = threading.Event()

    def start(self) -> None:
        for _ in range(self._ahead):
            self._step()
        threading.Thread(target=self._run, name="demo", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def pids(self) -> list[int]:
        """Returns no process: there are no children."""
        return []

    def _run(self) -> None:
        while not self._stopped.wait(self._pace):
            self._step()

    def _step(self) -> None:
        for record in self.demo.step():
            self._put(record)
