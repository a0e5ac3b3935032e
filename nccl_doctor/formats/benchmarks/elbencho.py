"""Results of elbencho: rates of each phase, when the first and when the last thread was done."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_HEAD = re.compile(r"OPERATION\s+RESULT TYPE\s+FIRST DONE\s+LAST DONE\s*$")
_PHASE = re.compile(
    r"(?P<phase>[A-Z][A-Z\d+]{1,20})?\s{1,20}(?P<what>[A-Za-z][\w /%.]{1,30}?)\s{0,20}:"
    r"\s{1,20}\d[\w.]{0,20}\s{1,20}(?P<last>\d[\w.]{0,20})\s*$"
)
_ENDED = re.compile(r"---|===")
_RATES = {
    "Throughput MiB/s": ("throughput", "MiB/s"), "IOPS": ("IOPS", "ops/s"), "Files/s": ("files", "files/s"),
    "Entries/s": ("files", "files/s"), "Dirs/s": ("folders", "folders/s"), "Objects/s": ("objects", "objects/s"),
}  # fmt: skip
_MOST = 20_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the rates up to the end of the last thread; how much was done before the first one ended is no result.

    Source: `source/Statistics.cpp` of elbencho 1.6 to 3.0::

        OPERATION   RESULT TYPE         FIRST DONE   LAST DONE
        =========== ================    ==========   =========
        WRITE       Elapsed time     :     11.559s     11.559s
                    Throughput MiB/s :         885         885
    """
    facts.mark_covered("active_test")
    rows: list[ActiveTest] = []
    phase: str | None = None
    number = used = 0
    for number, label, text in plain_lines(stream):
        if _HEAD.match(text) is not None:
            phase = ""
        elif phase is not None and (row := _PHASE.match(text)) is not None and len(rows) < _MOST:
            phase = (row["phase"] or phase).strip()
            known = _RATES.get(row["what"])
            used += 1
            if phase and known is not None and row["last"].isdecimal():
                test = f"{phase.lower()} {known[0]}"
                ref = facts.evidence(
                    name, number, f"{phase} {' '.join(text.split()).removeprefix(phase).strip()}"[:600]
                )
                rows.append(
                    ActiveTest(label.host, "elbencho", test, None, "other", float(row["last"]), known[1], None, ref)
                )
        elif phase is not None and text.strip() and not _ENDED.match(text):
            phase = ""
    facts.add(rows)
    return Reading(number, used)
