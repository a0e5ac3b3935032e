"""Ends a command on SIGTERM as on Ctrl-C: what it was writing is removed, and the exit status says which signal it was."""

import signal
import sys
from types import FrameType

_received = [signal.SIGINT]  # the signal that ended the command; Python itself handles Ctrl-C


def end_on_sigterm() -> None:
    """Raise KeyboardInterrupt on SIGTERM, unless the caller of this program ignores the signal."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def status() -> int:
    """The exit status of a shell for a program that the signal ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + _received[-1]


def end_children() -> None:
    """End the processes that read for this one, which Python would wait for."""
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()


def _end(number: int, _frame: FrameType | None) -> None:
    _received.append(signal.Signals(number))
    raise KeyboardInterrupt
