"""Where rule files lie."""

import os
from collections.abc import Iterator
from pathlib import Path

from nccl_doctor.common.errors import UsageProblem

_MOST = 20_000  # files and folders in a folder of rules; with more it is another folder, such as `/`

_SHIPPED = Path(__file__).parent / "data"


def shipped_folder() -> Path:
    """The folder of the rules that belong to the package."""
    return _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parent.parent.parent / "rules"


def rule_files(place: Path) -> list[Path]:
    """The rule files below a folder, or the file itself; names with a leading `_` are other data.

    Raises UsageProblem where the folder holds too much to be one of rules.
    """
    if not place.is_dir():
        return [place]
    found = (Path(path) for path in _paths(place) if _is_rule_name(path))
    return sorted(path for path in found if os.path.isfile(path))  # noqa: PTH113  (Path raises where a link leads into a closed folder)


def _is_rule_name(path: str) -> bool:
    name = os.path.basename(path)  # noqa: PTH119 - thousands of files
    return name.endswith(".toml") and name[0] != "_"


def _paths(place: Path) -> Iterator[str]:
    """All files below a folder; a folder that cannot be listed, as of a process that ended, holds none."""
    count = 0
    for parent, folders, names in os.walk(place):
        count += len(folders) + len(names)
        if count > _MOST:
            raise UsageProblem(f"{place} holds more than {_MOST:,} files; name the folder of the rules")
        yield from (f"{parent}/{name}" for name in names)
