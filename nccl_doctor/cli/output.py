"""Output of commands: stdout, which a reader may close early, stderr, and files."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from nccl_doctor.cli.options import terminal_options
from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.printable import printable
from nccl_doctor.reporters import Options

_WORD = 400  # characters; of a longer word, which no name of a file is, only the beginning is shown


def open_standard_files() -> None:
    """Open those of the descriptors 0, 1 and 2 that the caller closed, so that no pipe or file gets their numbers."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  (for the life of the process)


def emit(text: str) -> None:
    """Write text to stdout in its encoding; characters that it lacks become `?`. A closed pipe is not an error."""
    encoding = sys.stdout.encoding or "utf-8"
    emit_bytes(text.encode(encoding, "replace"))


def emit_bytes(data: bytes) -> None:
    """Write bytes to stdout unchanged. A closed pipe is not an error; a full disk raises UsageProblem."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        raise UsageProblem(f"cannot write to standard output: {error.strerror}") from None


def show(
    text: Callable[[Options], str], form: str, output: Path | None, verbose: bool, color: str, width: int | None
) -> None:
    """Write a report in a format to where it was asked for: a file, the terminal, or stdout as bytes."""
    if output is not None:
        options = Options(width=width or 80, verbose=verbose, color=color == "always")
        write_file(output, text(options).encode("utf-8", "replace"))
    elif form == "terminal":
        emit(text(terminal_options(width, verbose, color)))
    else:
        emit_bytes(text(Options()).encode("utf-8", "replace"))


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file, in one step where it is a regular one of a folder of ours; `-` is stdout.

    Raises UsageProblem when it cannot be written.
    """
    if str(path) == "-":
        emit_bytes(data)
        return
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK | os.X_OK):
            path.write_bytes(data)
        else:
            replace_file(path, data, _mode(path))
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror}") from None


def _mode(path: Path) -> int:
    """The permissions of a file, or those that a new one gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def complain(text: str) -> None:
    """Write one line to stderr; line breaks become blanks, control characters `?`."""
    line = printable(" ".join(word if len(word) <= _WORD else f"{word[: _WORD // 2]}…" for word in text.split()))
    try:
        click.echo(f"nccl-doctor: {line}", err=True)
    except (OSError, ValueError):  # a stderr that is closed or full changes no exit status
        _silence(2)


def silence_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python reports no error when it closes a broken stdout."""
    _silence(1)


def _silence(descriptor: int) -> None:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    os.close(sink)
