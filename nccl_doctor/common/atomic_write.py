"""Replaces a file in one step, so that a reader sees the old content or the new one and never a part; fills a folder or leaves none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nccl_doctor.common.errors import UsageProblem


def replace_file(path: Path | str, data: bytes, mode: int = 0o600, folder: int | None = None) -> None:
    """Write `data` to a new file of this mode and rename it to `path`; a symbolic link at `path` is replaced, not followed.

    `folder` is the descriptor of the folder that a relative `path` starts from. The data are not synced to the disk, because
    a sick disk would hold up the caller. Raises OSError, and leaves no part of the file behind.

    The name of the part is random: processes of two hosts or containers may have one number and write to one folder.
    """
    head, slash, _ = os.fspath(path).rpartition("/")
    part = f"{head}{slash}.nccl-doctor.{os.urandom(8).hex()}"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(part, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
        os.replace(part, os.fspath(path), src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """A new folder, or one that is empty; a new one and what is in it goes away after an error or a signal.

    Raises UsageProblem where it is a file or not empty, or cannot be written.
    """
    made: list[Path] = []
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageProblem(f"{folder} exists and is not an empty folder")
        for one in reversed((folder, *folder.parents)):
            if not one.exists():
                one.mkdir()
                made.append(one)
        yield folder
    except BaseException as error:
        if folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        for one in reversed(made):
            with suppress(OSError):
                one.rmdir()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise UsageProblem(f"cannot write {folder}: {error.strerror}") from None
        raise
