"""What is remembered of a node between two runs: counters of each caller, and what was decided about the node.

The folder holds one JSON file a name. Root uses /var/lib/nccl-doctor, other users a folder of their own in /var/tmp: never a
home, because a home can hang. The folder and each file must belong to the caller and be writable by nobody else; anything
else, and anything that is not JSON, reads as empty. State that cannot be used is never an error and never a verdict: the run
goes on without it, and `problem` says why.
"""

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.trusted import distrust
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CounterBefore, NodeCounter

SYSTEM = Path("/var/lib/nccl-doctor")
MOST = 4 << 20  # bytes of one file
WAIT = 1.0  # seconds until the lock of another run is given up
_PAUSE = 0.02
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


def place() -> Path:
    """The folder of the calling user."""
    uid = os.geteuid()
    return SYSTEM if uid == 0 else Path(f"/var/tmp/nccl-doctor-{uid}")


class State:
    """A state folder. Without a usable one nothing is remembered, and `problem` says why."""

    def __init__(self, folder: int | None, problem: str | None = None) -> None:
        self._folder = folder
        self.problem = problem

    def read(self, name: str) -> dict[str, Any]:
        """The content of a file; empty where it is absent, damaged, too large, or not ours alone."""
        if self._folder is None:
            return {}
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(_file(name), flags, dir_fd=self._folder)
        except OSError:
            return {}
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or _foreign(found) or found.st_size > MOST:
                return {}
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = json.loads(file.read(MOST))
        except (OSError, ValueError, RecursionError):
            return {}
        finally:
            os.close(handle)
        return content if isinstance(content, dict) else {}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace the content of a file; `problem` says why where that fails."""
        if self._folder is None:
            return
        try:
            replace_file(_file(name), json.dumps(content).encode(), folder=self._folder)
        except OSError as error:
            self.problem = f"the state cannot be written: {error.strerror}"


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a caller."""
    return _NAME.fullmatch(text) is not None


@contextmanager
def opened(folder: Path, seconds: float = WAIT) -> Iterator[State]:
    """The state of a folder, locked against other runs; made where it is absent.

    Waits `seconds` for the lock of another run, then goes on without state.
    """
    try:
        if why := distrust(folder):
            yield State(None, f"no state: {why}")
            return
        handle = _folder(folder)
    except OSError as error:
        yield State(None, f"no state: {folder}: {error.strerror}")
        return
    try:
        problem = _weak(folder, os.fstat(handle)) or _locked(handle, folder, seconds)
        yield State(None, problem) if problem else State(handle)
    finally:
        os.close(handle)


def _folder(folder: Path) -> int:
    with suppress(FileExistsError):
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        folder.mkdir(mode=0o700)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(handle: int, folder: Path, seconds: float) -> str | None:
    """Why the folder could not be locked. A lock ends with its holder, so there is none to clean up."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            if time.monotonic() >= until:
                return f"no state: another run holds the lock of {folder}"
            time.sleep(_PAUSE)
        except OSError as error:
            return f"no state: {folder} cannot be locked: {error.strerror}"


def _weak(folder: Path, found: os.stat_result) -> str | None:
    return f"no state: {folder} belongs to user {found.st_uid} or is writable by others" if _foreign(found) else None


def _foreign(found: os.stat_result) -> bool:
    return found.st_uid != os.geteuid() or bool(found.st_mode & 0o022)


def _file(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{name!r} is not a name of a state file")
    return f"{name}.json"


def remember_counters(facts: Facts, state: State, caller: str, boot_id: str | None) -> None:
    """Add the values of counters that this caller saw last, then keep those of now.

    Each caller (Prolog, health check, exporter) has values of its own, so that each sees every growth. Values of another
    boot are not comparable and are left out.
    """
    name = f"counters-{caller}"
    old = state.read(name)
    counters = old.get("counters")
    known = counters if old.get("boot_id") == boot_id and boot_id is not None and isinstance(counters, dict) else {}
    now: dict[str, int] = {}
    for counter in facts.rows(NodeCounter):
        key = f"{counter.device}/{counter.name}"
        before = known.get(key)
        now[key] = counter.value
        if type(before) is int and 0 <= before <= counter.value:
            facts.add([CounterBefore(counter.device, counter.name, before)])
    state.write(name, {"boot_id": boot_id, "counters": {**known, **now}})
