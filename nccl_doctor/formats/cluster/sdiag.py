"""What `sdiag` prints of Slurm's controller: its queues, how long it takes to schedule, and who asks it most."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

COMMAND = "sdiag"
_FIELD = re.compile(r"\s{0,8}(?P<title>[A-Z][\w ()]{2,60}):\s{0,20}(?P<value>\d{1,15})\s*$")
_RPC = re.compile(
    r"\s{1,8}(?P<name>[\w.-]{1,60})\s{1,60}\(\s{0,12}\d{1,12}\) count:(?P<count>\d{1,15})\s{1,20}ave_time:(?P<mean>\d{1,15})"
    r"\s{1,20}total_time:(?P<total>\d{1,18})"
)
_PARTS = {
    "Main schedule statistics": "main",
    "Backfilling stats": "backfill",
    "Remote Procedure Call statistics by user": "users",
}
# part and title -> name here, and by what the value is divided
_KEPT = {
    ("", "Jobs pending"): ("jobs waiting", "", 1.0),
    ("", "Jobs running"): ("jobs running", "", 1.0),
    ("main", "Mean cycle"): ("mean scheduling cycle", "ms", 1000.0),
    ("main", "Max cycle"): ("longest scheduling cycle", "ms", 1000.0),
    ("backfill", "Mean cycle"): ("mean backfill cycle", "ms", 1000.0),
    ("", "DBD Agent queue size"): ("messages for slurmdbd", "", 1.0),
    ("", "Agent queue size"): ("messages for nodes", "", 1.0),
    ("", "Server thread count"): ("threads", "", 1.0),
}


class _Number(NamedTuple):
    value: float
    number: int
    line: str


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all reports of a file; of several the highest number counts.

    Source: `src/sdiag/sdiag.c` of Slurm 17 to 25; times in microseconds::

        sdiag output at Mon Mar 02 10:20:11 2026 (1772446811)
        DBD Agent queue size: 0
        Main schedule statistics (microseconds):
        \tMean cycle:   41231
    """
    kept: dict[str, tuple[str, _Number]] = {}
    users: dict[str, _Number] = {}
    part, lines, used = "", 0, 0
    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, text in enumerate(texts, first):
            if text[:1].strip() and ":" not in text.rstrip()[:-1] and not text.startswith("sdiag output at"):
                part = next(
                    (kind for words, kind in _PARTS.items() if text.startswith(words)),
                    "other" if text.strip("*\r ") else "",
                )
            elif text.startswith("sdiag output at"):
                part = ""
            elif part == "users" and (rpc := _RPC.match(text)) is not None:
                total = float(rpc["total"]) / 1e6
                if total > users.get(rpc["name"], _Number(-1.0, 0, "")).value:
                    users[rpc["name"]] = _Number(total, number, text)
            elif (field := _FIELD.match(text)) is not None:
                known = _KEPT.get((part, field["title"]))
                if known is not None:
                    value = float(field["value"]) / known[2]
                    if known[0] not in kept or value > kept[known[0]][1].value:
                        kept[known[0]] = known[1], _Number(value, number, text)
            else:
                continue
            used += 1
    if not kept:
        return Reading(lines, 0)
    busiest = max(users, key=lambda user: users[user].value, default=None)
    order = [title for title, _, _ in _KEPT.values() if title in kept]
    rows = [(title, *kept[title]) for title in order[:3]]
    if busiest is not None:
        rows.append((f"requests of {busiest}", "s", users[busiest]))
    rows += [(title, *kept[title]) for title in order[3:]]
    facts.mark_covered("host_number")
    facts.add(
        HostNumber(None, name, COMMAND, title, of.value, unit, facts.evidence(name, of.number, of.line.strip()))
        for title, unit, of in rows
    )
    return Reading(lines, used)
