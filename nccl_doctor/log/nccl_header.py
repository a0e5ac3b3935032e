"""The header of an NCCL line: `[stamp] HOST:PID:TID [DEV] FILE:LINE (FUNC) NCCL LEVEL ` of all versions (NCCL src/debug.cc).

INFO and CALL lines have no FILE; DIAG lines (2.31) have neither TID nor DEV; a WARN of a plug-in names a C++ signature where
others name a file; pasted logs lose the host. The text is read from the right, because a host name may hold anything.
"""

from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs import prefixes

TOKEN = "NCCL "
LEVELS = ("INFO", "WARN", "ATTN", "DIAG", "TRACE", "CALL", "ABORT", "VERSION")
_LEVEL = max(map(len, LEVELS)) + 2  # characters in which a level and the blank behind it end
SHOWN = ("WARN", "ATTN")  # levels of which every line is a fact, known or not
_TAG = r"(?:\[[\w,.:@-]{1,200}\])?<std(?:out|err|diag)>:"
_GLUED = compiled(
    rf"(?:{_TAG} ?)?[^\s:<>]{{1,253}}:\d{{1,10}}:\d{{1,10}} \[-?\d{{1,10}}\] (?:[\w/.\-]{{1,200}}:\d{{1,6}} (?:\(\w{{1,100}}\) )?)?$"
)
_GLUED_LEVELS = ("INFO ", "WARN ", "ATTN ", "TRACE ")
_HEAD = compiled(
    r"(?P<host>\S{0,253}?):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[(?P<dev>-?\d{1,10})\](?: (?P<where>.{0,1000}))?$"
)
_HIDDEN = compiled(
    r"(?P<host>[^\s:]{1,253}):(?:[Xx*#]{1,20}|<\w{1,20}>)(?::(?:[Xx*#]{1,20}|<\w{1,20}>|\d{1,10}))?"
    r" \[(?P<dev>-?\d{1,10})\](?: (?P<where>.{0,1000}))?$"
)
_DIAG = compiled(r"(?P<host>\S{1,200}?):(?P<pid>\d{1,10})(?::(?P<tid>\d{1,10}))?$")
_PLACE = compiled(
    r"[()/*,]|::|^nccl(?:[A-Z]|_(?:net|ofi)_)\w{0,100}$|^[a-z]{1,40}(?:_[a-z0-9]{1,40})+$"
)  # a function or a path in the place of a host
_BARE = compiled(r"(?:^|\s)\[(?P<dev>-?\d+)\](?: (?P<where>\S.*))?$")
_FORK = compiled(
    r"\[(?P<host>[^\]\s]{1,200})\]\[(?P<pid>\d{1,20}):(?P<tid>\d{1,20})\]\[(?P<dev>-?\d{1,20})\](?:\[(?P<where>[^\]]{1,200})\])?$"
)
_WHERE = compiled(r"(?:\d+\.\d+ )?(?P<source>.*?):(?P<line>\d*)(?: \([^()]+\))?$")
_FILE = compiled(r"(?P<where>[\w./+-]{0,200}\w\.(?:cc|c|cpp|cxx|cu|cuh|h|hip|hpp|py):\d{0,20}(?: \([^()]{1,200}\))?)$")
_MID = compiled(_TAG)
_LONGEST = 1_000  # characters in which the head ends
_NEAR = 300  # characters before `NCCL` that tell whether a record begins there


class NcclHeader(NamedTuple):
    """Who wrote an NCCL line."""

    host: str | None
    pid: int | None
    tid: int | None
    dev: int | None  # CUDA ordinal of the calling thread; garbage where CUDA is not up
    source: str | None  # source file, without line number
    label: prefixes.Label
    clean: bool  # the host is at the start of the line or behind a known prefix, so it cannot begin with torn text
    line: int | None = None  # in the source file: two WARNs with the same words from two places stay two


class Record(NamedTuple):
    """An NCCL line taken apart."""

    head: NcclHeader
    level: str
    body: str


NO_LABEL = prefixes.split("")[0]


def parse_header(left: str) -> NcclHeader:
    """The header in the text before `NCCL LEVEL `.

    Source: ncclDebugLog in src/debug.cc of NCCL 2.0 to 2.31::

        node01:4242:4301 [0] NCCL INFO Using network IB
        [2026-05-07 12:00:01] node01:4242:4301 [0] misc/socket.cc:484 (socketConnect) NCCL WARN Connect to 10.1.0.5<40001> failed
    """
    label, text = prefixes.split(left + TOKEN)
    if "<std" in text and (tags := list(_MID.finditer(text))):  # a launcher glued a line to the one before
        inner, text = prefixes.split(text[tags[-1].start() :])
        parts = {name: value for name, value in inner._asdict().items() if value is not None}
        label = label._replace(**parts)
    text = text.removesuffix(TOKEN.rstrip()).removesuffix(TOKEN).rstrip()[-_LONGEST:]
    match = _HEAD.search(text) or _FORK.search(text)
    if match is not None:
        host = match["host"].lstrip("<[(\"'*│>: ") or None
        clean = not text[: match.start()].strip()
        pid, tid, dev = (int(match[name]) for name in ("pid", "tid", "dev"))
        source, line = _source(match["where"])
        return NcclHeader(host, pid, tid, dev, source, label, clean, line)
    match = _DIAG.search(text)
    if match is not None and not _FILE.search(text) and not _PLACE.search(match["host"]):
        return NcclHeader(match["host"], int(match["pid"]), _int(match["tid"]), None, None, label, True)
    match = _HIDDEN.search(text) or _BARE.search(text) or _FILE.search(text)
    parts = match.groupdict() if match is not None else {}
    source, line = _source(parts.get("where"))
    return NcclHeader(parts.get("host") or label.host, None, None, _int(parts.get("dev")), source, label, True, line)


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _source(where: str | None) -> tuple[str | None, int | None]:
    """Source file and line of `misc/socket.cc:71 (socketProgress)`; a plug-in's signature stays as it is."""
    if not where:
        return None, None
    where = where.strip()
    match = _WHERE.match(where)
    return (match["source"].lstrip("_"), int(match["line"] or 0) or None) if match else (where, None)


def can_precede_record(left: str) -> bool:
    """Whether `NCCL` begins a record after this text: not inside a word, nor in quotes."""
    return (
        not left or left[-1].isspace() or prefixes.clean(left[-_NEAR:])[-1:] in ("", "]", ">", ":", "|", "*", " ", "\t")
    )


def split_record(line: str) -> tuple[str, str, str] | None:
    """(left, level, body) of a line that holds a record, else None; of several records in a line the first."""
    at = line.find(TOKEN)
    while at >= 0:
        start = at + len(TOKEN)
        level = line[start : start + _LEVEL].partition(" ")[0]
        if level in LEVELS and can_precede_record(line[max(at - _NEAR, 0) : at]):
            return line[:at], level, line[start + len(level) + 1 :]
        at = line.find(TOKEN, start)
    return None


def glued_records(line: str) -> list[str]:
    """The records of a line, cut in front of each header but the first."""
    cuts = [0]
    before = line.find(TOKEN)
    at = line.find(TOKEN, before + 1) if before >= 0 else -1
    while at >= 0:
        if line.startswith(_GLUED_LEVELS, at + len(TOKEN)):
            start = max(before + len(TOKEN), at - 2 * _NEAR)
            if head := _GLUED.search(line[start:at]):
                cuts.append(start + head.start())
        before, at = at, line.find(TOKEN, at + 1)
    return [line[start:stop] for start, stop in zip(cuts, [*cuts[1:], len(line)], strict=True)]
