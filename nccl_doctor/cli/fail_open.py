"""Exit statuses of `preflight` for schedulers, and what a failure of our own ends with: the job runs.

`DRAIN` is returned for a verdict about the node and for nothing else. It lies outside what shells (126, 127, 128 + signal),
Python (1, 2, 120), `timeout` (124, 125, 137), `env` and `nice` (125), sysexits.h (64 to 78), ssh (255) and Grid Engine and LSF
(99, 100) use, so that a script can tell it from every way in which a program can fail.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from nccl_doctor.common.printable import printable

DRAIN = 90
JOB = 91  # the node is fine, this job cannot work on it as launched
LOG = "/dev/log"
GRACE = 10.0  # seconds beyond twice the time limit after which `preflight` ends itself
_WARNING = 3 << 3 | 4  # facility daemon, severity warning (RFC 5424)
_UNKNOWN = {"npd": 2, "nagios": 3}  # callers that drain nothing and have a status for "could not look"


def status_of_failure(arguments: Sequence[str]) -> int | None:
    """The status with which a failed `preflight --for CALLER` ends; None for other command lines."""
    if list(arguments[:1]) != ["preflight"]:
        return None
    for number, argument in enumerate(arguments):
        if argument == "--for":
            return _UNKNOWN.get("".join(arguments[number + 1 : number + 2]), 0)
        if argument.startswith("--for="):
            return _UNKNOWN.get(argument.removeprefix("--for="), 0)
    return None


def syslog(text: str) -> None:
    """One line to the system's log; never waits, and a system without a log is not an error."""
    import socket

    line = printable(" ".join(text.split()))[:1000]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.setblocking(False)
        stream.sendto(f"<{_WARNING}>nccl-doctor[{os.getpid()}]: {line}".encode(), LOG)


@contextmanager
def ended_after(seconds: float, caller: str | None) -> Iterator[None]:
    """End the process without a verdict where it takes far longer than this limit, whatever it is at.

    Collectors keep the limit by themselves; rules and files of the parent have none. An exception could be caught on its way.
    """

    def end(_number: int, _frame: object) -> None:
        said = f"preflight found no verdict within {2 * seconds + GRACE:g} s"
        if caller is not None:
            syslog(f"{said}; nothing is drained")
        with suppress(OSError):
            os.write(2, f"nccl-doctor: {said}\n".encode())
        os._exit(_UNKNOWN.get(caller, 0) if caller is not None else 3)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds + GRACE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
