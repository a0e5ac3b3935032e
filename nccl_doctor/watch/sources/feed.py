"""Feeds of records: child processes that sample this node or others, and recordings."""

import json
import os
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from nccl_doctor.common.own_command import own_command

Put = Callable[[dict[str, Any]], None]
RETRY_AFTER = (2.0, 5.0, 15.0, 30.0)  # seconds before a lost node is tried again, by number of failures
SILENCE_LIMIT = 30.0  # seconds without output (at least three intervals) after which a child is restarted
_MAX_LINE = 4 << 20  # bytes of one line


class NodeFeeds:
    """Runs one child process per node that streams records; restarts a child that ended without delaying the others."""

    def __init__(
        self, put: Put, nodes: Sequence[str] = (), via: str = "ssh", interval: float = 1.0, options: Sequence[str] = ()
    ) -> None:
        """`options` are further ones of `sample`: --no-auto, --eager."""
        self._put = put
        self._interval = interval
        self._options = options
        self._commands = {node: self._command(node, via) for node in nodes} or {"": self._local()}
        self._stopped = threading.Event()
        self._children: dict[str, _Child] = {}
        self._here = os.uname().nodename

    def _local(self) -> list[str]:
        return [
            *own_command(),
            "sample",
            f"--while-parent={os.getpid()}",
            f"--interval={self._interval:g}",
            *self._options,
        ]

    def _command(self, node: str, via: str) -> list[str]:
        from nccl_doctor.app.fleet import VIAS  # with the fact base, which the screen of one node does not wait for

        program = ["nccl-doctor"] if via in VIAS else own_command()
        remote = [*program, "sample", f"--interval={self._interval:g}", *self._options]
        words = [word.replace("%host", node) for word in shlex.split(VIAS.get(via, via))]
        return [*words, shlex.join(remote)] if via == "ssh" else [*words, *remote]

    def pids(self) -> list[int]:
        """Process ids of the children that were started last, one per node."""
        return [child.pid for child in list(self._children.values())]

    def start(self) -> None:
        threading.Thread(target=self._run, name="nodes", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        for child in self._children.values():
            child.stop()

    def _run(self) -> None:
        due = dict.fromkeys(self._commands, 0.0)
        with selectors.DefaultSelector() as selector:
            while not self._stopped.is_set():
                for node in [node for node, when in due.items() if when <= time.monotonic()]:
                    try:
                        child = self._start(node)
                    except OSError as error:  # no program, no descriptor, no process
                        self._lost(node, f"{self._commands[node][0]}: {error.strerror}")
                        due[node] = time.monotonic() + RETRY_AFTER[-1]
                        continue
                    del due[node]
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
                    why = child.close()
                    self._lost(child.node, why)
                    due[child.node] = time.monotonic() + RETRY_AFTER[min(child.tries, len(RETRY_AFTER) - 1)]
                self._stop_silent()

    def _lost(self, node: str, why: str) -> None:
        if node or why:
            self._put({"kind": "gone", "hostname": node or self._here, "error": why})

    def _start(self, node: str) -> "_Child":
        child = self._children[node] = _Child(node, self._commands[node], self._children.get(node))
        if self._stopped.is_set():  # stop() was called meanwhile
            child.stop()
        return child

    def _stop_silent(self) -> None:
        """Kill children without output for SILENCE_LIMIT, so that they are restarted: a connection can die unnoticed."""
        for child in self._children.values():
            if time.monotonic() - child.last_output > max(SILENCE_LIMIT, 3 * self._interval):
                child.last_output = time.monotonic()
                child.last_text = "no output"
                child.stop(signal.SIGKILL)


class _Child:
    """One process that streams the records of one node; an empty name means this node."""

    def __init__(self, node: str, command: Sequence[str], before: "_Child | None") -> None:
        self.node = node
        self.tries: int = before.tries + 1 if before is not None else 0
        self._buffer = bytearray()
        self.last_text = ""  # the last line that is not a record
        self.last_output = time.monotonic()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.pipe = self._process.stdout

    def records(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """Yields the records that this piece of output completes."""
        self._buffer.extend(piece)
        self.last_output = time.monotonic()
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            record = parse_record(line)
            if record is None:
                self.last_text = line.decode("utf-8", "replace").strip() or self.last_text
                continue
            self.tries = 0
            if self.node:
                record["hostname"] = self.node
            yield record
        if len(self._buffer) > _MAX_LINE:
            self._buffer.clear()

    def close(self) -> str:
        """Wait for the process; returns why it ended: the last line that is not a record, else the exit status."""
        self.pipe.close()
        status = self._process.wait()
        return self.last_text[:200] or f"exit status {status}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def parse_record(line: bytes) -> dict[str, Any] | None:
    """Returns the record in a line, None for anything else: `{"kind": "host", "hostname": "n1", "host": {...}}`."""
    try:
        record = json.loads(line, parse_int=_whole)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


def _whole(digits: str) -> int | None:
    """An integer of at most 64 bits; None for others, which floats may not hold."""
    value = int(digits)
    return value if -(1 << 63) <= value < 1 << 64 else None
