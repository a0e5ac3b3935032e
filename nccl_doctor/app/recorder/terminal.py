"""A terminal of its own for a recorded job (`--tty`), so that prompts, colours and progress bars look as without `record`."""

import fcntl
import os
import pty
import select
import struct
import termios
import tty
from contextlib import suppress
from typing import Any

from nccl_doctor.app.recorder.tee import write_all

PIECE = 1 << 12  # bytes of input read at once


class Terminal:
    """A pseudo-terminal; where our standard input is a terminal, it becomes raw and what is typed goes to the job."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self._mode: list[Any] | None = None
        self.resize()
        if os.isatty(0):
            self._mode = termios.tcgetattr(0)
            tty.setraw(0)

    def resize(self) -> None:
        """Give the job's terminal the size of ours (tty_ioctl(4))."""
        for shown in (1, 2, 0):
            with suppress(OSError):
                size = fcntl.ioctl(shown, termios.TIOCGWINSZ, struct.pack("4H", 0, 0, 0, 0))
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
                return

    def attach(self) -> None:
        """Make it the controlling terminal of this process, the child that becomes the job."""
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def pass_input(self) -> None:
        """Pass on what was typed; does not wait."""
        if self._mode is None or not select.select([0], [], [], 0)[0]:
            return
        with suppress(OSError):
            write_all(self.master, os.read(0, PIECE))

    def close(self) -> None:
        """Give our own terminal its mode back."""
        if self._mode is not None:
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._mode)
        os.close(self.master)
