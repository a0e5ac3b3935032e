"""What is remembered of a node between two runs, because a counter since boot says nothing and its growth says much."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nccl_doctor.facts.store import Facts

SYSTEM = Path("/var/lib/nccl-doctor/state.json")
MOST = 4 << 20  # bytes of a state file


def place(environ: Mapping[str, str]) -> Path:
    """Where the state lies: the system's folder for root, the user's own for others."""
    if os.geteuid() == 0:
        return SYSTEM
    home = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "nccl-doctor" / "state.json"


def remember(facts: Facts, file: Path, boot_id: str | None) -> str | None:
    """Fill the earlier values of counters from the file, then keep those of now.

    Values of another boot are not comparable and are left out. Returns why the file could not be kept, else None.
    """
    old = _read(file)
    counters = old.get("counters")
    known = counters if old.get("boot_id") == boot_id and boot_id is not None and isinstance(counters, dict) else {}
    now: dict[str, int] = {}
    for number, device, name, value in facts.own("SELECT rowid, device, name, value FROM node_counter"):
        key = f"{device}/{name}"
        before = known.get(key)
        now[key] = value
        if isinstance(before, int) and 0 <= before <= value:
            facts.own("UPDATE node_counter SET before = ? WHERE rowid = ?", (before, number))
    return _write(file, {"boot_id": boot_id, "counters": {**known, **now}})


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            found = json.loads(stream.read(MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, content: dict[str, Any]) -> str | None:
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        part.write_text(json.dumps(content), "utf-8")
        part.replace(file)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        return f"{file} cannot be written ({error.strerror}); growth of counters will not be known"
    return None
