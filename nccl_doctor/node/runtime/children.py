"""Child processes that end with their parent, however it ends, together with every tool that they started.

Each child leads a process group of its own. A guardian, in a group of its own too, waits for the end of a pipe that only the
parent holds: when the parent is killed (SIGKILL included) it kills the groups. Children write their number into that pipe
themselves before they work, so that none is missed. A process that blocks in the kernel cannot be killed; it is left behind
and ends when the kernel lets go of it.
"""

import gc
import json
import os
import selectors
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_NUMBER = struct.Struct("=q")
_DONE = 0  # instead of the number of a group: the parent has ended them itself
_MOST = 4 << 20  # bytes of an answer


class Children:
    """Started children, in the block of `guarded`."""

    def __init__(self, guard: int) -> None:
        self._guard = guard
        self._pids: list[int] = []

    def start(self, work: Callable[[int], None]) -> tuple[int, int]:
        """Run `work` in a child, with the descriptor that it writes its answer to. Returns its number and where to read."""
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            gc.disable()  # a short life: collecting would only copy pages that are shared with the parent
            status = 1
            try:
                os.setpgid(0, 0)
                os.write(self._guard, _NUMBER.pack(os.getpid()))
                os.close(self._guard)
                os.close(reading)
                _quiet()
                work(writing)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        with suppress(OSError):
            os.setpgid(pid, pid)
        self._pids.append(pid)
        return pid, reading

    def end(self) -> None:
        """Kill all children and their tools; those that are dead are reaped, the others are not waited for."""
        for pid in self._pids:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self._pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


@contextmanager
def guarded() -> Iterator[Children]:
    """Children that end with the block, or with this process."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    guardian = os.fork()
    if guardian == 0:
        try:
            os.setpgid(0, 0)
            os.close(writing)
            _quiet()
            _guard(reading)
        finally:
            os._exit(0)
    os.close(reading)
    children = Children(writing)
    try:
        yield children
    finally:
        children.end()
        with suppress(OSError):
            os.write(writing, _NUMBER.pack(_DONE))
        os.close(writing)
        with suppress(ChildProcessError):
            os.waitpid(guardian, 0)


def _guard(pipe: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the parent may mean the whole tree
    groups: list[int] = []
    while data := os.read(pipe, _NUMBER.size):
        (number,) = _NUMBER.unpack(data)
        if number == _DONE:
            return
        groups.append(number)
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def _quiet() -> None:
    """A library that prints must not reach the report, and nobody may wait for the end of our output."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    sys.stdout = sys.stderr = open(null, "w", closefd=False)  # noqa: SIM115  (for the life of the child)


def ask(work: Callable[[], Any], seconds: float) -> Any:
    """What `work` returns, as JSON can hold it, from a child. Raises TimeoutError after `seconds`, OSError where it failed."""
    answer = bytearray()
    with guarded() as children, selectors.DefaultSelector() as selector:
        _, reading = children.start(lambda pipe: _send(pipe, json.dumps([work()]).encode()))
        try:
            selector.register(reading, selectors.EVENT_READ)
            until = time.monotonic() + seconds
            while len(answer) < _MOST:
                if not selector.select(max(until - time.monotonic(), 0)):
                    raise TimeoutError(f"no answer within {seconds:g} s")
                piece = os.read(reading, 1 << 16)
                if not piece:
                    break
                answer += piece
        finally:
            os.close(reading)
    try:
        return json.loads(answer)[0]
    except (ValueError, IndexError):
        raise OSError("the child ended without an answer") from None


def _send(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]
