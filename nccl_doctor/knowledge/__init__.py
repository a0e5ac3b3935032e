"""Knowledge as data: settings, error codes, transports, signals, machines, with small functions to look them up.

The data is in `data/*.json`, one entry per line: JSON loads in 1 ms where TOML takes 50 ms. Each file is read on first
use. The package imports no other package of nccl-doctor.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"


@cache
def entries(name: str) -> tuple[dict[str, Any], ...]:
    """Returns the entries of one data file, for example `xid`."""
    return tuple(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))


def version_number(text: str) -> int:
    """`2.21.5` -> 22105, so that versions compare as numbers, including releases before 2.9."""
    major, minor, patch = (int(part) for part in [*text.split("."), "0", "0"][:3])
    return major * 10000 + minor * 100 + patch


def version_text(number: int) -> str:
    """22105 -> `2.21.5`."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
