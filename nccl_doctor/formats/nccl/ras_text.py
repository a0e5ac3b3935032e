"""The table of communicators in the text form of NCCL's RAS report (2.24 and newer), also inside a log.

The blocks below it, about single ranks and processes, are read by the log patterns.
"""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import RasGroup
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_RAS_TABLE = re.compile(rb"#  in group  per comm  per node  per comm  in group")
_RAS_HEAD = re.compile(r"\s*#  in group  per comm  per node  per comm  in group")
_RAS_GROUP = re.compile(
    r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}(?:-\d{1,9})?)\s+(\d{1,9})\s+(\d{1,9})\s+([A-Z][A-Z,]{1,60})\s+([A-Z][A-Z,]{1,60})\s*"
)
_MOST = 100_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the tables of all reports of a file.

    Source: `ncclras`, also with `-v`; src/ras/client_support.cc of NCCL 2.24 and newer::

        Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
            #  in group  per comm  per node  per comm  in group
            0         8         4         1         4        32   RUNNING      OK
    """
    rows: list[RasGroup] = []
    sections = Sections(stream, _RAS_TABLE, keep=3)
    inside = False
    used = 0
    for number, label, text in sections:
        if _RAS_HEAD.match(text):
            inside = True
            continue
        group = _RAS_GROUP.fullmatch(text) if inside and len(rows) < _MOST else None
        if group is None:
            inside = False
            continue
        used += 1
        sections.used()
        whole = [int(group[cell]) for cell in (1, 2, 3, 5, 6)]
        rows.append(
            RasGroup(
                label.host, name, whole[0], whole[1], whole[2], group[4], whole[3], whole[4], group[7], group[8],
                facts.evidence(name, number, text.strip()),
            )
        )  # fmt: skip
    facts.add(rows)
    facts.mark_covered("ras_group")
    return Reading(sections.lines, used)
