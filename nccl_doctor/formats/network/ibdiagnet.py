"""The summary of `ibdiagnet`, which checks a whole InfiniBand fabric: warnings and errors of each stage."""

import re

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
            if "-I- Stage " in text or "STAGE" in text:
                errors_first, in_summary = "STAGE" in text, True
            elif (problem := _PROBLEM.match(text)) is not None:
                said = said or (problem[2].strip(), number)
            elif in_summary and (stage := (_STAGE_1 if errors_first else _STAGE_2).match(text)) is not None:
                left, right = int(stage[2]), int(stage[3])
                warnings, errors = (right, left) if errors_first else (left, right)
                if len(rows) < _MOST_STAGES:
                    ref = facts.evidence(name, number, text.strip())
                    rows.append(FabricCheck(label.host, name, stage[1], warnings, errors, None, ref))
            else:
                continue
            sections.used(number)
            used += 1
    first_said = said[0] if said else None
    facts.add(row._replace(text=first_said) if row.warnings or row.errors else row for row in rows)
    facts.mark_covered("fabric_check")
    return Reading(sections.lines, used)
