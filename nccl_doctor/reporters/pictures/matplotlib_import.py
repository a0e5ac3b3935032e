"""Imports Matplotlib so that it leaves no file and reads no settings.

By itself it keeps a list of fonts in the home folder, and obeys a file `matplotlibrc` in the current folder, which may belong
to somebody else: `text.usetex` there has it run LaTeX on the text of a log.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import TemporaryDirectory


@cache
def load() -> None:
    """Import it with an empty folder as its own and the current one. A page has the fonts of its reader, so none are looked for."""
    with (
        TemporaryDirectory(prefix="nccl-doctor-") as folder,
        _environment(MPLCONFIGDIR=folder, MATPLOTLIBRC=folder, MPL_IGNORE_SYSTEM_FONTS="1"),
        _current_folder(folder),
    ):
        import matplotlib.figure  # noqa: F401


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _current_folder(folder: str) -> Iterator[None]:
    before = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)  # it may have been removed, so no name
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)
