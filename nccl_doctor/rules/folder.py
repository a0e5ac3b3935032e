"""Where rule files lie."""

import os
from pathlib import Path

_SHIPPED = Path(__file__).parent / "data"


def shipped_folder() -> Path:
    """The folder of the rules that belong to the package."""
    return _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parent.parent.parent / "rules"


def rule_files(place: Path) -> list[Path]:
    """The rule files below a folder, or the file itself; names with a leading `_` are other data."""
    if not place.is_dir():
        return [place]
    found = (  # a folder that cannot be listed, as of a process that ended, holds none
        Path(parent, name)
        for parent, _, names in os.walk(place)
        for name in names
        if name.endswith(".toml") and name[0] != "_"
    )
    return sorted(path for path in found if os.path.isfile(path))  # noqa: PTH113  (Path raises where a link leads into a closed folder)
