"""Tests wait for states. The deadline only ends a test that hangs, so it is far longer than any busy machine needs."""

import time
from collections.abc import Callable

DEADLINE = 240.0  # seconds


def until(reached: Callable[[], object], describe: Callable[[], object] = lambda: "") -> None:
    """Return when `reached` is true; fail with what `describe` returns."""
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end, describe()
        time.sleep(0.02)
