"""How this program starts itself again."""

import sys
from pathlib import Path


def own_command() -> list[str]:
    """The command without arguments: the single file where it runs from one, because its packages are on no path, else the package."""
    from zipfile import is_zipfile

    started = sys.argv[0]
    return [sys.executable, *([str(Path(started).absolute())] if is_zipfile(started) else ["-m", "nccl_doctor"])]
