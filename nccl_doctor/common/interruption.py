"""A request to stop reading: what was read until then is reported.

A signal comes between any two instructions, so it only sets a flag, and no table is left half filled. It breaks nothing but waits
for bytes and for other processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """A wait that ended because reading was asked to stop."""


class _Request:
    made = False
    waiting = False
    held = 0


_request = _Request()


def requested() -> bool:
    """Whether reading should stop."""
    return _request.made and not _request.held


def request() -> None:
    """Ask to stop reading. Called by a signal handler; raises Stopped where the program waits."""
    _request.made = True
    if _request.waiting and not _request.held:
        raise Stopped


def clear() -> None:
    """Forget the request."""
    _request.made = False


@contextmanager
def held() -> Iterator[None]:
    """Let a request wait until the end: what is read inside is read to its end."""
    _request.held += 1
    try:
        yield
    finally:
        _request.held -= 1


@contextmanager
def wait() -> Iterator[None]:
    """A wait for bytes or for a process. Raises Stopped when reading should stop; what was waited for may be lost then."""
    _request.waiting = True
    try:
        if requested():
            raise Stopped
        yield
    finally:
        _request.waiting = False
