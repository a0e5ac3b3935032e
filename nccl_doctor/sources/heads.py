"""The head of an NCCL line: `[stamp] HOST:PID:TID [DEV] FILE:LINE (FUNC) NCCL LEVEL ` in all its eras (NCCL src/debug.cc).

INFO and CALL lines have no FILE; DIAG lines (2.31) have neither TID nor DEV; a WARN of a plug-in names a C++ signature where
others name a file; pasted logs lose the host. The text is read from the right, because a host name may hold anything.
"""

import re
from typing import NamedTuple

from nccl_doctor.sources import prefixes

TOKEN = " NCCL "
LEVELS = ("INFO", "WARN", "ATTN", "DIAG", "TRACE", "CALL", "ABORT", "VERSION")
INNER = re.compile(
    r"(?<!\S)(?:[^\s:]+:\d+:\d+ \[-?\d+\] |[^\s:]+:\d+:\d+ \[-?\d+\] [^\n]{1,160}? )NCCL (?:INFO|WARN|ATTN|TRACE) "
)
GLUED = re.compile(r"[^\s:]+:\d+:\d+ \[-?\d+\] (?:[\w/.\-]+:\d+ (?:\(\w+\) )?)?NCCL (?:INFO|WARN|ATTN|TRACE) ")
_HEAD = re.compile(r"(?P<host>\S*?):(?P<pid>\d+):(?P<tid>\d+) \[(?P<dev>-?\d+)\](?: (?P<where>.*))?$")
_DIAG = re.compile(r"(?P<host>\S+?):(?P<pid>\d+)(?::(?P<tid>\d+))?$")
_BARE = re.compile(r"(?:^|\s)\[(?P<dev>-?\d+)\](?: (?P<where>\S.*))?$")
_FORK = re.compile(r"\[(?P<host>[^\]\s]+)\]\[(?P<pid>\d+):(?P<tid>\d+)\]\[(?P<dev>-?\d+)\](?:\[(?P<where>[^\]]+)\])?$")
_WHERE = re.compile(r"(?:\d+\.\d+ )?(?P<source>.*?):\d+(?: \((?P<function>[^()]+)\))?$")


class Head(NamedTuple):
    """Who wrote an NCCL line."""

    host: str | None
    pid: int | None
    tid: int | None
    dev: int | None  # CUDA ordinal of the calling thread; garbage where CUDA is not up
    source: str | None  # source file, without line number
    label: prefixes.Label
    clean: bool  # the host stands at the start of the line or behind a known prefix, so no torn text hangs on it


class Record(NamedTuple):
    """An NCCL line taken apart."""

    head: Head
    level: str
    body: str


NO_LABEL = prefixes.split("")[0]


def parse(left: str) -> Head:
    """The head from all that stands before ` NCCL LEVEL`."""
    label, text = prefixes.split(left + TOKEN)
    text = text.removesuffix(TOKEN).removesuffix(TOKEN.rstrip())
    match = _HEAD.search(text) or _FORK.search(text)
    if match is not None:
        source = None
        if match["where"]:
            where = _WHERE.match(match["where"].strip())
            source = where["source"] if where else match["where"].strip()
        host = match["host"].lstrip("<[(\"'*│> ") or None
        return Head(
            host,
            int(match["pid"]),
            int(match["tid"]),
            int(match["dev"]),
            source,
            label,
            not text[: match.start()].strip(),
        )
    match = _DIAG.search(text)
    if match is not None:
        tid = int(match["tid"]) if match["tid"] else None
        return Head(match["host"], int(match["pid"]), tid, None, None, label, True)
    match = _BARE.search(text)
    if match is not None:
        where = _WHERE.match((match["where"] or "").strip())
        return Head(label.host, None, None, int(match["dev"]), where["source"] if where else None, label, True)
    where = _WHERE.match(text.split(" ")[-1])
    return Head(label.host, None, None, None, where["source"] if where else None, label, True)


def level_of(rest: str) -> tuple[str, str] | None:
    """(level, body) of the text behind ` NCCL `, or None where it is prose."""
    level, _, body = rest.partition(" ")
    return (level, body) if level in LEVELS else None
