"""Records of the kernel's log: /dev/kmsg, `dmesg -r`, `journalctl -o json`, a file.

Only /dev/kmsg and the journal keep records apart. What prints lines breaks a record at each newline, and a file name with a
newline then looks like a message of its own; such a line has the time of the line before it, to the microsecond.

    /dev/kmsg (Documentation/ABI/testing/dev-kmsg)     4,1339,5140900,-,caller=T811;mlx5_core 0000:5d:00.0: Port module event
                                                        SUBSYSTEM=pci
                                                        DEVICE=+pci:0000:5d:00.0
    dmesg -r                                           <4>[    5.140900] mlx5_core 0000:5d:00.0: Port module event
    journalctl -k -b -o json                           {"SYSLOG_FACILITY": "0", "_SOURCE_MONOTONIC_TIMESTAMP": "5140900", …}
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from nccl_doctor.common.timestamps import asctime_seconds, iso_seconds

KERNEL = 0  # facility; the kernel gives 1 (user) to what programs write to /dev/kmsg
_KMSG = re.compile(r"(?P<priority>\d{1,6}),\d{1,20},(?P<usec>\d{1,18}),(?P<flags>[^,;\n]{0,8})[^;\n]{0,80};")
_STAMPS = re.compile(
    r"(?:<(?P<raw>\d{1,4})>)?\[ *(?P<seconds>\d{1,12}\.\d{1,9})\](?: ?\[ *[TC]\d+\])? ?"
    r"|(?:<\d+>)?\[(?P<words>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?"
    r"|(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d))\s(?:\S+ kernel: )?"
)


class Record(NamedTuple):
    """One message of the log without its header."""

    number: int  # of its line
    stamp: float | None  # seconds since the epoch
    text: str
    shown: str  # as `dmesg` shows it
    facility: int | None = None  # of syslog; None where the source does not say
    device: str | None = None  # DEVICE of its dictionary
    whole: bool = True  # False where the line may be the rest of the record before it


def parse(text: str, boot: float | None) -> list[Record]:
    """Records of any of the sources; `boot` is the time of the boot; without it, times in seconds since boot are unknown."""
    if _KMSG.match(text):
        return list(parse_kmsg(text, boot))
    if text.startswith('{"'):
        return list(parse_journal(text, boot))
    return list(parse_lines(text, boot))


def parse_kmsg(text: str, boot: float | None) -> Iterator[Record]:
    """Records of /dev/kmsg; a line that starts with a blank belongs to the dictionary of the record before it."""
    pending: Record | None = None
    for number, line in enumerate(text.split("\n"), 1):
        header = _KMSG.match(line)
        if header is None:
            if pending is not None and line.startswith(" DEVICE="):
                pending = pending._replace(device=line.removeprefix(" DEVICE="))
            continue
        if pending is not None:
            yield pending
        usec = int(header["usec"])
        message = line[header.end() :]
        pending = Record(
            number, boot + usec * 1e-6 if boot is not None else None, message, f"[{usec * 1e-6:.6f}] {message}",
            int(header["priority"]) >> 3, None, not header["flags"].startswith("+"),
        )  # fmt: skip
    if pending is not None:
        yield pending


def parse_journal(text: str, boot: float | None) -> Iterator[Record]:
    """Entries of `journalctl -o json`, one a line; a message with other than printable characters is a list of bytes."""
    for number, line in enumerate(text.splitlines(), 1):
        entry: Any = None
        with suppress(ValueError):
            entry = json.loads(line)
        if not isinstance(entry, dict):
            continue
        message = entry.get("MESSAGE")
        if isinstance(message, list):
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
                "utf-8", "replace"
            )
        if not isinstance(message, str):
            continue
        facility, usec = (_digits(entry.get(key)) for key in ("SYSLOG_FACILITY", "_SOURCE_MONOTONIC_TIMESTAMP"))
        device = entry.get("_KERNEL_DEVICE")
        message = message.replace("\n", r"\x0a")
        yield Record(
            number, boot + usec * 1e-6 if boot is not None and usec is not None else None, message,
            f"[{usec * 1e-6:.6f}] {message}" if usec is not None else message,
            facility, device if isinstance(device, str) else None,
        )  # fmt: skip


def _digits(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19 else None


def parse_lines(text: str, boot: float | None) -> Iterator[Record]:
    """Lines of dmesg, of a journal or of a file."""
    last: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = _STAMPS.match(line)
        if header is None:
            yield Record(number, None, line, line, whole=last is None)
            continue
        fine = header["seconds"] or (header["iso"] if re.search(r"[.,]\d", header["iso"] or "") else None)
        facility = int(header["raw"]) >> 3 if header["raw"] else None
        yield Record(
            number, _stamp(header, boot), line[header.end() :], line, facility, None, fine is None or fine != last
        )  # fmt: skip
        last = fine or ""


def _stamp(header: re.Match[str], boot: float | None) -> float | None:
    if header["seconds"] is not None:
        return boot + float(header["seconds"]) if boot is not None else None
    if header["words"] is not None:
        return asctime_seconds(header["words"], local=True)
    return iso_seconds(header["iso"] or "", local=True)
