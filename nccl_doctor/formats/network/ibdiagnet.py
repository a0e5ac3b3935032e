"""The summary of `ibdiagnet`, which checks a whole InfiniBand fabric: warnings and errors of each stage."""

import re
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import FabricCheck
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_MOST_STAGES = 1000
_CHECK_HEADS = re.compile(rb"-I- Stage |STAGE {10,60}Errors|(?m:(?:^|[:Z] )-[EW]- )")
_STAGE_2 = re.compile(r"-I- ([A-Z][\w /&()-]{2,60}?)\s{2,60}(\d{1,9})\s{1,20}(\d{1,9})(?:\s|$)")
_STAGE_1 = re.compile(r" {4}([A-Z][\w /()-]{2,60}?) {2,60}(\d{1,9}) {1,20}(\d{1,9})\s*$")
_PROBLEM = re.compile(r"-([EW])- (.{5,400})$")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the summaries of a file.

    Source: ibdiagnet 2 (`/var/tmp/ibdiagnet2/ibdiagnet2.log`, or its output), and 1.5 of ibutils, whose columns are swapped::

        -I- Stage                     Warnings   Errors     Comment
        -I- Port Counters             2          0
    """
    sections = Sections(stream, _CHECK_HEADS)
    rows: list[FabricCheck] = []
    said: tuple[str, int] | None = None
    errors_first = in_summary = False
    used = 0
    for first, label, texts in sections.batches():
        for number, text in enumerate(texts, first):
            line = _parse_line(text, errors_first)
            if line is None or (line.stage and not in_summary):
                continue
            if line.problem:
                said = said or (line.problem, number)
            elif not line.stage:
                errors_first, in_summary = line.errors_first, True
            elif len(rows) < _MOST_STAGES:
                ref = facts.evidence(name, number, text.strip())
                rows.append(FabricCheck(label.host, name, line.stage, line.warnings, line.errors, None, ref))
            sections.used(number)
            used += 1
    first_said = said[0] if said else None
    facts.add(row._replace(text=first_said) if row.warnings or row.errors else row for row in rows)
    facts.mark_covered("fabric_check")
    return Reading(sections.lines, used)


class _Line(NamedTuple):
    """A warning or error, a stage of the summary, or else the titles above the stages."""

    problem: str = ""
    stage: str = ""
    warnings: int = 0
    errors: int = 0
    errors_first: bool = False


@lru_cache(1 << 10)  # stages are the same ones in every run
def _parse_line(text: str, errors_first: bool) -> _Line | None:
    if "-I- Stage " in text or "STAGE" in text:
        return _Line(errors_first="STAGE" in text)
    if (problem := _PROBLEM.match(text)) is not None:
        return _Line(problem=problem[2].strip())
    if errors_first:
        stage = _STAGE_1.match(text)
        return None if stage is None else _Line(stage=stage[1], warnings=int(stage[3]), errors=int(stage[2]))
    stage = _STAGE_2.match(text)
    return None if stage is None else _Line(stage=stage[1], warnings=int(stage[2]), errors=int(stage[3]))
