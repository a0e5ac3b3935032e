"""What `sdiag` prints of Slurm's controller: its queues, how long it takes to schedule, and who asks it most."""

import json
import re
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, plain_batches, read_head

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
    ("main", "Last queue length"): ("jobs in the queue", "", 1.0),  # that the last cycle could look at
    ("main", "Max cycle"): ("longest scheduling cycle", "ms", 1000.0),
    ("backfill", "Mean cycle"): ("mean backfill cycle", "ms", 1000.0),
    ("", "DBD Agent queue size"): ("messages for slurmdbd", "", 1.0),
    ("", "Agent queue size"): ("messages for nodes", "", 1.0),
    ("", "Server thread count"): ("threads", "", 1.0),
}
# the same in JSON
_KEYS = {
    "jobs_pending": ("", "Jobs pending"),
    "jobs_running": ("", "Jobs running"),
    "schedule_cycle_mean": ("main", "Mean cycle"),
    "schedule_queue_length": ("main", "Last queue length"),
    "schedule_cycle_max": ("main", "Max cycle"),
    "bf_cycle_mean": ("backfill", "Mean cycle"),
    "dbd_agent_queue_size": ("", "DBD Agent queue size"),
    "agent_queue_size": ("", "Agent queue size"),
    "server_thread_count": ("", "Server thread count"),
}
_DOCUMENT = 4 << 20  # bytes of one report in JSON


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

    `sdiag --json` and slurmrestd (`/slurm/v0.0.40/diag`)::

        {"statistics": {"server_thread_count": 3, "dbd_agent_queue_size": 0, "schedule_cycle_mean": 41231, …}}
    """
    head = read_head(stream, 1 << 12)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return _read_document(head + read_head(stream, _DOCUMENT - len(head)), name, facts)
    stream = Joined(head, stream)
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
    _add(facts, name, kept, users)
    return Reading(lines, used)


def _read_document(data: bytes, name: str, facts: Facts) -> Reading:
    """Read a report in JSON."""
    lines = data.splitlines()
    try:
        told: Any = json.loads(data).get("statistics")
    except (ValueError, RecursionError, AttributeError):
        return Reading(len(lines), 0, "is no complete JSON")
    if not isinstance(told, dict):
        return Reading(len(lines), 0)
    places = {line.split(b'"', 2)[1]: number for number, line in enumerate(lines, 1) if line.count(b'"') >= 2}

    def found(key: str, value: float) -> _Number:
        number = places.get(key.encode(), 1)
        return _Number(value, number, lines[number - 1][:300].decode("utf-8", "replace"))

    kept: dict[str, tuple[str, _Number]] = {}
    for key, at in _KEYS.items():
        title, unit, divisor = _KEPT[at]
        if (value := finite(told.get(key))) is not None:
            kept[title] = unit, found(key, value / divisor)
    users: dict[str, _Number] = {}
    asked = told.get("rpcs_by_user")
    for one in asked if isinstance(asked, list) else ():
        if isinstance(one, dict) and (total := finite(one.get("total_time"))) is not None:
            users[str(one.get("user"))[:60]] = found("rpcs_by_user", total / 1e6)
    if kept:
        _add(facts, name, kept, users)
    return Reading(len(lines), len(kept) + len(users))


def _add(facts: Facts, name: str, kept: dict[str, tuple[str, _Number]], users: dict[str, _Number]) -> None:
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
