"""The kernel's log of this boot: Xids and SXids, PCIe, memory, file systems, network cards.

The patterns of the log engine (`log/patterns/kernel.toml`, `host.toml`) give a message its kind and fields; here it must also
come from the kernel (`kernel_records`) and have the form of the kernel's own messages (`kernel_forms`), and is folded.
"""

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import KernelLog, Message, StuckTask, Xid
from nccl_doctor.log import line_patterns
from nccl_doctor.node.host import clock
from nccl_doctor.node.host.kernel_forms import KINDS, has_device, has_form, split_name
from nccl_doctor.node.host.kernel_records import KERNEL, Record, parse
from nccl_doctor.node.host.stuck_processes import driver_of
from nccl_doctor.node.runtime.root import Root

TABLES = (KernelLog, Message, StuckTask, Xid)
FILES = ("amdgpu", "host", "kernel")  # of log/patterns
MOST = 4 << 20  # bytes of a log; the end counts
_ENDLESS = 16 * MOST  # a kernel that prints faster than we read has no end
FOLDED = 5_000  # different rows kept
NOT_BELIEVED = "kernel-line-not-believed"
_JOURNAL = "MESSAGE,SYSLOG_FACILITY,_SOURCE_MONOTONIC_TIMESTAMP,_KERNEL_DEVICE"
_COMMANDS = {  # -> what its output starts with; the journal comes first, as it keeps records apart
    ("journalctl", "-k", "-b", "-o", "json", f"--output-fields={_JOURNAL}", "--no-pager"): "{",
    ("dmesg", "-r"): "<",
}


def collect(root: Root) -> Iterator[Any]:
    """One row about the log, then what it holds. A log that may not be read is not an error: the row says so."""
    times = clock.times(root)
    source, text = read_log(root)
    records = parse(text, times.boot)
    first = next((record.stamp for record in records if record.stamp is not None), None)
    seen = Seen(source or "kernel log", f"{len(records)} lines" if source else "may not be read")
    yield KernelLog(None, source, len(records), first, times.now, times.boot, seen)
    if source is not None:
        rows = list(fold(records, source))
        yield from rows
        yield from _stuck(root, rows)


def read_log(root: Root) -> tuple[str | None, str]:
    """Where the log was read and its text; (None, "") without permission for any of them."""
    kept = root.asked("kmsg", lambda: _read_kmsg(root))
    if isinstance(kept, dict) and isinstance(kept.get("text"), str):
        return "/dev/kmsg", kept["text"]
    for command, start in _COMMANDS.items():
        with suppress(TimeoutError):
            out = root.run(*command, seconds=1.0)
            if out is not None and out.status == 0 and out.text.startswith(start):
                return " ".join(command[:2]), out.text[-MOST:]
    if not root.live:  # of a live node it may be of another boot, in a container of another machine
        text = root.text("/var/log/dmesg")
        if text is not None:
            return "/var/log/dmesg", text[-MOST:]
    return None, ""


def _read_kmsg(root: Root) -> dict[str, str] | None:
    """The newest `MOST` bytes of records that the kernel still holds; reading never waits for the next one."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        root.denied.append("/dev/kmsg")
        return None
    except OSError:
        return None
    records: deque[bytes] = deque()
    size = total = 0
    try:
        while total < _ENDLESS:
            try:
                record = os.read(handle, 8192)
            except BrokenPipeError:  # the record was overwritten while we read; the next one is there
                continue
            except PermissionError:
                root.denied.append("/dev/kmsg")
                return None
            except OSError:
                break
            if not record:
                break
            total += len(record)
            size += len(record)
            records.append(record.rstrip(b"\n"))
            while size > MOST:
                size -= len(records.popleft()) + 1
    finally:
        os.close(handle)
    return {"text": b"\n".join(records).decode("utf-8", "replace")} if records else None


def grammar() -> list[line_patterns.Pattern]:
    """The patterns of lines that a kernel prints."""
    return [pattern for pattern in line_patterns.load_files(*FILES) if pattern.name in KINDS]


def fold(records: Iterable[Record], source: str) -> Iterator[Xid | Message]:
    """Rows; equal events are one with the number of lines and the time of the last of them.

    The second and third line of an SXid match no pattern of it, so that an error counts once. A line that has the shape of
    a message but not its origin or form becomes a message of kind `NOT_BELIEVED`.
    """
    records = list(records)
    whole = "\n".join(record.text for record in records)
    asked = [
        (pattern, present) for pattern in grammar() if (present := [word for word in pattern.literals if word in whole])
    ]
    if not asked:
        return
    devices = source == "/dev/kmsg" and any(record.device for record in records)
    kept: dict[tuple[Any, ...], tuple[int, Record, str, line_patterns.Pattern, dict[str, Any]]] = {}
    for record in records:
        text, process = split_name(record.text)
        for pattern, present in asked:
            if not any(word in text for word in present) or (fields := pattern.match(text)) is None:
                continue
            if process is not None and "process" in fields:
                fields["process"] = process if process != "<unknown>" else None
            reason = _doubt(pattern.name, record, devices)
            key = (NOT_BELIEVED, pattern.name, reason) if reason else _key(pattern, fields)
            n = kept[key][0] if key in kept else 0
            if n or len(kept) < FOLDED:
                kept[key] = (n + 1, record, reason, pattern, fields)
    for n, record, reason, pattern, fields in kept.values():
        seen = Seen(source, record.shown[:500], record.number)
        if reason:
            yield _message(NOT_BELIEVED, {"like": pattern.name, "reason": reason}, n, record, seen)
        elif pattern.table == "xid":
            yield _xid(fields, n, record, seen)
        else:
            yield _message(pattern.name, fields, n, record, seen)


def _doubt(kind: str, record: Record, devices: bool) -> str:
    """Why a line is not taken for a message of the kernel; empty where it is. `devices`: the source has dictionaries."""
    if record.facility not in (None, KERNEL):
        return "written by a program"
    if not record.whole:
        return "part of another message"
    if not has_form(kind, record.text):
        return "not in the form of the kernel"
    if devices and not has_device(kind, record.text, record.device):
        return "not printed for that device"
    return ""


def _key(pattern: line_patterns.Pattern, fields: dict[str, Any]) -> tuple[Any, ...]:
    if pattern.table == "xid":
        recovery = fields.get("text") if fields["code"] == "154" else None  # its text is the event
        return "xid", fields["kind"], fields["code"], fields.get("pci"), fields.get("fatal"), recovery
    return pattern.name, *sorted((name, value) for name, value in fields.items() if value is not None)


def _xid(fields: dict[str, Any], n: int, record: Record, seen: Seen) -> Xid:
    return Xid(
        host=None, kind=fields["kind"], pci=fields.get("pci"), code=int(fields["code"]),
        pid=_int(fields.get("pid")), process=fields.get("process"), text=fields.get("text") or "",
        fatal=fields.get("fatal"), previous=_int(fields.get("previous")), n=n, stamp=record.stamp, ref=seen,
    )  # fmt: skip


def _message(kind: str, fields: dict[str, Any], n: int, record: Record, seen: Seen) -> Message:
    named = json.dumps({name: value for name, value in fields.items() if value is not None})
    return Message(
        kind=kind, level=None, host=None, rank=None, pid=None, source="kernel", text=record.text[:500],
        fields=named, n=n, last_line=record.number, stamp=record.stamp, ref=seen,
    )  # fmt: skip


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _stuck(root: Root, rows: Iterable[Any]) -> Iterator[StuckTask]:
    """Blocked processes of the log, and whether they still are."""
    latest: dict[tuple[int, str], StuckTask] = {}
    for row in rows:
        if isinstance(row, Message) and row.kind == "task-blocked":
            fields = json.loads(row.fields)
            pid, name = int(fields["blocked"]), str(fields["process"])
            latest[pid, name] = StuckTask(
                host=None, pid=pid, name=name, seconds=int(fields["seconds"]), still=None, function=None,
                driver=None, stamp=row.stamp, ref=row.ref,
            )  # fmt: skip
    for (pid, name), task in latest.items():
        stat = root.text(f"/proc/{pid}/stat")
        state = re.match(r"\d+ \((.*)\) (\S)", stat or "", re.DOTALL)
        still = None
        if state is not None:
            still = int(state[1][:15] == name[:15] and state[2] == "D")
        elif root.live and stat is None:
            still = 0
        function = (root.value(f"/proc/{pid}/wchan") or "0") if still else "0"
        driver = driver_of(root.text(f"/proc/{pid}/stack")) if still else None
        yield task._replace(still=still, function=function if function != "0" else None, driver=driver)
