"""The lines of a job in a text: those that jobs print, and no command that shows a state."""

import re
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.detect import NCCL
from nccl_doctor.inputs.prefilter import prefilter

_LONGEST = 4_000  # bytes of a line that are looked at
# Only lines with one of these are looked at: the expression alone takes a tenth of a second for a megabyte.
_LITERALS = frozenset(
    (
        b"CCL ", b"INFO", b"WARN", b"ERROR", b"Traceback (most recent", b"[rank", b"slurmstepd: ", b"srun: ", b"mpirun ", b" torch/",
        b"%|", b"loss", b"/s",
    )
)  # fmt: skip
_JOB_LINE = compiled(
    NCCL.pattern
    + rb"|Traceback \(most recent call last\):|^\[rank\d{1,6}\]:|slurmstepd: error: |srun: (?:error|Job step)"
    rb"|mpirun (?:noticed|detected)|^[EWI]\d{4} \d\d:\d\d:\d\d\.|\d%\|[^\n|]{1,120}\| ?\d{1,9}/\d{1,9} \["
    rb"|^[^\n]{0,40}\d\d:\d\d:\d\d[^\n]{0,40}\b(?:INFO|WARNING|ERROR)\b"
    rb"|\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch)\b[^\n]{0,12}\d[^\n]{0,200}(?:\bloss\b|/s\b)",
    re.MULTILINE,
)


def job_lines(text: bytes) -> Iterator[int]:
    """Where each line of a job begins."""
    end = -1  # of the line that was looked at
    for place in prefilter(_LITERALS, name="job-lines").places(text)[0].tolist():
        if place > end:
            start = text.rfind(b"\n", 0, place) + 1
            end = text.find(b"\n", place)
            end = len(text) if end < 0 else end
            if _JOB_LINE.search(text[start : min(end, start + _LONGEST)]):
                yield start


def first_job_line(text: bytes) -> int | None:
    """Where the first line of a job begins; None where there is none."""
    return next(job_lines(text), None)
