"""Tries file systems, each in a process of its own, so that one that hangs does not delay the others."""

import errno
import json
import os
import selectors
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

MOST = 64  # file systems tried at once
SIZE = 4096  # bytes written by a trial


class Trial(NamedTuple):
    """What is asked of one file system."""

    path: str
    write: bool


def run(trials: Iterable[Trial], seconds: float) -> dict[str, dict[str, Any]]:
    """Path -> {"stat": {...}, "write": {...}}; what has not answered in time is `hung`.

    A process that the kernel does not let go of is left behind.
    """
    asked = list(trials)[:MOST]
    children: dict[int, tuple[Trial, int, bytearray]] = {}
    started = time.monotonic()
    for trial in asked:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                _work(trial, writing)
            finally:
                os._exit(0)
        os.close(writing)
        children[reading] = (trial, pid, bytearray())
    with selectors.DefaultSelector() as selector:
        for reading in children:
            selector.register(reading, selectors.EVENT_READ)
        while selector.get_map() and (left := started + seconds - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 4096)
                children[key.fd][2].extend(piece)
                if not piece:
                    selector.unregister(key.fd)
    waited = round(time.monotonic() - started, 4)
    rows = {}
    for reading, (trial, pid, parsed) in children.items():
        os.close(reading)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        rows[trial.path] = _answers(trial, bytes(parsed), waited)
    return rows


def _answers(trial: Trial, said: bytes, waited: float) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for line in said.splitlines():
        with suppress(ValueError, TypeError):
            answers.update(json.loads(line))
    failed = answers.get("stat", {}).get("outcome", "hung") != "ok"
    for operation in ("stat", *(["write"] if trial.write and not failed else [])):
        answers.setdefault(operation, {"outcome": "hung", "seconds": waited})
    return answers


def _work(trial: Trial, pipe: int) -> None:
    started = time.monotonic()
    answer: dict[str, Any]
    try:
        os.stat(trial.path)
        room = os.statvfs(trial.path)
        answer = {
            "outcome": "ok", "size": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize,
            "files": room.f_files, "files_free": room.f_favail,
        }  # fmt: skip
    except OSError as error:
        answer = {"outcome": _name(error)}
    _say(pipe, "stat", answer, started)
    if not trial.write or answer["outcome"] != "ok":
        return
    started = time.monotonic()
    _say(pipe, "write", {"outcome": write(trial.path)}, started)


def _say(pipe: int, operation: str, answer: Mapping[str, Any], started: float) -> None:
    rows = {operation: {**answer, "seconds": round(time.monotonic() - started, 4)}}
    os.write(pipe, json.dumps(rows).encode() + b"\n")


def write(folder: str) -> str:
    """Create, write, sync and remove a file: ok, or the name of the error."""
    path = os.path.join(folder, f".nccl-doctor.{os.uname().nodename}.{os.getpid()}")
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        return _name(error)
    try:
        os.write(handle, b"\0" * SIZE)
        os.fsync(handle)
    except OSError as error:
        return _name(error)
    finally:
        with suppress(OSError):
            os.close(handle)
        with suppress(OSError):
            os.unlink(path)
    return "ok"


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EIO")
