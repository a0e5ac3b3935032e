"""Folders of a site's own rules. The current folder is never one of them."""

import os
from collections.abc import Sequence
from pathlib import Path

from nccl_doctor.cli.output import complain
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.trusted import distrust, distrust_tree, read

SYSTEM = Path("/etc/nccl-doctor/rules")
SECONDS = 1.0  # for a file system to answer


def rule_folders(named: Sequence[str] = (), system: Path = SYSTEM) -> tuple[Path, ...]:
    """Returns the existing rule folders: the system's, the user's, then those named with --rules.

    Raises UsageProblem when a named folder does not exist. A rule cannot run code, but it decides what a report says.
    Root therefore reads a default folder only when nobody else can write there.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (Path raises without HOME)
    folders, problems = _trusted([system, Path(home) / "nccl-doctor" / "rules"])
    for problem in problems:
        complain(problem)
    for name in named:
        if not Path(name).is_dir():
            raise UsageProblem(f"--rules {name} is not a folder")
        folders.append(Path(name))
    return tuple(folders)


def preflight_rules(named: Sequence[str], system: Path = SYSTEM) -> tuple[tuple[Path, ...], list[str]]:
    """Returns the rule folders for `preflight`, and one line for each folder that is ignored.

    Home folders are not read: a job can set HOME, and a dead file server would block the caller.
    """
    asked = [name for name in named if _answers(name)]
    folders, problems = _trusted([system, *map(Path, asked)])
    problems += [f"{name} is not a folder" for name in asked if not Path(name).is_dir()]
    problems += [f"{name} gives no answer" for name in named if name not in asked]
    return tuple(folders), problems


def refuse(file: str, option: str) -> Path:
    """Returns the file if root may trust it. Raises UsageProblem if users other than root can change it, or if it hangs."""
    if not _answers(file):
        raise UsageProblem(f"{option} {file} is not read: it gives no answer")
    if why := distrust(file):
        raise UsageProblem(f"{option} {file} is not read: {why}")
    try:
        read(file)
    except OSError as error:
        raise UsageProblem(f"{option} {file} is not read: {error.strerror}") from None
    return Path(file)


def _answers(path: str) -> bool:
    """Whether a path that the site named can be looked at: asked in a child, because its file system may hang."""
    from nccl_doctor.node.runtime import children  # most runs name no such path

    try:
        children.ask(lambda: os.path.lexists(path) and os.path.exists(path), SECONDS)  # noqa: PTH110  (no object is made)
    except OSError:  # a time-out is one too
        return False
    return True


def _trusted(folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Returns the existing folders that root may trust, and why the others are ignored."""
    trusted, problems = [], []
    for folder in folders:
        try:
            if not folder.is_dir():
                continue
        except PermissionError:  # HOME still names the home of another user
            continue
        if why := distrust_tree(folder):
            problems.append(f"rules in {folder} are ignored: {why}")
        else:
            trusted.append(folder)
    return trusted, problems
