"""Where a site keeps rules of its own. The current folder is never one of these places."""

import os
from collections.abc import Sequence
from pathlib import Path

from nccl_doctor.cli.output import complain
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.trusted import distrust, distrust_tree

SYSTEM = Path("/etc/nccl-doctor/rules")


def site_rules(named: Sequence[str] = (), system: Path = SYSTEM) -> tuple[Path, ...]:
    """The folders that exist of the system's and the user's, then those that were named.

    Raises UsageProblem for a named one that is no folder. A rule cannot run code, but it can say what it likes; root
    therefore reads unasked only what nobody but root can write.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (Path raises without HOME)
    found, problems = _trusted([system, Path(home) / "nccl-doctor" / "rules"])
    for problem in problems:
        complain(problem)
    for name in named:
        if not Path(name).is_dir():
            raise UsageProblem(f"--rules {name} is no folder")
        found.append(Path(name))
    return tuple(found)


def preflight_rules(named: Sequence[str], system: Path = SYSTEM) -> tuple[tuple[Path, ...], list[str]]:
    """The folders of rules for `preflight`, and one line for each that is left out.

    Homes are not looked at: a job names its own, and a file server that is away would hold up the caller.
    """
    found, problems = _trusted([system, *map(Path, named)])
    problems += [f"{name} is not a folder" for name in named if not Path(name).is_dir()]
    return tuple(found), problems


def refuse(file: str, option: str) -> Path:
    """The file, if root may read it. Raises UsageProblem where somebody else than root can change it."""
    if why := distrust(file):
        raise UsageProblem(f"{option} {file} is not read: {why}")
    return Path(file)


def _trusted(folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Of these folders those that exist and that root may read, and why others are left out."""
    found, problems = [], []
    for folder in folders:
        try:
            if not folder.is_dir():
                continue
        except PermissionError:  # the home of another user, which HOME still names
            continue
        if why := distrust_tree(folder):
            problems.append(f"rules in {folder} are ignored: {why}")
        else:
            found.append(folder)
    return found, problems
