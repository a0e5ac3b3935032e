"""Ends a command on SIGTERM as on Ctrl-C: what it was writing is removed, and the exit status says which signal it was.

Where `stopping_reading` holds, the first signal only stops the reading, and the second ends the command.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from nccl_doctor.common import interruption

_STOPS = b"nccl-doctor: interrupted; the report on what was read follows, a second signal ends at once\n"
_received: list[int] = []  # signals, in their order


def end_on_sigint() -> None:
    """Raise KeyboardInterrupt on SIGINT, which `__main__` left to the system while modules were loaded."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_on_sigterm() -> None:
    """Raise KeyboardInterrupt on SIGTERM, unless the caller of this program ignores the signal."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def ignore() -> None:
    """Let no signal disturb the last milliseconds, in which expressions are kept for the next run: all has been said."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) in (signal.default_int_handler, _end):
            signal.signal(number, signal.SIG_IGN)


def status() -> int:
    """The exit status of a shell for a program that the signal ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


def was_received() -> bool:
    """Whether a signal stopped the reading."""
    return bool(_received)


@contextmanager
def stopping_reading() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the reading, and the second end the command. Ignored signals stay ignored."""
    _received.clear()
    interruption.clear()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = [number for number, handler in before.items() if handler in (signal.default_int_handler, _end)]
    if threading.current_thread() is not threading.main_thread():  # which gets no signal
        handled = []
    for number in handled:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
        interruption.clear()


def end_children() -> None:
    """End the processes that read for this one, which Python would wait for."""
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()


def _end(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def _stop(number: int, frame: FrameType | None) -> None:
    if _received:
        _end(number, frame)
    _received.append(number)
    if sys.stderr is not None:
        os.write(2, _STOPS)
    interruption.request()
