"""Results of mdtest, and of IO500, which runs IOR and mdtest by turns: how many files a second, and a score of all."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(rb"SUMMARY(?: rate)?(?: \(in ops/sec\))?: \(of |\[RESULT\] |^\[ior-easy-write\]", re.MULTILINE)
_SUMMARY = re.compile(r"SUMMARY( rate|)(?: \(in ops/sec\))?: \(of ")
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_ROW = re.compile(
    r"((?:File|Directory|Tree) (?:creation|stat|read|removal|rename)) {0,12}:? {1,40}"
    + " {1,20}".join([_NUMBER] * 4)
    + r"\s*$"
)
_RESULT = re.compile(
    r"\[RESULT\] {1,20}(?:(?:BW|IOPS) {1,9}phase \d {1,20})?([a-z][\w-]{1,40}) {1,40}"
    + _NUMBER
    + r" (GiB/s|GB/s|kIOPS|kiops)\b"
)
_TOTAL = re.compile(r"\[SCORE ?\] Bandwidth " + _NUMBER + r" G(i?)B/s : IOPS " + _NUMBER + r" kiops : TOTAL " + _NUMBER)
_PART = re.compile(r"\[([a-z][\w-]{1,40}|SCORE)\]\s*$")
_SCORE = re.compile(r"(score|SCORE|MD|BW) {1,20}= " + _NUMBER + r"\s*$")
_UNITS = {
    "GiB/s": ((1 << 30) / 1e6, "MB/s"),
    "GB/s": ((1 << 30) / 1e6, "MB/s"),
    "kiops": (1e3, "ops/s"),
    "kIOPS": (1e3, "ops/s"),
}
_KEEP = 20
_MOST = 20_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the mean rate of each operation that took place, and the scores of IO500.

    Source: `src/mdtest.c` of IOR 3 and 4; IO500 `src/phase.c` and its `result.txt`, whose GB and GiB are both 2^30 bytes::

           File creation               45123.456     45123.456     45123.456         0.000
        [RESULT]       ior-easy-write       12.345678 GiB/s : time 301.2 seconds
        [SCORE ] Bandwidth 8.765432 GiB/s : IOPS 98.765432 kiops : TOTAL 29.423321
        [mdtest-hard-stat]
        score           = 56.7
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    rows: list[ActiveTest] = []
    used = 0
    is_rate, part = False, ""
    note = None
    for number, label, whole in sections:
        text = whole.strip()
        tool, test, value, unit = "io500", "", 0.0, ""
        if _SUMMARY.match(text) is not None:
            is_rate = True
        elif text.startswith("SUMMARY "):  # of the times
            is_rate = False
            continue
        elif is_rate and (row := _ROW.match(text)) is not None:
            tool, test, value, unit = "mdtest", row[1], float(row[4]), "ops/s"
        elif (row := _RESULT.match(text)) is not None:
            factor, unit = _UNITS.get(row[3], (0.0, ""))
            test, value = row[1], float(row[2]) * factor
        elif (row := _TOTAL.match(text)) is not None:
            test, value = "score", float(row[4])
        elif (row := _PART.match(text)) is not None:
            part = row[1]
        elif part and (row := _SCORE.match(text)) is not None:
            test, value, unit = _scored(part, row[1], float(row[2]))
        else:
            continue
        used += 1
        sections.used()
        if test and value > 0:
            ref = facts.evidence(name, number, f"[{part}] {text}" if part else text)
            rows.append(ActiveTest(label.host, tool, test, None, "other", value, unit, text=None, ref=ref))
        if len(rows) >= _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _scored(part: str, key: str, value: float) -> tuple[str, float, str]:
    """Name, value and unit of a line `score = 56.7` of a part, or of the scores of all."""
    if part == "SCORE":
        return ("score", value, "") if key == "SCORE" else ("", 0.0, "")
    if key != "score":
        return "", 0.0, ""
    factor, unit = _UNITS["GiB/s" if part.startswith("ior-") else "kIOPS"]
    return part, value * factor, unit
