"""Where a node is read: the live one at `/`, or a tree that was captured or simulated.

A tree holds copies of the files under their own paths. Answers that are not plain files are in its folder `.nccl-doctor`:
`commands.json` (what commands printed), `stat.json` (modes, owners and labels), `<name>.json` (answers of libraries).
"""

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common import trusted

EXTRA = ".nccl-doctor"
MOST = 1 << 20  # bytes that are read of one file
_MOST_EXTRA = 64 << 20  # the same of the JSON in a tree
_HOST_NAME = re.compile(r"[\w.-]{1,253}")
HOPS = 40  # symbolic links in one path, as the kernel allows


class Absent(Exception):
    """The node has no such subsystem; the text says what was looked for."""


class Output(NamedTuple):
    """What a command left behind."""

    status: int
    text: str  # stdout, and stderr where stdout is empty


class Stat(NamedTuple):
    """Kind, permissions and owner of a file."""

    mode: int
    uid: int
    gid: int
    device: int = 0  # major << 8 | minor of a device file


class Root:
    """Reads one node. An absent file is None; an unreadable one is None too and listed in `denied`, of a tree also in `odd`."""

    def __init__(
        self,
        path: Path | str = "/",
        *,
        deep: int = 0,
        peers: Sequence[str] = (),
        expect: Mapping[str, Any] | None = None,
        commands: Sequence[str] = (),
    ) -> None:
        self.path = Path(path)
        self.deep = deep  # also what takes longer: write to mounts, ask build tools, DCGM at this level
        self.peers = tuple(peers)  # other nodes of the job, to be logged in to
        self.expect = dict(expect or {})  # the site's own file, by subject
        self.commands = tuple(commands)  # folders of external commands beyond the system's
        self.live = self.path == Path("/")
        self.denied: list[str] = []
        self.odd: list[str] = []  # of a tree: what cannot be a copy of a file of a node, such as a pipe
        self._cache: dict[str, Any] = {}
        self._folders: dict[str, str] = {}  # of a tree: folder of the node -> where it really lies

    def text(self, path: str, most: int = MOST) -> str | None:
        """The content of a file, up to `most` bytes; None where it is absent, not a regular file, or may not be read."""
        try:
            with trusted.regular(self.where(path)) as file:
                return file.read(most).decode("utf-8", "replace")
        except OSError as error:
            self._failed(path, error)
            return None

    def value(self, path: str) -> str | None:
        """The content without blanks around it; None where nothing is left."""
        return (self.text(path) or "").strip() or None

    def number(self, path: str) -> int | None:
        """The content as a number of at most 64 bits, decimal or with 0x; None where it is none."""
        text = self.value(path)
        if text is None or len(text) > 20:
            return None
        try:
            found = int(text, 0)
        except ValueError:
            found = int(text) if text.isascii() and text.isdecimal() else 1 << 63
        return found if -(1 << 63) <= found < 1 << 63 else None

    def host_name(self) -> str | None:
        """The name of the node in its /proc or /etc: what hostname(7) allows, else None."""
        names = (self.value("/proc/sys/kernel/hostname"), self.value("/etc/hostname"))
        return next((name for name in names if name and _HOST_NAME.fullmatch(name)), None)

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty where it is absent."""
        try:
            return sorted(os.listdir(self.where(path)))
        except OSError as error:
            self._failed(path, error)
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self.where(path)) or path in self.extra("stat")

    def target(self, path: str) -> str | None:
        """Where a path leads once all symbolic links are followed, as a path of the node; None where it is absent."""
        found = os.path.realpath(path) if self.live else self.where(path)
        if not os.path.exists(found):
            return None
        return found if self.live else "/" + os.path.relpath(found, self.path)

    def stat(self, path: str) -> Stat | None:
        """Kind, permissions and owner; None where absent."""
        told = self.extra("stat").get(path)
        if told is not None:
            return Stat(int(told["mode"]), told.get("uid", 0), told.get("gid", 0), told.get("device", 0))
        try:
            found = os.stat(self.where(path))
        except OSError as error:
            self._failed(path, error)
            return None
        device = found.st_rdev
        return Stat(found.st_mode, found.st_uid, found.st_gid, os.major(device) << 8 | os.minor(device))

    def opens(self, path: str, flags: int = os.O_RDWR) -> str | None:
        """Empty where the calling user can open the file, else the name of the error (EACCES, ENXIO); None where absent."""
        told = self.extra("stat").get(path)
        if told is not None:
            return str(told.get("opens", ""))
        try:
            os.close(os.open(self.where(path), flags | os.O_CLOEXEC | os.O_NONBLOCK))
            return ""
        except FileNotFoundError:
            return None
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "EIO")

    def label(self, path: str) -> str | None:
        """The SELinux context of a file (extended attribute security.selinux); None where it has none."""
        told = self.extra("stat").get(path)
        if told is not None and told.get("label"):
            return str(told["label"])
        try:
            return os.getxattr(self.where(path), "security.selinux").rstrip(b"\0").decode("utf-8", "replace")
        except OSError:
            return None

    def run(self, *command: str, seconds: float = 2.0) -> Output | None:
        """What a command prints, with a deadline; None where it is absent. Raises TimeoutError past the deadline."""
        key = " ".join(command)
        if not self.live:
            told = self.extra("commands").get(key)
            return Output(int(told["status"]), str(told["text"])) if told is not None else None
        program = trusted.command(command[0], self.commands)
        if program is None:
            return None
        try:
            done = subprocess.run(
                [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
                env=trusted.clean_environment(self.commands), cwd="/",
            )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            self._failed(command[0], error)
            return None
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"`{key}` gave no answer within {seconds:g} s") from None
        out = done.stdout[:MOST] if done.stdout.strip() else done.stderr[:MOST]
        return Output(done.returncode, out.decode("utf-8", "replace"))

    def asked(self, name: str, ask: Callable[[], Any]) -> Any:
        """The answer of a library as plain data: asked on a live node, read from `<name>.json` of a tree (None: none there)."""
        return ask() if self.live else self.extra(name) or None

    def extra(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder `.nccl-doctor` of a tree; empty for a live node."""
        if self.live:
            return {}
        if name not in self._cache:
            try:
                content = trusted.read(self.path / EXTRA / f"{name}.json", _MOST_EXTRA)  # neither a pipe nor a device
                loaded = json.loads(content.decode("utf-8", "replace"))
            except (OSError, ValueError, RecursionError):
                loaded = {}
            self._cache[name] = loaded if isinstance(loaded, dict) else {}
        found: dict[str, Any] = self._cache[name]
        return found

    def where(self, path: str) -> str:
        """The real path. In a tree links are followed by hand, so that none of them leads out of it."""
        if self.live:
            return path
        folder, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self._walk(path)
        if folder not in self._folders:
            self._folders[folder] = self._walk(folder)
        found = f"{self._folders[folder]}/{name}"
        return self._walk(path) if os.path.islink(found) else found

    def _walk(self, path: str) -> str:
        base = str(self.path)
        done: list[str] = []
        todo = [part for part in reversed(path.split("/")) if part]
        hops = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                done[-1:] = []
                continue
            here = "/".join([base, *done, part])
            if os.path.islink(here):
                hops += 1
                if hops > HOPS:  # a link in what is returned would be followed out of the tree
                    return "/".join([base, EXTRA, "too many links"])
                leads = os.readlink(here)
                if leads.startswith("/"):
                    done = []
                todo += [one for one in reversed(leads.split("/")) if one]
            else:
                done.append(part)
        return "/".join([base, *done])

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno in (errno.EACCES, errno.EPERM):
            self.denied.append(path)
        elif not self.live and error.errno not in (errno.ENOENT, errno.ENOTDIR) and not os.path.isdir(self.where(path)):
            self.odd.append(path)  # a folder may be what a setting of the node names in place of a file


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """`Name:  value` lines as a dictionary; the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, mark, value = line.partition(separator)
        if mark:
            found.setdefault(re.sub(r"\s+", " ", name).strip(), value.strip())
    return found


def words(text: str | None) -> Sequence[str]:
    """The blank-separated words of a text that may be absent."""
    return (text or "").split()
