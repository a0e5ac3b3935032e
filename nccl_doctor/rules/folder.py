"""Where rule files lie."""

from pathlib import Path

_SHIPPED = Path(__file__).parent / "data"


def shipped_folder() -> Path:
    """The folder of the rules that belong to the package."""
    return _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parent.parent.parent / "rules"


def rule_files(place: Path) -> list[Path]:
    """The rule files below a folder, or the file itself; names with a leading `_` are other data."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*.toml") if path.name[0] != "_" and path.is_file())
