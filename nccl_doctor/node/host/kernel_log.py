"""The kernel's log of this boot: Xids and SXids, PCIe, memory, file systems, network cards.

What its lines mean stands in the line grammars of `sources/patterns`; here they get a time and are folded.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import KernelLog, Message, StuckTask, Xid
from nccl_doctor.log import line_patterns
from nccl_doctor.node.host import clock
from nccl_doctor.node.runtime.root import Root

TABLES = (KernelLog, Message, StuckTask, Xid)
KINDS = frozenset((
    "aer-error", "disk-error", "filesystem-turned-read-only", "gpu-init-failed", "gpu-off-bus", "iommu-fault",
    "link-down", "lustre-error", "machine-check", "memory-error", "mlx5-health", "mlx5-module-event", "nfs-answers",
    "nfs-not-responding", "nic-slot-power", "nic-transmit-stuck", "nccl-segfault", "oom-kill-constraint",
    "oom-killed-process", "pcie-bandwidth-limited", "pcie-bus-error", "pcie-surprise-down", "peermem-invalid-context",
    "sxid-fatal", "sxid-nonfatal", "soft-lockup", "task-blocked", "xid", "xid-fatal", "xid-nonfatal",
))  # fmt: skip
"""Patterns that kernels print; the others of those files are words of tools."""

FILES = ("host", "kernel")  # of sources/patterns
MOST = 4 << 20  # bytes of a log; the end counts
FOLDED = 5_000  # different rows kept
_COMMANDS = (
    ("dmesg", "--time-format", "iso"),
    ("dmesg",),  # of busybox
    ("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager"),
)
_STAMPS = re.compile(
    r"\d+,\d+,(?P<usec>\d{1,18}),[^;\n]{0,80};"  # /dev/kmsg: priority, number, µs since boot, flags
    r"|(?:<\d+>)?\[ *(?P<seconds>\d{1,12}\.\d{1,9})\](?: ?\[ *[TC]\d+\])? ?"
    r"|(?:<\d+>)?\[(?P<words>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?"
    r"|(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d))\s(?:\S+ kernel: )?"
)


class Line(NamedTuple):
    """A line of the log without its stamp."""

    number: int
    stamp: float | None  # seconds since the epoch
    text: str
    whole: str


def collect(root: Root) -> Iterator[Any]:
    """One row about the log, then what it holds. A log that may not be read is no error: the row says so."""
    times = clock.times(root)
    source, text = log(root)
    found = list(lines(text, times.boot))
    first = next((line.stamp for line in found if line.stamp is not None), None)
    seen = Seen(source or "kernel log", f"{len(found)} lines" if source else "may not be read")
    yield KernelLog(None, source, len(found), first, times.now, times.boot, seen)
    if source is not None:
        rows = list(fold(found, source))
        yield from rows
        yield from _stuck(root, rows)


def log(root: Root) -> tuple[str | None, str]:
    """Where the log was read and its text; (None, "") where nobody lets us."""
    told = root.asked("kmsg", lambda: _kmsg(root))
    if isinstance(told, dict) and isinstance(told.get("text"), str):
        return "/dev/kmsg", told["text"]
    for command in _COMMANDS:
        with suppress(TimeoutError):
            out = root.run(*command, seconds=1.0)
            if out is not None and out.status == 0 and out.text.strip():
                return " ".join(command), out.text[-MOST:]
    if not root.live:  # of a live node it may be of another boot, in a container of another machine
        text = root.text("/var/log/dmesg")
        if text is not None:
            return "/var/log/dmesg", text[-MOST:]
    return None, ""


def _kmsg(root: Root) -> dict[str, str] | None:
    """All records that the kernel still holds; reading never waits for the next one."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        root.denied.append("/dev/kmsg")
        return None
    except OSError:
        return None
    records: list[bytes] = []
    size = 0
    try:
        while size < MOST:
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
            size += len(record)
            records.append(record.split(b"\n", 1)[0])
    finally:
        os.close(handle)
    return {"text": b"\n".join(records).decode("utf-8", "replace")} if records else None


def lines(text: str, boot: float | None) -> Iterator[Line]:
    """Lines with their time. Without the time of the boot, seconds since it give none."""
    for number, whole in enumerate(text.splitlines(), 1):
        match = _STAMPS.match(whole)
        if match is None:
            yield Line(number, None, whole, whole)
            continue
        text = whole[match.end() :]
        usec = match["usec"]
        shown = whole if usec is None else f"[{int(usec) * 1e-6:.6f}] {text}"  # as dmesg shows it
        yield Line(number, _stamp(match, boot), text, shown)


def _stamp(match: re.Match[str], boot: float | None) -> float | None:
    if match["usec"] is not None:
        return boot + int(match["usec"]) * 1e-6 if boot is not None else None
    if match["seconds"] is not None:
        return boot + float(match["seconds"]) if boot is not None else None
    with suppress(ValueError, OverflowError):
        if match["words"] is not None:
            return time.mktime(time.strptime(match["words"], "%a %b %d %H:%M:%S %Y"))
        return datetime.fromisoformat(match["iso"]).timestamp()
    return None


def grammar() -> list[line_patterns.Pattern]:
    """The patterns of lines that a kernel prints."""
    return [
        pattern
        for name in FILES
        for pattern in line_patterns.read(line_patterns.FOLDER / f"{name}.toml")
        if pattern.name in KINDS
    ]


def fold(found: Iterable[Line], source: str) -> Iterator[Xid | Message]:
    """Rows; equal events are one with the number of lines and the time of the last of them.

    The second and third line of an SXid match no pattern of it, so that an error counts once.
    """
    found = list(found)
    whole = "\n".join(line.text for line in found)
    asked = [
        (pattern, present) for pattern in grammar() if (present := [word for word in pattern.literals if word in whole])
    ]
    if not asked:
        return
    kept: dict[tuple[Any, ...], tuple[int, Line, line_patterns.Pattern, dict[str, Any]]] = {}
    for line in found:
        for pattern, present in asked:
            if not any(word in line.text for word in present) or (fields := pattern.match(line.text)) is None:
                continue
            key = _key(pattern, fields)
            n = kept[key][0] if key in kept else 0
            if n or len(kept) < FOLDED:
                kept[key] = (n + 1, line, pattern, fields)
    for n, line, pattern, fields in kept.values():
        yield _row(pattern, fields, n, line, Seen(source, line.whole[:500], line.number))


def _key(pattern: line_patterns.Pattern, fields: dict[str, Any]) -> tuple[Any, ...]:
    if pattern.table == "xid":
        recovery = fields.get("text") if fields["code"] == "154" else None  # its text is the event
        return "xid", fields["kind"], fields["code"], fields.get("pci"), fields.get("fatal"), recovery
    return pattern.name, *sorted((name, value) for name, value in fields.items() if value is not None)


def _row(pattern: line_patterns.Pattern, fields: dict[str, Any], n: int, line: Line, seen: Seen) -> Xid | Message:
    if pattern.table == "xid":
        return Xid(
            None, fields["kind"], fields.get("pci"), int(fields["code"]), _int(fields.get("pid")), fields.get("process"),
            fields.get("text") or "", fields.get("fatal"), _int(fields.get("previous")), n, line.stamp,
            seen,
        )  # fmt: skip
    named = json.dumps({name: value for name, value in fields.items() if value is not None})
    return Message(
        pattern.name, None, None, None, None, "kernel", line.text[:500], named, n, line.number, line.stamp,
        seen,
    )  # fmt: skip


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _stuck(root: Root, rows: Iterable[Any]) -> Iterator[StuckTask]:
    """Blocked processes of the log, and whether they still are."""
    latest: dict[tuple[int, str], StuckTask] = {}
    for row in rows:
        if isinstance(row, Message) and row.kind == "task-blocked":
            told = json.loads(row.fields)
            pid, name = int(told["blocked"]), str(told["process"])
            latest[pid, name] = StuckTask(None, pid, name, int(told["seconds"]), None, row.stamp, row.ref)
    for (pid, name), task in latest.items():
        text = root.text(f"/proc/{pid}/stat")
        state = re.match(r"\d+ \((.*)\) (\S)", text or "", re.DOTALL)
        still = None
        if state is not None:
            still = int(state[1][:15] == name[:15] and state[2] == "D")
        elif root.live and text is None:
            still = 0
        yield task._replace(still=still)
