"""Where a site keeps rules of its own. The current folder is never one of these places."""

import os
from collections.abc import Sequence
from pathlib import Path

from nccl_doctor.cli.output import complain
from nccl_doctor.common.errors import UsageProblem

SYSTEM = Path("/etc/nccl-doctor/rules")


def site_rules(named: Sequence[str] = (), system: Path = SYSTEM) -> tuple[Path, ...]:
    """The folders that exist of the system's and the user's, then those that were named.

    Raises UsageProblem for a named one that is no folder. A rule cannot run code, but it can say what it likes; root
    therefore reads unasked only what nobody but root can write.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (Path raises without HOME)
    found = []
    for folder in (system, Path(home) / "nccl-doctor" / "rules"):
        try:
            if not folder.is_dir():
                continue
        except PermissionError:  # the home of another user, which HOME still names
            continue
        if os.geteuid() == 0 and not _only_root_writes(folder):
            complain(f"rules in {folder} are ignored: somebody else than root can write there")
            continue
        found.append(folder)
    for name in named:
        if not Path(name).is_dir():
            raise UsageProblem(f"--rules {name} is no folder")
        found.append(Path(name))
    return tuple(found)


def _only_root_writes(folder: Path) -> bool:
    for path in (folder, *folder.rglob("*")):
        status = path.stat()
        if status.st_uid != 0 or status.st_mode & 0o022:
            return False
    return True
