"""How this program starts itself again."""

import sys
from pathlib import Path


def own_command() -> list[str]:
    """The command without arguments: the single file where it runs from one, because its packages are on no path, else the package.

    `-P` keeps the current folder out of the path: anybody may have put a package of our name there.
    """
    from zipfile import is_zipfile

    started = sys.argv[0]
    return [sys.executable, *([str(Path(started).absolute())] if is_zipfile(started) else ["-P", "-m", "nccl_doctor"])]
