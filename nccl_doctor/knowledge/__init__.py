"""What nccl-doctor knows besides logs: settings, error codes, transports, signals, as data with few functions around it.

The data lies in `data/*.json`, one entry a line, because JSON loads in a millisecond where TOML takes fifty; each file is read
when it is first asked for. The package imports nothing else of ours.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"


@cache
def entries(name: str) -> tuple[dict[str, Any], ...]:
    """The entries of one data file, for example `xid`."""
    return tuple(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))


def version_number(text: str) -> int:
    """`2.21.5` -> 22105, so that versions compare as numbers; releases before 2.9 fit into the same order."""
    major, minor, patch = (int(part) for part in [*text.split("."), "0", "0"][:3])
    return major * 10000 + minor * 100 + patch


def version_text(number: int) -> str:
    """22105 -> `2.21.5`."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
