"""Results of SuperBench: what each benchmark of each node measured, and which nodes its diagnosis calls defective."""

import math
import re
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.json_items import LineObjects
from nccl_doctor.inputs.streams import Readable

TOOL = "superbench"
DIAGNOSIS = "diagnosis"
_METRIC = re.compile(
    r"([\w.-]{1,100}(?::[\w.-]{1,100})?/[\w./:-]{1,180}?)(?::(\d{1,6}))?"
)  # benchmark[:mode]/metric[:rank]
_RATE = re.compile(r"(?i)bw|bandwidth|throughput|flops|tops(?![a-z])|iops|qps|rate(?![a-z])")
_TIME = re.compile(r"(?i)time|latency|_lat(?![a-z])|overhead")
_NOT_COMPARED = re.compile(r"(?i)^monitor/|/return_code|temperature|accuracy|_std")
_CATEGORY = ("Category", "diagnosis/category")
_DETAILS = ("Defective Details", "diagnosis/issue_details")
_MOST = 100_000


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the records, one a node.

    Source: SuperBench `superbench/runner/runner.py` (`results-summary.jsonl`) and `superbench/analyzer/data_diagnosis.py`
    (`diagnosis_summary.jsonl`) 0.3 and newer. A metric ends in the rank of the process; a benchmark whose return code is not 0 failed::

        {"node": "node01", "nccl-bw/allreduce_8589934592_busbw:0": 228.6, "kernel-launch/event_overhead:3": 0.00588, …}
        {"Category": "KernelLaunch", "Defective Details": "kernel-launch/event_overhead:0(B/L: 0.0060 VAL: 0.1000 …)", "index": "node01"}
    """
    facts.mark_covered("active_test")
    objects = LineObjects(stream)
    rows = used = 0
    note = None
    for number, text, record in objects:
        host = next((value for key in ("node", "index") if isinstance(value := record.get(key), str)), None)
        found = _tests(record, host[:200] if host else None)
        used += bool(found)
        if rows + len(found) > _MOST:
            note = f"holds more than {_MOST:,} results; those from line {number:,} on were left out"
            break
        if found:
            ref = facts.evidence(name, number, text[:600])
            facts.add([row._replace(ref=ref) for row in found])
            rows += len(found)
    if objects.torn is not None and note is None:
        note = f"ends in the middle of the record that starts in line {objects.torn}"
    return Reading(objects.lines, used, note)


def _tests(record: dict[str, Any], host: str | None) -> list[ActiveTest]:
    """What a record says; `unit` is rate or time where it is known which way a metric is worse."""
    found = []
    category = next((record[key] for key in _CATEGORY if isinstance(record.get(key), str)), None)
    if category is not None:
        details = next((record[key] for key in _DETAILS if isinstance(record.get(key), str)), "")
        found.append(ActiveTest(host, TOOL, DIAGNOSIS, None, "fail", None, None, f"{category}: {details}"[:400], 0))
        return found  # its numbers are shares of the baseline
    for key, value in record.items():
        match = _METRIC.fullmatch(key)
        if match is None or not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            continue
        if match[1].endswith("/return_code"):
            outcome = "pass" if value == 0 else "fail"
            found.append(ActiveTest(host, TOOL, match[1], match[2], outcome, float(value), None, None, 0))
        elif not _NOT_COMPARED.search(key) and math.isfinite(value):
            unit = "rate" if _RATE.search(match[1]) else "time" if _TIME.search(match[1]) else None
            found.append(ActiveTest(host, TOOL, match[1], match[2], "other", float(value), unit, None, 0))
    return found
