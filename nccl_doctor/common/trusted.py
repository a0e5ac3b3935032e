"""Which files root may read as configuration, state, rules, cache or library, and which commands root may run.

A file is trusted when nobody but root can change what its path leads to: root owns the file and every folder on the way, and
neither group nor others can write there. A folder with the sticky bit (/tmp) is accepted on the way to an entry that root
owns, because nobody else can rename that entry. Symbolic links are followed by hand, and the folders of each are checked.

Users who are not root can only harm themselves: for them every file is trusted.
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin", "/opt/amazon/efa/bin")
LIBRARIES = tuple(
    f"{folder}{part}"
    for folder in ("/usr/lib", "/lib")
    for part in ("/x86_64-linux-gnu", "/aarch64-linux-gnu", "64", "")
)
_HOPS = 40  # symbolic links in one path, as the kernel allows


def distrust(path: str | os.PathLike[str]) -> str | None:
    """Why root must not read this file or folder; None where it may. A path that does not exist is judged by its folders.

    Touches the file system of the path: call it only for paths of the system, never for a home or a mount of a job.
    """
    if os.geteuid() != 0:
        return None
    todo = _parts(os.path.abspath(path))  # noqa: PTH100  (Path raises where the current folder is gone)
    here, hops = "/", 0
    why = _weak("/", os.lstat("/"), last=not todo)
    while todo and why is None:
        part = todo.pop()
        if part == "..":
            here = os.path.dirname(here)  # noqa: PTH120
            continue
        entry = f"{here.rstrip('/')}/{part}"
        try:
            found = os.lstat(entry)
        except FileNotFoundError:
            return None if not _sticky(here) else f"{here} is writable by everybody"
        except OSError as error:
            return f"{entry}: {error.strerror}"
        if stat.S_ISLNK(found.st_mode):
            hops += 1
            if found.st_uid != 0:
                return f"{entry} belongs to user {found.st_uid}, not to root"
            if hops > _HOPS:
                return f"{entry}: too many symbolic links"
            target = os.readlink(entry)  # noqa: PTH115
            if target.startswith("/"):
                here = "/"
            todo += _parts(target)
            continue
        here = entry
        why = _weak(here, found, last=not todo)
    return why


def distrust_tree(folder: str | os.PathLike[str], most: int = 10_000) -> str | None:
    """Why root must not read some file below a folder; None where it may read all of them."""
    if os.geteuid() != 0:
        return None
    if why := distrust(folder):
        return why
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            count += 1
            if count > most:
                return f"{folder} holds more than {most} files"
            if why := distrust(f"{parent}/{name}"):
                return why
    return None


def regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A file that is opened for reading. Raises OSError for a FIFO, a device or a folder: opening or reading those may never end."""
    return open(path, "rb", opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return handle


def read(path: str | os.PathLike[str], most: int = 1 << 20) -> bytes:
    """The content of a file of the site. Raises OSError where it is larger, or not a regular file."""
    with regular(path) as file:
        return _bounded(file, most, path)


def read_settings(path: str | os.PathLike[str], most: int = 1 << 20) -> str:
    """The text of a file that the user named, which may be a pipe. Raises OSError where it is larger, ValueError where it is not UTF-8."""
    with open(path, "rb") as file:  # noqa: PTH123
        return _bounded(file, most, path).decode("utf-8")


def _bounded(file: BinaryIO, most: int, path: str | os.PathLike[str]) -> bytes:
    data: bytes | None = file.read(most + 1)
    if data is None:  # a file of the kernel, such as /proc/kmsg
        raise OSError(errno.EAGAIN, "has nothing to say yet", os.fspath(path))
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", os.fspath(path))
    return data


def command(name: str, more: Sequence[str] = ()) -> str | None:
    """The absolute path of an external command; None where no folder that is searched has it.

    Root gets it from `more` (folders of the site) and the system's folders alone, and only where nobody else can change it.
    Others also get what their own PATH says. The current folder is never searched.
    """
    mine = os.environ.get("PATH", "").split(":") if os.geteuid() != 0 else []
    for folder in (*more, *mine, *FOLDERS):
        path = f"{folder}/{name}"
        if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK) and distrust(path) is None:  # noqa: PTH113
            return path
    return None


def library(name: str) -> str | None:
    """What to give to dlopen(3) for a library of the system, or None.

    Root gets the absolute path in a folder of the system that ld.so searches, never one of LD_LIBRARY_PATH; others get the name.
    """
    if os.geteuid() != 0:
        return name
    paths = (f"{folder}/{name}" for folder in (*LIBRARIES, *_configured()))
    return next((path for path in paths if os.path.exists(path) and distrust(path) is None), None)  # noqa: PTH110


def _configured() -> list[str]:
    """The folders that ld.so.conf(5) adds: one a line, in /etc/ld.so.conf.d by convention."""
    files = ["/etc/ld.so.conf"]
    with suppress(OSError):
        files += sorted(entry.path for entry in os.scandir("/etc/ld.so.conf.d") if entry.name.endswith(".conf"))
    lines: list[str] = []
    for file in files:
        with suppress(OSError, UnicodeDecodeError), open(file, encoding="utf-8") as stream:  # noqa: PTH123
            lines += stream.read(1 << 16).splitlines()
    return [line.strip().rstrip("/") for line in lines if line.strip().startswith("/")]


def clean_environment(folders: Sequence[str] = (), **more: str) -> dict[str, str]:
    """The environment of a child: for root a fixed one, for others their own. Messages are in English.

    `folders` are those of the site's commands; root searches them where nobody else can change them.
    """
    site = [folder for folder in folders if folder.startswith("/") and distrust(folder) is None]
    if os.geteuid() != 0:
        return {**os.environ, "PATH": ":".join([*site, os.environ.get("PATH", os.defpath)]), "LC_ALL": "C", **more}
    return {"PATH": ":".join([*site, *FOLDERS[:4]]), "LC_ALL": "C", "HOME": "/", **more}


def _weak(path: str, found: os.stat_result, last: bool) -> str | None:
    """Why somebody else than root can change this entry. On the way, and only there, the sticky bit of a folder is enough."""
    if found.st_uid != 0:
        return f"{path} belongs to user {found.st_uid}, not to root"
    shielded = not last and stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
    if found.st_mode & 0o022 and not shielded:
        return f"{path} is writable by {'everybody' if found.st_mode & 0o002 else 'its group'}"
    return None


def _sticky(folder: str) -> bool:
    return bool(os.lstat(folder).st_mode & 0o022)


def _parts(path: str) -> list[str]:
    """The components of a path, the first one last."""
    return [part for part in reversed(path.split("/")) if part and part != "."]
