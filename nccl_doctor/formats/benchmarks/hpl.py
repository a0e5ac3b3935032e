"""Output of HPL (Linpack): the reference from netlib, NVIDIA's and AMD's, and HPL-MxP, also of a run that did not end."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(rb"HPLinpack |HPL-(?:NVIDIA|MxP|AI)\b|T/V +N +NB +P +Q|\bProg= | GFLOPS = ")
_ROW = re.compile(
    r"W[RC]\w{1,12}[ \t]+(\d{1,12})[ \t]+\d{1,6}[ \t]+(\d{1,6})[ \t]+(\d{1,6})[ \t]+(\d{1,9}\.\d{1,6})"
    r"[ \t]+(\d{1,12}(?:\.\d{1,9})?(?:e[+-]\d{1,3})?)"
)
_MIXED = re.compile(r".{0,40}?(?<![^ m]) GFLOPS = {0,12}(\d{1,12}(?:\.\d{1,9})?(?:e[+-]\d{1,3})?), per GPU = ")
_MIXED_SIZE = re.compile(
    r" {0,12}N = {0,12}(\d{1,12}), NB = {0,9}\d{1,6}, NPROW = {0,9}(\d{1,6}), NPCOL = {0,9}(\d{1,6})"
)
_RESIDUAL = re.compile(r"\|\|Ax-b\|\|.{1,120}?= {0,20}\S{1,30} \.{3,9} (PASSED|FAILED)")
_PROGRESS = re.compile(
    r".{0,40}?\bProg= {0,4}(\d{1,3}(?:\.\d{1,4})?)%.{0,120}?\b([GT])F= {0,12}(\d{1,12}(?:\.\d{1,6})?(?:e[+-]\d{1,3})?)(?!\w)"
)
_KEEP = 400  # lines of progress and of warnings between what says something
_MOST = 20_000


class _Run(NamedTuple):
    """A result whose check did not come yet, or the progress of a run."""

    value: float
    said: str
    number: int
    text: str


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the rate of each problem, and whether its solution passed the check.

    Source: `testing/ptest/HPL_pdtest.c` of netlib's HPL 2.0 to 2.3, and what NVIDIA's container prints of the progress::

        WR03L8R2      100352   224     4     2             31.52              2.137e+04
        ||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0021042 ...... PASSED

    HPL-MxP of NVIDIA checks the solution first::

          ||Ax-b||_oo / (EPS * (||A||_oo * ||x||_oo + ||b||_oo) * N) =    5.120034E-04 ...... PASSED
            N = 95232, NB = 1024, NPROW = 2, NPCOL = 1, SLOPPY-TYPE = 2
               GFLOPS = 9.8765e+04, per GPU =   49382.50 ------ The HPL-MxP performance to report
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    result: _Run | None = None
    checked, size = "other", ""  # of an HPL-MxP run whose rate follows
    progress: _Run | None = None
    rows: list[ActiveTest] = []
    used = 0
    note = None
    for first, _, texts in sections.batches():
        last = 0
        for number, text in enumerate(texts, first):
            if "Prog=" in text and (match := _PROGRESS.match(text)) is not None:
                progress = _Run(_rate(match[3], match[2]), f"stopped at {match[1]} %", number, text.strip())
            elif (match := _ROW.match(text.lstrip())) is not None:
                rows += _rows(facts, name, result, "other")
                said = f"N {int(match[1]):,}, {int(match[2]) * int(match[3])} ranks, {match[4]} s"
                result, progress = _Run(float(match[5]), said, number, text.strip()), None
            elif "||Ax-b||" in text and (match := _RESIDUAL.search(text)) is not None:
                checked = "pass" if match[1] == "PASSED" else "fail"
                rows += _rows(facts, name, result, checked)
                result = None
            elif "NPROW" in text and (match := _MIXED_SIZE.match(text)) is not None:
                size = f"N {int(match[1]):,}, {int(match[2]) * int(match[3])} ranks"
            elif " GFLOPS = " in text and (match := _MIXED.match(text)) is not None and "LU GFLOPS" not in text:
                rows += _rows(facts, name, _Run(float(match[1]), size, number, text.strip()), checked, "HPL-MxP")
                checked, size, progress = "other", "", None
            else:
                continue
            used, last = used + 1, number
        if last:
            sections.used(last)
        if len(rows) > _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    rows += _rows(facts, name, result, "other")
    rows += _rows(facts, name, progress, "other")
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _rate(number: str, unit: str) -> float:
    """Gflop/s of a line of progress."""
    return float(number) * (1000 if unit == "T" else 1)


def _rows(facts: Facts, file: str, run: _Run | None, outcome: str, test: str = "HPL") -> list[ActiveTest]:
    if run is None:
        return []
    ref = facts.evidence(file, run.number, run.text)
    return [
        ActiveTest(
            host=None,
            tool="hpl",
            test=test,
            device=None,
            outcome=outcome,
            value=run.value,
            unit="Gflop/s",
            text=run.said,
            ref=ref,
        )
    ]
