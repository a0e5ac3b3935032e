"""What the screen remembers from one start to the next: ~/.config/nccl-doctor/watch.toml."""

import json
import os
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from nccl_doctor.common.atomic_write import replace_file

LONGEST = 1 << 14  # bytes


@dataclass
class Settings:
    """The settings, with the values of a first start."""

    tab: str = "overview"
    interval: float = 1.0
    light: bool = False
    ascii: bool = False
    own_processes: bool = False
    tree: bool = False
    sort: dict[str, str] = field(default_factory=dict)  # column by tab
    reverse: dict[str, bool] = field(default_factory=dict)  # by tab


def settings_file() -> Path:
    """Returns where the settings are kept (XDG base directories)."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (Path raises without HOME)
    return Path(home) / "nccl-doctor" / "watch.toml"


def read_settings(file: Path) -> tuple[Settings, str]:
    """Returns the settings, and why some of the file was not used; empty where all of it was, or there is none."""
    try:
        with file.open("rb") as stream:
            found: dict[str, Any] = tomllib.loads(stream.read(LONGEST).decode("utf-8"))
    except FileNotFoundError:
        return Settings(), ""
    except (OSError, ValueError) as error:
        return Settings(), f"{file} is not used: {error}"
    settings, unused = Settings(), []
    for name, value in found.items():
        if name in {one.name for one in fields(Settings)} and _fits(value, getattr(settings, name), name):
            setattr(settings, name, type(getattr(settings, name))(value))
        else:
            unused.append(name)
    return settings, f"{file}: not used: {', '.join(unused)}" if unused else ""


def _fits(value: Any, default: Any, name: str) -> bool:
    if isinstance(default, dict):
        kind = bool if name == "reverse" else str
        return isinstance(value, dict) and all(isinstance(one, kind) for one in value.values())
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0.2 <= value <= 60
    return isinstance(value, type(default))


def write_settings(file: Path, settings: Settings) -> None:
    """Replace the file. Raises OSError."""
    lines, tables = [], []
    for name, value in asdict(settings).items():
        if isinstance(value, dict):
            tables += [f"\n[{name}]", *(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items())]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, ("\n".join([*lines, *tables]) + "\n").encode(), 0o600)
