"""Standard input of commands that ask or take pasted text; it may be closed, a folder, a device, or no text."""

import sys

from nccl_doctor.common.errors import UsageProblem

_MOST = 1 << 20  # bytes of pasted text


def is_terminal() -> bool:
    """Whether somebody can answer."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def pasted_text() -> str:
    """All of standard input; bytes that are no UTF-8 become odd characters. Raises UsageProblem where it cannot be read or is a log."""
    if sys.stdin is None or sys.stdin.closed:
        raise UsageProblem("standard input is closed")
    try:
        data = sys.stdin.buffer.read(_MOST + 1)
    except OSError as error:
        raise UsageProblem(f"cannot read standard input: {error.strerror}") from None
    if len(data) > _MOST:
        raise UsageProblem("standard input holds more than 1 MiB; `nccl-doctor analyze -` reads logs")
    return data.decode("utf-8", "replace")
