"""What nccl-doctor.pyz runs before shiv unpacks it. `python pyz_start.py FILE` puts it into a file that shiv built.

shiv unpacks into SHIV_ROOT or below HOME, both of which a job can set, and runs what it finds there. Here root gets a folder of
its own, a folder that somebody else could have written is refused, and a folder that cannot be written is one line.
"""

import _signal  # type: ignore[import-not-found]  # built in; `zipfile` and what unpacks are files that Ctrl-C may interrupt
import os
import stat
import sys
from contextlib import suppress

PLACE = "/var/cache/nccl-doctor"  # for root; the launcher of the prologues names its own


def start() -> None:
    """Runs the program, or ends with one line. Until its modules are loaded, Ctrl-C ends it without a traceback."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    for name in [name for name in os.environ if name.startswith("SHIV_") and name != "SHIV_ROOT"]:
        del os.environ[name]
    os.umask(0o022)
    folder = os.environ.get("SHIV_ROOT") or (PLACE if os.geteuid() == 0 else _home())
    if why := distrust(folder):
        fail(f"the program is not run from {folder}: {why}")
    os.environ["SHIV_ROOT"] = folder
    try:
        from _bootstrap import bootstrap  # of shiv, in the file

        bootstrap()
    except (OSError, ImportError, EOFError) as error:  # the program itself lets no error out
        fail(f"the program cannot be unpacked to {folder}: {getattr(error, 'strerror', None) or error}")


def _home() -> str:
    home = os.path.expanduser("~")  # noqa: PTH111  (Path raises for a user without a home)
    return f"{home}/.shiv" if home.startswith("/") else f"/var/tmp/nccl-doctor-{os.geteuid()}/pyz"


def distrust(folder: str) -> str | None:
    """Why somebody else than root and the caller can change what lies there; None where nobody can."""
    if not folder.startswith("/"):
        return "its name is not absolute"
    parts = os.path.realpath(folder).split("/")
    above = ["/".join(parts[:count]) or "/" for count in range(1, len(parts) + 1)]
    below = (os.path.join(path, name) for path, folders, files in os.walk(above[-1]) for name in (*folders, *files))  # noqa: PTH118
    for path in (*above, *below):
        with suppress(FileNotFoundError):
            found = os.lstat(path)
            if found.st_uid not in (0, os.geteuid()):
                return f"{path} belongs to user {found.st_uid}"
            sticky = path in above[:-1] and found.st_mode & stat.S_ISVTX
            if found.st_mode & 0o022 and not sticky and not stat.S_ISLNK(found.st_mode):
                return f"others can write {path}"
    return None


def fail(text: str) -> None:
    """One line, and the status of a failure of our own: 0 for a scheduler, so that the job runs."""
    for_scheduler = sys.argv[1:2] == ["preflight"] and any(one.split("=")[0] == "--for" for one in sys.argv[2:])
    line = f"{' '.join(text.split())}{'; nothing is drained' if for_scheduler else ''}"
    with suppress(OSError, AttributeError):
        print(f"nccl-doctor: {line}", file=sys.stderr)
    if for_scheduler:
        import syslog

        syslog.openlog("nccl-doctor", facility=syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_WARNING, line)
    sys.exit(0 if for_scheduler else 3)


def put(file: str) -> None:
    """Replace `__main__.py` of a file that shiv built by this module."""
    import zipfile

    with open(file, "rb") as old, open(__file__, "rb") as ours, open(f"{file}.new", "wb") as new:  # noqa: PTH123
        new.write(old.readline())  # the interpreter
        with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w") as target:
            for entry in source.infolist():
                target.writestr(entry, ours.read() if entry.filename == "__main__.py" else source.read(entry))
    os.chmod(f"{file}.new", 0o755)  # noqa: PTH101
    os.replace(f"{file}.new", file)  # noqa: PTH105


if __name__ == "__main__":
    if __spec__ is None:  # a file of its own, not the one in a zip
        put(sys.argv[1])
    else:
        start()
