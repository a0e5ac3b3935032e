"""A format for lnav (https://docs.lnav.org/en/latest/formats.html), made from the line patterns of NCCL.

lnav needs a time stamp on every line: NCCL_DEBUG_TIMESTAMP_LEVELS (2.26), or one of `kubectl logs --timestamps` and the like.
`;SELECT * FROM nccl_net_init` and so on show the parts of a line, one table for each pattern.
"""

import json
import re
from typing import Any

from nccl_doctor.log import line_patterns
from nccl_doctor.log.nccl_header import LEVELS

NAME = "nccl_log"
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_HEAD = (
    r"(?<host>[^\s:\[\]]+):(?<pid>\d+)(?::(?<tid>\d+))?(?: \[(?<dev>-?\d+)\])?"
    rf"(?: (?<source>\S+:\d+)(?: \((?<function>[^()]+)\))?)? NCCL (?<level>{'|'.join(LEVELS)})(?<body>[^\n]*(?:\n[^\n]*)*)$"
)
_PATTERNS = {
    "of_nccl": rf"^(?:\S+ )??\[(?<timestamp>{_STAMP})\] (?:\S+ )??{_HEAD}",
    "before_it": rf"^(?<timestamp>{_STAMP}) (?:\S+ )??{_HEAD}",
}
_SAMPLES = (
    ("[2026-05-07 12:00:01] node01:4242:4301 [0] NCCL INFO Using network IB", "info"),
    ("0: [2026-05-07 12:00:01] n1:42:43 [0] misc/socket.cc:484 (socketConnect) NCCL WARN Connect to 10.1.0.5<40001> failed", "error"),
    ("2026-05-07T12:00:01.123456789Z node01:4242:4301 [3] NCCL INFO comm 0x55 rank 3 nranks 8 - Init COMPLETE", "info"),
)  # fmt: skip
# Columns that every table has; a part of the same name gets an underscore.
_COLUMNS = {
    "host",
    "pid",
    "tid",
    "dev",
    "source",
    "function",
    "level",
    "timestamp",
    "body",
    "log_line",
    "log_time",
    "log_level",
}


def text() -> str:
    """The file."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def document() -> dict[str, Any]:
    """The format: the header of a line as columns, WARN as errors, and a table for each pattern that has parts."""
    return {
        "$schema": "https://lnav.org/schemas/format-v1.schema.json",
        NAME: {
            "title": "NCCL",
            "description": "Lines of NCCL, RCCL and their plug-ins with a time stamp",
            "regex": {name: {"pattern": pattern} for name, pattern in _PATTERNS.items()},
            "level-field": "level",
            "level": {"error": "^(?:WARN|ABORT)$", "warning": "^ATTN$", "debug": "^CALL$", "trace": "^TRACE$"},
            "value": {
                "host": {"kind": "string", "identifier": True},
                "pid": {"kind": "integer", "identifier": True, "foreign-key": True},
                "tid": {"kind": "integer", "identifier": True, "foreign-key": True},
                "dev": {"kind": "integer", "identifier": True, "foreign-key": True},
                "source": {"kind": "string", "identifier": True},
                "function": {"kind": "string", "identifier": True},
            },
            "sample": [{"line": line, "level": level} for line, level in _SAMPLES],
            "search-table": {name: {"pattern": pattern, "description": means} for name, pattern, means in tables()},
        },
    }


def tables() -> list[tuple[str, str, str]]:
    """Name, pattern and meaning of a table for each pattern of NCCL's own lines that names parts."""
    found = []
    for one in line_patterns.load():
        groups = re.findall(r"\(\?P<(\w+)>", one.regex)
        if one.where == "nccl" and groups:
            name = f"nccl_{re.sub(r'[^a-z0-9]', '_', one.name.removeprefix('nccl-'))}"
            body = re.sub(r"\(\?P[<=](\w+)[>)]", _renamed, one.regex)
            found.append((name, rf"NCCL (?:{one.level or '|'.join(LEVELS)}) +(?:{body})", one.means))
    return found


def _renamed(group: re.Match[str]) -> str:
    return group[0].replace(group[1], f"{group[1]}_") if group[1] in _COLUMNS else group[0]
