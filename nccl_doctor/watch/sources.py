"""Sources that the screen starts: a replay or the demo moves with the screen's clock, a demo with its own."""

import threading
from collections.abc import Callable
from typing import Any

from nccl_doctor.watch.demo import Demo

Put = Callable[[dict[str, Any]], None]


class Still:
    """Nothing runs by itself: the screen asks for what comes next."""

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def pids(self) -> list[int]:
        """No child samples for it."""
        return []


class Played:
    """The demo, a second each `pace` seconds, after `ahead` seconds that pass at once."""

    def __init__(self, put: Put, pace: float = 1.0, ahead: int = 0) -> None:
        self._put = put
        self._pace = pace
        self._demo = Demo()
        self._ahead = ahead
        self._over = threading.Event()

    def start(self) -> None:
        for _ in range(self._ahead):
            self._step()
        threading.Thread(target=self._run, name="demo", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def pids(self) -> list[int]:
        """No child samples for it."""
        return []

    def _run(self) -> None:
        while not self._over.wait(self._pace):
            self._step()

    def _step(self) -> None:
        for record in self._demo.step():
            self._put(record)
