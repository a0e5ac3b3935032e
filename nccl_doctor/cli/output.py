"""Where commands write: stdout that may close early, or a file."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import click

from nccl_doctor.common.errors import UsageProblem


def emit(text: str) -> None:
    """Write text to stdout in its own encoding; characters that it lacks become `?`. A reader that left is no error."""
    encoding = sys.stdout.encoding or "utf-8"
    emit_bytes(text.encode(encoding, "replace"))


def emit_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are. A reader that left is no error."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file. Raises UsageProblem where that cannot be done."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror}") from None


def complain(text: str) -> None:
    """One line on stderr, whatever the text holds."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    with suppress(OSError, ValueError):  # a stderr that is closed or full changes no exit status
        click.echo(f"nccl-doctor: {line}", err=True)


def silence_stdout() -> None:
    """Let stdout lead nowhere, so that Python has nothing to complain about when it closes it."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.close(sink)
