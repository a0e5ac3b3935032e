"""What was made from files of the package is kept as JSON, so that TOML need not be parsed at every start.

It stands beside the code in `compiled/`, as bytecode does: who can write there can change the code itself, so it is as
trusted as the code, also by root. The wheel brings it along; a checkout writes it at the first start. The hash of the
files' content is its key, so it cannot be out of date.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "compiled"


def remembered(name: str, files: Sequence[Path], make: Callable[[], Any], folder: Path = FOLDER) -> Any:
    """What `make` returns, made anew only where the content of `files` differs from the last time.

    The value must be JSON. Raises what reading the files and `make` raise; not being able to keep the value is no error.
    """
    key = _key(files)
    target = folder / f"{name}.json"
    try:
        kept = json.loads(target.read_bytes())
        if kept["key"] == key:
            return kept["value"]
    except (OSError, ValueError, TypeError, KeyError):
        pass
    value = make()
    with suppress(OSError):
        if folder.parent.stat().st_uid == os.geteuid():  # root leaves nothing of its own in the checkout of a user
            _write(target, json.dumps({"key": key, "value": value}, ensure_ascii=False).encode())
    return value


def _key(files: Sequence[Path]) -> str:
    content = hashlib.blake2b(digest_size=16)
    for file in files:
        data = file.read_bytes()
        content.update(f"{file.name}\0{len(data)}\0".encode())
        content.update(data)
    return content.hexdigest()


def _write(target: Path, data: bytes) -> None:
    """Replace a file as a whole: others may read or write it at the same time."""
    target.parent.mkdir(exist_ok=True)
    whole = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        whole.write_bytes(data)
        whole.replace(target)
    finally:
        whole.unlink(missing_ok=True)
