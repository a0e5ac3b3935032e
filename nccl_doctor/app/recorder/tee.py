"""Copies the output of a job to where it would have gone, and to files, in a process of its own.

The job writes into pipes (or a terminal of its own). The copying process lives until the job's last process has closed them,
so a killed recorder does not break the job; the recorder holds the other ends too and starts another copying process if this
one is killed. What is shown never waits for what is kept: files are written by a second thread through a `Spool`.
"""

import json
import os
import selectors
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_doctor.app.recorder.spool import Spool

PIECE = 1 << 16  # bytes of one read
PATIENCE = 5.0  # seconds for which the end of a recording waits for its files


@dataclass(frozen=True)
class Channel:
    """One stream of output: where it is read, where it is shown, and the file that keeps it."""

    source: int
    shown: int
    file: Path


class Tee:
    """The copying process, as the recorder sees it."""

    def __init__(self, channels: Sequence[Channel], rotate: int | None, writers: Collection[int] = ()) -> None:
        """`writers` are the ends of the channels that the job will get; the job has not started."""
        self._channels = channels
        self._rotate = rotate
        self.start(writers)

    def start(self, writers: Collection[int] = ()) -> None:
        """Start the copying process, the first time or again. Raises OSError where the machine has no room for it."""
        ended_read, self._ended = os.pipe()
        self._result, result_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for writer in writers:  # else the output would never end
                os.close(writer)
            os.close(self._ended)
            os.close(self._result)
            _run(lambda: _Copier(self._channels, self._rotate).run(ended_read, result_write))
        os.close(ended_read)
        os.close(result_write)

    def restart(self) -> None:
        """Start another copying process where the old one was killed."""
        os.close(self._ended)
        os.close(self._result)
        self.start()

    def finish(self) -> dict[str, Any]:
        """Wait until everything that the job printed is shown and kept, as far as that is possible.

        Returns {file name: {"dropped": bytes, "why": text}} of files that lack something.
        """
        os.close(self._ended)
        answer = b""
        while piece := os.read(self._result, PIECE):
            answer += piece
        os.close(self._result)
        try:
            found = json.loads(answer)
        except ValueError:  # the copying process was killed
            return {}
        return found if isinstance(found, dict) else {}


def _run(work: Callable[[], None]) -> None:
    """The body of the child: nothing of the parent's Python runs on."""
    status = 1
    try:
        os.setsid()  # a signal for the job's process group is not for us
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        work()
        status = 0
    finally:
        os._exit(status)


class _Copier:
    """Runs in the copying process."""

    def __init__(self, channels: Sequence[Channel], rotate: int | None) -> None:
        self._shown: dict[int, int | None] = {one.source: one.shown for one in channels}
        self._spools = {one.source: Spool(one.file, _gap, rotate=rotate) for one in channels}
        self._more = threading.Event()

    def run(self, ended: int, result: int) -> None:
        """Copy until every source is closed. Once the other end of `ended` is closed, report and then go on if need be."""
        threading.Thread(target=self._keep, daemon=True).start()
        with selectors.DefaultSelector() as selector:
            for source in self._shown:
                os.set_blocking(source, False)
                selector.register(source, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while len(selector.get_map()) > (ended in selector.get_map()):
                ready = [key.fd for key, _ in selector.select()]
                sources = [fd for fd in ready if fd != ended]
                for source in sources:
                    if not self._copy(source):
                        selector.unregister(source)
                if ended in ready and not sources:  # the job has ended, and all that it wrote before is copied
                    selector.unregister(ended)
                    self._report(result)
                    result = -1
        if result == -1:  # what came since the report
            self._settle()
        else:
            wait_for_end(ended)
            self._report(result)

    def _copy(self, source: int) -> bool:
        """Show and keep one piece; False at the end of the stream."""
        try:
            piece = os.read(source, PIECE)
        except BlockingIOError:
            return True
        except OSError:  # a terminal whose last process has closed it
            return False
        if not piece:
            return False
        self._spools[source].add(piece)
        self._more.set()
        shown = self._shown[source]
        if shown is not None:
            try:
                write_all(shown, piece)
            except OSError:  # the reader closed the pipe; the file keeps everything
                self._shown[source] = None
        return True

    def _keep(self) -> None:
        while True:
            self._more.wait()
            self._more.clear()
            if not self._flush():
                self._more.set()
                threading.Event().wait(0.1)

    def _flush(self) -> bool:
        done = True
        for spool in self._spools.values():
            done = spool.flush() and done
        return done

    def _settle(self) -> None:
        """Wait until the files hold everything, at most PATIENCE."""
        self._more.set()
        pause = threading.Event()
        for _ in range(int(PATIENCE / 0.02)):
            if not any(spool.waiting for spool in self._spools.values()):
                break
            pause.wait(0.02)

    def _report(self, result: int) -> None:
        """Give the files some time, then say what they lack."""
        self._settle()
        lacking = {
            spool.path.name: {"dropped": spool.dropped + spool.waiting, "why": spool.why}
            for spool in self._spools.values()
            if spool.dropped + spool.waiting
        }
        with suppress(OSError):  # the recorder was killed
            write_all(result, json.dumps(lacking).encode())
        os.close(result)


def wait_for_end(descriptor: int) -> None:
    """Wait for the end of a pipe."""
    while os.read(descriptor, PIECE):
        pass


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, also to a descriptor that somebody has made non-blocking."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            with selectors.DefaultSelector() as selector:
                selector.register(descriptor, selectors.EVENT_WRITE)
                selector.select()


def _gap(dropped: int, why: str) -> bytes:
    return f"\n[nccl-doctor] {dropped} bytes of output were not recorded: {why or 'no memory left'}\n".encode()
