"""Splits the launcher prefixes off a line: their fields, and the line without them.

Prefixes stack, so `split` takes them off one after another until none of `prefix_rules.RULES` matches. The head of an
NCCL line (``HOST:PID:TID [DEV] ``) is never touched: its host name may be only digits and may hold dashes, dots, colons.
Expressions are matched at a position, so the time grows with the length of the line only.
"""

import json
import re
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.timestamps import asctime_seconds, iso_seconds
from nccl_doctor.inputs.prefix_checks import HEAD, is_host, is_service, kind_of
from nccl_doctor.inputs.prefix_rules import RULES, Rule


class Label(NamedTuple):
    """What the prefixes of one line said; when several say the same thing the innermost one counts."""

    rank: int | None = None  # rank in the job, as the launcher or PyTorch printed it
    local_rank: int | None = None  # torchrun's rank on the node
    host: str | None = None  # host, pod, container or service name, or the IP that Ray prints
    pid: int | None = None  # Ray, journald, Open MPI with detailed tags
    stamp: float | None = None  # seconds since the epoch (no zone: read as UTC); None for a time without a date
    repeat: int = 1  # how many equal lines Ray folded into this one


NOTHING = Label()

_head_at = compiled(HEAD).match
_plain_head = compiled(r"[^\s:\[\]<>()|]{1,253}:\d{1,10}:\d{1,10} (?:\[-?\d{1,10}\] |NCCL )").match
_word_at = compiled(r"[^\s:|\[(<]{1,253}").match
_blank_at = compiled(r"\s+").match


def _by_lead() -> dict[str, tuple[Rule, ...]]:
    table: dict[str, list[Rule]] = {}
    for rule in RULES:
        table.setdefault(rule.lead, []).append(rule)
    return {lead: tuple(rules) for lead, rules in table.items()}


_RULES = _by_lead()
_BY_WORD = (is_host, is_service)  # checks for which the digits of a word matter

_NAMES_OF_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES_OF_MONTHS, 1)}
_REPEATED = compiled(
    r"\[repeated (\d{1,9})x across cluster\](?: \(Ray dedup[^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200})?\))?\s*$"
)


class Found(NamedTuple):
    """Where the prefixes of a line have their fields."""

    fields: tuple[tuple[str, int, int], ...]  # name of the group, and where its value begins and ends
    end: int  # where the text begins
    folded: bool  # by Ray
    xml: bool
    words: tuple[
        tuple[int, int], ...
    ] = ()  # where words begin and end whose own digits decided whether they are a prefix


NAMES = frozenset(("rank", "weak", "local", "host", "pid"))  # fields that say who wrote a line; the others say when


def seconds(key: str, value: str) -> float | None:
    """The time that a field of a prefix says."""
    return iso_seconds(value) if key == "stamp" else asctime_seconds(value)


class _Label:
    """The label while it is being collected."""

    __slots__ = ("host", "local_rank", "pid", "rank", "repeat", "stamp", "weak")

    def __init__(self) -> None:
        self.rank: int | None = None
        self.weak: int | None = None
        self.local_rank: int | None = None
        self.host: str | None = None
        self.pid: int | None = None
        self.stamp: float | None = None
        self.repeat = 1

    def add(self, key: str, value: str) -> None:
        if key == "rank":
            self.rank = int(value)
        elif key == "weak":
            self.weak = int(value) if self.weak is None else self.weak  # the launcher's prefix is the outermost
        elif key == "local":
            self.local_rank = int(value)
        elif key == "host":
            self.host = value
        elif key == "pid":
            self.pid = int(value)
        else:
            self.stamp = seconds(key, value)

    def done(self) -> Label:
        rank = self.rank
        if rank is None and self.local_rank is None:  # under torchrun, srun's task number counts nodes
            rank = self.weak
        return Label(rank, self.local_rank, self.host, self.pid, self.stamp, self.repeat)


def _docker(text: str) -> tuple[str, str | None] | None:
    """Message and time of a line of Docker's json-file driver."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("log"), str):
        return None
    if not record.keys() & {"stream", "time"}:
        return None
    time = record.get("time")
    return record["log"].rstrip("\r\n"), time if isinstance(time, str) else None


def opened(line: str) -> str:
    """The message of a line of Docker's json-file driver behind its time, as `docker logs -t` shows it; else the line."""
    found = _docker(line) if line.startswith("{") and '"log"' in line else None
    return line if found is None else f"{found[1]} {found[0]}" if found[1] else found[0]


def _lead(line: str, start: int) -> str:
    """Which rules can match at `start`."""
    first = line[start]
    if not (first.isalnum() or first == "_"):
        return first
    if first.isdecimal():
        return "0"
    word = _word_at(line, start)
    end = word.end() if word else start
    return "a" + line[end : end + 1]


def split(line: str, hosts: frozenset[str] = frozenset(), *, timeless: bool = False) -> tuple[Label, str]:
    """Take the prefixes off a line: (their fields, the text that remains). Never fails.

    `line` has gone through `clean`. `hosts` are names known to be hosts of the job (from NCCL headers, from the command
    line): `gpu-a: text` is taken for a host prefix only if `gpu-a` is one of them, while `node01: text` needs no such
    help because the word has letters and digits and is not a device, counter, exception or file name. Indentation of the
    text is kept, except in front of an NCCL header. `timeless` leaves out the time stamp, which takes longest.
    """
    if _plain_head(line) and line[4:5] != "-":
        return NOTHING, line
    found = _found(line, hosts)
    label: _Label | None = None
    folded, xml = found.folded, found.xml
    while True:
        if found.fields:
            label = label or _Label()
            for key, start, stop in found.fields:
                if not timeless or key in NAMES:
                    label.add(key, line[start:stop])
        rest = line[found.end :].lstrip() if '"log"' in line else ""
        docker = _docker(rest) if rest.startswith("{") else None
        if docker is None:
            break
        label = label or _Label()
        line = clean(docker[0])
        label.stamp = iso_seconds(docker[1]) if docker[1] is not None else label.stamp
        found = _found(line, hosts)
        folded, xml = folded or found.folded, xml or found.xml
    text = closed(line[found.end :]) if xml else line[found.end :]
    if not folded:
        return NOTHING if label is None else label.done(), text
    label = label or _Label()
    text, label.repeat = unfold(text)
    return label.done(), text


ZEROS = bytes.maketrans(b"123456789", b"000000000")
_MEMO = 4_096  # shapes remembered
_MEMO_LENGTH = 1_000  # longer lines do not come twice
_found_in: dict[
    bytes | tuple[bytes | tuple[bool, bool], ...], Found
] = {}  # by the line without numbers, and by the kinds of the words that decided


def _found(line: str, hosts: frozenset[str]) -> Found:
    """The prefixes of a line. Lines that differ only in digits have theirs in the same places.

    That holds because no rule asks which digit it is (`tests/inputs/test_prefixes.py`), but for words that may be hosts:
    `ext4: ` is none. The kinds of such words of lines of this shape are part of the key.
    """
    if hosts or len(line) > _MEMO_LENGTH or not line.isascii():
        return _find(line, hosts)
    shape = line.encode().translate(ZEROS)
    known = _found_in.get(shape)
    if known is not None:
        found = (
            _found_in.get((shape, *[kind_of(line[start:end]) for start, end in known.words])) if known.words else known
        )
        if found is not None:
            return found
    if len(_found_in) > _MEMO:
        _found_in.clear()
        known = None
    found = _find(line, hosts)
    words = dict.fromkeys((*(known.words if known is not None else ()), *found.words))
    _found_in[shape] = found._replace(words=tuple(words))
    if words:
        _found_in[(shape, *[kind_of(line[start:end]) for start, end in words])] = found
    return found


def layout(line: str) -> Found | None:
    """Where the prefixes are of all lines that differ from this one in digits only, and have the same words; None where they may differ."""
    if '"log"' in line or _COLOUR.search(line) or clean(line) != line:
        return None
    found = _found(line, frozenset())
    return None if found.folded or found.xml else found


def _find(line: str, hosts: frozenset[str]) -> Found:
    """The prefixes of a line; they end in front of a record of Docker's json-file driver, which `split` opens."""
    fields: list[tuple[str, int, int]] = []
    words: list[tuple[int, int]] = []
    start = 0
    folded = xml = False
    while start < len(line):
        begin = _after_blanks(line, start)
        if begin == len(line):
            break
        lead = _lead(line, begin)
        rule, found, decided = _first_match(line, start, begin, lead, hosts)
        words += decided
        if rule is None or found is None:
            if begin > start and _head_at(line, begin):
                start = begin
            break
        fields += [(key, *found.span(key)) for key in found.re.groupindex if found[key] is not None]
        start = found.end()
        folded = folded or rule.lead == "("
        xml = xml or rule.name == "xml"
    return Found(tuple(fields), start, folded, xml, tuple(words))


def _after_blanks(line: str, start: int) -> int:
    """The position of the next character that is not a blank."""
    if not line[start].isspace():
        return start
    blank = _blank_at(line, start)
    return blank.end() if blank else start


def _first_match(
    line: str, start: int, begin: int, lead: str, hosts: frozenset[str]
) -> tuple[Rule | None, re.Match[str] | None, list[tuple[int, int]]]:
    """The first prefix rule that matches at `begin`, behind the blanks from `start` on, and the words that were asked for."""
    words = []
    for rule in _RULES.get(lead, ()):
        found = rule.regex.match(line, begin)
        if found and rule.accept in _BY_WORD and begin == start and any(map(str.isdecimal, found["host"])):
            words.append(found.span("host"))
        if found and (rule.accept is None or rule.accept(found, begin - start, hosts)):
            return rule, found, words
    return None, None, words


def task_number(line: str) -> int | None:
    """The number that srun or MPICH puts in front of the line of a task; it counts nodes where torchrun labels the line too."""
    numbers = [int(line[begin:end]) for name, begin, end in _found(line, frozenset()).fields if name == "weak"]
    return numbers[0] if numbers else None


class Peeled(NamedTuple):
    """The outermost prefix of a line."""

    label: Label
    end: int  # where the text begins; 0 for a line without a prefix
    words: tuple[tuple[int, int], ...]  # where words begin and end that name the writer, or whose digits decided


def peel(line: str) -> Peeled:
    """Find the outermost prefix of a line."""
    if not line or line.isspace():
        return Peeled(NOTHING, 0, ())
    begin = _after_blanks(line, 0)
    rule, found, decided = _first_match(line, 0, begin, _lead(line, begin), frozenset())
    if rule is None or found is None:
        return Peeled(NOTHING, 0, tuple(decided))
    label = _Label()
    names = []
    for key, value in found.groupdict().items():
        if value is not None:
            label.add(key, value)
            names += [found.span(key)] if key in NAMES else []
    return Peeled(label.done(), found.end(), (*dict.fromkeys((*names, *decided)),))


CLOSING = ("</stdout>", "</stderr>")  # tags of Open MPI's XML


def closed(text: str) -> str:
    """A text out of Open MPI's XML, without the closing tag and with its characters as they were."""
    from html import unescape  # its tables are slow to import

    return unescape(text.removesuffix("</stdout>").removesuffix("</stderr>")).rstrip("\n")


def unfold(text: str) -> tuple[str, int]:
    """A text without Ray's `[repeated 14x across cluster]`, and how many lines it replaces."""
    at = text.rfind("[repeated ")
    found = _REPEATED.match(text, at) if at >= 0 else None
    return (text[:at].rstrip(), int(found[1])) if found else (text, 1)


_CONTROL = compiled(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[ -/]{0,4}[0-~]"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]"
)
# Colours whose escape character was lost when the log was copied. The text before must not complete another escape sequence.
_COLOUR_REST = compiled(
    r"\[(?<!\[\[)(?<!\[\d\[)(?<!\[\d\d\[)(?<!;\[)(?<!;\d\[)(?<!;\d\d\[)"
    r"(?:0?[0-47]|22|[349][0-79])(?:;\d{1,2})?m(?!\])"
)
_COLOUR = compiled(r"\[[\d;]+m")
_FRAME = "".join(chr(code) for code in range(0x2500, 0x2580))
_FRONT = compiled(rf"(?:>(?: |$)|[{_FRAME}]+ ?|\*\*(?=[A-Za-z0-9\[]))+")
_OPENERS = frozenset(_FRAME + ">*")


def clean(raw: str) -> str:
    """A line without escape sequences, control characters (tabs stay), frames of terminal boxes, quote marks, and
    the angle brackets that a web page wrote as entities.

    Carriage returns inside the line are the caller's business: cut the line at them first.
    """
    text = raw
    if not (text.isascii() and text.isprintable()):
        text = _CONTROL.sub("", text.rstrip("\r\n")).replace("\xa0", " ")
    if "&" in text:
        text = text.replace("&lt;", "<").replace("&gt;", ">")
    if "m" in text and "[" in text:
        text = _COLOUR_REST.sub("", text)
    if text and text[-1] in _FRAME:
        text = text.rstrip(_FRAME + " \t")
    if text[:1] in _OPENERS and (front := _FRONT.match(text)):
        if text.startswith("**") and text.endswith("**"):
            text = text[:-2].rstrip(_FRAME)
        text = text[front.end() :]
    return text
