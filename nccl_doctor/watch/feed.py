"""Where records come from: this node, other nodes, a recording, or an invented job."""

import json
import os
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Any

from nccl_doctor.app.fleet import VIAS
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.watch.state import moment

Put = Callable[[dict[str, Any]], None]
AGAIN = (2.0, 5.0, 15.0, 30.0)  # seconds until a node that was lost is tried again
SILENT = 30.0  # seconds without a word, and three intervals, after which a child is started anew
_LONGEST = 4 << 20  # bytes of one line


class Nodes:
    """One child a node that streams lines; a child that ends is started again later, and the others go on."""

    def __init__(self, put: Put, nodes: Sequence[str] = (), via: str = "ssh", interval: float = 1.0) -> None:
        self._put = put
        self._interval = interval
        self._commands = {node: self._command(node, via) for node in nodes} or {"": self._local()}
        self._over = threading.Event()
        self._children: dict[str, _Child] = {}
        self._here = os.uname().nodename

    def _local(self) -> list[str]:
        return [sys.executable, "-m", "nccl_doctor", "sample", "--while-parent", f"--interval={self._interval:g}"]

    def _command(self, node: str, via: str) -> list[str]:
        program = ["nccl-doctor"] if via in VIAS else [sys.executable, "-m", "nccl_doctor"]
        remote = [*program, "sample", f"--interval={self._interval:g}"]
        words = [word.replace("%host", node) for word in shlex.split(VIAS.get(via, via))]
        return [*words, shlex.join(remote)] if via == "ssh" else [*words, *remote]

    def pids(self) -> list[int]:
        """The children that run now."""
        return [child.pid for child in list(self._children.values())]

    def start(self) -> None:
        threading.Thread(target=self._run, name="nodes", daemon=True).start()

    def stop(self) -> None:
        self._over.set()
        for child in self._children.values():
            child.stop()

    def _run(self) -> None:
        due = dict.fromkeys(self._commands, 0.0)
        with selectors.DefaultSelector() as selector:
            while not self._over.is_set():
                for node in [node for node, when in due.items() if when <= time.monotonic()]:
                    del due[node]
                    child = self._begin(node)
                    selector.register(child.pipe, selectors.EVENT_READ, child)
                wait = min([when - time.monotonic() for when in due.values()], default=5.0)
                for key, _ in selector.select(max(min(wait, 5.0), 0.05)):
                    child = key.data
                    piece = os.read(key.fd, 1 << 16)
                    if piece:
                        for record in child.records(piece):
                            self._put(record)
                        continue
                    selector.unregister(key.fileobj)
                    why = child.ended()
                    if child.node or why:
                        self._put({"kind": "gone", "hostname": child.node or self._here, "error": why})
                    due[child.node] = time.monotonic() + AGAIN[min(child.tries, len(AGAIN) - 1)]
                self._end_silent()

    def _begin(self, node: str) -> "_Child":
        child = self._children[node] = _Child(node, self._commands[node], self._children.get(node))
        if self._over.is_set():  # we were stopped meanwhile
            child.stop()
        return child

    def _end_silent(self) -> None:
        """A connection can be lost without an end: what has said nothing for long is ended, and so begun again."""
        for child in self._children.values():
            if time.monotonic() - child.heard > max(SILENT, 3 * self._interval):
                child.heard = time.monotonic()
                child.said = "said nothing more"
                child.stop(signal.SIGKILL)


class _Child:
    """One process that streams the lines of one node; an empty name is this node."""

    def __init__(self, node: str, command: Sequence[str], before: "_Child | None") -> None:
        self.node = node
        self.tries: int = before.tries + 1 if before is not None else 0
        self._buffer = bytearray()
        self.said = ""  # the last line that is no record
        self.heard = time.monotonic()
        self._process = _started(command)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.pipe = self._process.stdout

    def records(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """The records that this piece of output completes."""
        self._buffer.extend(piece)
        self.heard = time.monotonic()
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            record = parsed(line)
            if record is None:
                self.said = line.decode("utf-8", "replace").strip() or self.said
                continue
            self.tries = 0
            if self.node:
                record["hostname"] = self.node
            yield record
        if len(self._buffer) > _LONGEST:
            self._buffer.clear()

    def ended(self) -> str:
        """Why it ended: its last words, else its exit status."""
        self.pipe.close()
        status = self._process.wait()
        return self.said[:200] or f"exit status {status}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def _started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The child; where its program cannot be started, one that says so and ends."""
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        return _started([sys.executable, "-c", f"print({f'{command[0]}: {error.strerror}'!r})"])


def parsed(line: bytes) -> dict[str, Any] | None:
    """A record in a line; None for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


class Replay:
    """A recording, at any speed and from any moment."""

    def __init__(self, put: Put, folder: Path) -> None:
        self._put = put
        self.records = list(recorded(folder))
        if not self.records:
            raise UsageProblem(f"{folder} holds no recording of `nccl-doctor record`")
        self.start_time = self.records[0][0]
        self.end_time = self.records[-1][0]
        self.position = 0  # of the next record
        self.moment = self.start_time

    def forward(self, seconds: float) -> None:
        """Hand on what the next seconds of the recording hold."""
        self.moment = min(self.moment + seconds, self.end_time)
        while self.position < len(self.records) and self.records[self.position][0] <= self.moment:
            self._put(self.records[self.position][1])
            self.position += 1

    def seek(self, at: float) -> None:
        """Begin again and go to a moment; the state that takes the records must be a new one."""
        self.position, self.moment = 0, self.start_time
        self.forward(max(at - self.start_time, 0.0))

    @property
    def ended(self) -> bool:
        return self.position >= len(self.records)


def recorded(folder: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Records of all files of a recording in the order of their time."""
    files = sorted(folder.rglob("*.jsonl"))

    def timed(file: Path) -> Iterator[tuple[float, int, dict[str, Any]]]:
        with file.open("rb") as lines:
            for line in lines:
                record = parsed(line)
                at = moment(record) if record is not None else None
                if record is not None and at is not None:
                    yield at, id(record), record

    try:
        for at, _, record in merge(*map(timed, files)):
            yield at, record
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be read: {error.strerror}") from None
