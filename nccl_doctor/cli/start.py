"""What `nccl-doctor` says without arguments: what to type next, with the newest log of the current folder."""

import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

MOST = 10_000  # entries of a folder that are looked at
_LOG = re.compile(r"\.(?:log|out|err|[oe]\d{3,12})(?:\.(?:gz|xz|zst|bz2))?$|^slurm-\d|^nohup\.out$", re.IGNORECASE)
_HEAD = """\
nccl-doctor reads what a distributed GPU job left behind and says what went
wrong, where, why, and what to type next.
"""
_TAIL = """\
`nccl-doctor watch --demo` shows an invented job, `nccl-doctor simulate` writes
the log of one. `nccl-doctor --help` lists all commands.
"""


def text() -> str:
    """What to type next."""
    log = newest_log()
    steps = {
        f"analyze {log or 'job.log'}": "the fault in a log, a folder or an archive",
        "analyze --jobs last .": "in the last job of this folder",
        "explain 'Xid 79'": "a line, a variable, a code or a rule",
        "preflight": "whether this node is fit for a job",
        "watch": "GPUs, ports, ranks and findings live",
        "record -- CMD": "run a job and keep what `analyze` needs",
    }
    width = min(max(map(len, steps)), 40)
    lines = [f"  nccl-doctor {command:<{width}}  {says}\n" for command, says in steps.items()]
    found = f"\nThe newest log in this folder is {log}.\n" if log else ""
    return f"{_HEAD}\n{''.join(lines)}\n{_TAIL}{found}"


def newest_log(folder: str = ".") -> str | None:
    """The file of a folder that looks like a log and was written last, as a shell takes it; None where there is none."""
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(MOST), entries, strict=False):
            with suppress(OSError):
                if _LOG.search(entry.name) and entry.name.isprintable() and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat().st_mtime, entry.name))
    return shlex.quote(str(Path(folder) / max(found)[1])) if found else None
