"""Fixtures of the tests that open files."""

import os
import threading
from collections.abc import Iterator

import pytest
from helpers.waiting import DEADLINE


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that opens a pipe must not wait for ever."""
    timer = threading.Timer(DEADLINE, os._exit, (97,))
    timer.start()
    yield
    timer.cancel()
