"""Output of many hosts that a tool collected under headings or behind tags, read as lines that each name their host.

`clush -b`, `dshbak`, `ansible -m command`, a loop in a shell, `parallel --tag`, Fabric, and pdsh where hosts look like devices::

    ----------------                        node03 | CHANGED | rc=0 >>
    node[01-02,04]                          == node03 ==
    ----------------                        node03\tuptime …

Each line is given behind `[host/NAME] `. What several hosts printed alike is given
once for each of them, with the numbers of the same lines.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby

from nccl_doctor.common import budgets
from nccl_doctor.common.expressions import compiled
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.exports.host_names import expand, is_name, same_stem
from nccl_doctor.inputs.exports.rows import Cut, Run
from nccl_doctor.inputs.prefixes import peel
from nccl_doctor.inputs.streams import Readable

_RULER = compiled(rb"-{15,16}\s*")  # clush draws 15, dshbak 16
_LISTED = compiled(rb"([\w.,\[\]-]{1,8000})(?: \(\d{1,6}\))?\s*")
_ANSIBLE = compiled(
    rb"([\w.-]{1,253}) \| (?:(?:CHANGED|SUCCESS)(?: \| rc=0 (?:\(stdout\) )?>>| => \{)|(FAILED|UNREACHABLE)\b.{0,200})\s*"
)
_MARKED = compiled(
    rb"(?:[=#*+~-]{2,40}|>{2,10}|\[) ?(?:(?:[Hh]ost|[Nn]ode|HOST|NODE|on)\b:? ?)?([\w.-]{1,253}?):? ?(?:[=#*+~-]{2,40}|<{2,10}|\])?:?\s*"
)
# What the tools themselves print before the first heading.
_TOOL = compiled(
    rb"\s*$|\[WARNING\]|see detailed information|clush: |Warning: Permanently added|\$ |#? ?for \w+ in |pdsh@"
)
_CLUSH = compiled(rb"(?:clush: \d{1,6}/\d{1,6}[ \r]*)+(?=-{15})")  # its progress, where standard error came too
_TAGGED = compiled(rb"([A-Za-z0-9][\w.-]{0,252})(?:\t|: |:\s*$)")
# `[node01] out: `, `node01 out: ` and `[node01] ` of Fabric, parallel-ssh and their like
_FANNED = compiled(
    rb"(?:\[([A-Za-z0-9][\w.-]{0,252})\](?: (?:out|err):)?|([A-Za-z0-9][\w.-]{0,252}) (?:out|err):)(?: |\s*$)"
)
_TASK = compiled(rb" {0,5}(\d{1,6}):(?: |\s*$)")
# A capture of tasks of srun; of a job the number is the rank.
_CAPTURE = compiled(
    rb"^ {0,5}\d{1,6}: (?:CA '|hca_id:|Infiniband device '|# Port (?:extended )?counters|NIC statistics:|Filesystem +|max locked memory"
    rb"|procs -{5,}|Linux \d[^\n]{1,100} CPU\)|\s{0,20}total {2,}used {2,}free)",
    re.MULTILINE,
)
_JOB = compiled(rb"NCCL (?:INFO|WARN)|(?i:\b(?:epoch|loss|traceback)\b)")
# The first characters of all headings.
_CANDIDATE = compiled(
    rb"^(?:-{15}|[=#*+~>-]{2}|\[(?:host|node|HOST|NODE)?[ :]?[A-Za-z]|[A-Za-z0-9][\w.-]{0,252} \| [CSFU][A-Z])",
    re.MULTILINE,
)
_BLOCK = 1 << 20
_HEAD = 1 << 16  # bytes by which the tags are judged
_SHARE = 0.9  # of the lines that must have a tag
_LEAD = 40  # lines in front of the first heading
_RUN = 2.0  # lines that a host of pdsh has one after the other, on average
_ALIKE = 1 << 20  # bytes of one section that are given once for each of its hosts
_REPEATED = 64 << 20  # bytes of all of them


def recognise(head: bytes) -> str | None:
    """How the first bytes of a file name the hosts of its lines: `headings` or `tags`; None for any other file."""
    if _has_headings(head):
        return "headings"
    return "tags" if _tag(head) is not None else None


def _has_headings(head: bytes) -> bool:
    lines = _without_progress(head).split(b"\n")
    first = next((at for at, line in enumerate(lines[:_LEAD]) if not _TOOL.match(line)), None)
    if first is None:
        return False
    if len(lines) > first + 2 and _RULER.fullmatch(lines[first]) and _RULER.fullmatch(lines[first + 2]):
        return bool(_listed(lines[first + 1]))
    if _ansible(lines[first]) is not None:
        return True
    if _marked(lines[first]) is None:
        return False
    names = [name for line in lines if (name := _marked(line)) is not None]
    return len(set(names)) >= 2 and len(set(names)) == len(names)


def _without_progress(data: bytes) -> bytes:
    found = _CLUSH.match(data)
    return data if found is None else data[found.end() :]


def _listed(line: bytes) -> tuple[str, ...]:
    found = _LISTED.fullmatch(line)
    return expand(found[1].decode()) if found is not None else ()


def _ansible(line: bytes) -> re.Match[bytes] | None:
    return _ANSIBLE.fullmatch(line) if b" | " in line else None


@lru_cache(1 << 10)
def _marked(line: bytes) -> str | None:
    """The host of a heading such as `== node01 ==` or `### node01`."""
    found = _MARKED.fullmatch(line) if len(line) < 300 else None
    if found is None:
        return None
    name = found[1].decode()
    return name if is_name(name) else None


def _tag(head: bytes) -> Callable[[bytes], tuple[str, bytes] | None] | None:
    """What takes the tag off a line, where nearly all lines have one that is read in no other way."""
    lines = [line for line in head[: head.rfind(b"\n") + 1].split(b"\n") if line.strip()]
    if len(lines) < 2:
        return None
    found = [(line, one) for line in lines if (one := _TAGGED.match(line)) is not None]
    if len(found) >= _SHARE * len(lines) and _TAGGED.match(lines[0]):
        names = [one[1].decode() for _, one in found]
        runs = len([*groupby(names)])
        tabs = sum(one[0].endswith(b"\t") for _, one in found)
        if len(set(names)) >= 2 and all(map(is_name, set(names))):
            if tabs == len(found):
                return _word
            unread = any(not peel(line.decode("utf-8", "replace")).end for line, _ in found[:100])
            if not tabs and unread and len(names) >= _RUN * runs and same_stem(set(names)):
                return _word
    fanned = [(line, one[1] or one[2]) for line in lines if (one := _FANNED.match(line)) is not None]
    hosts = {name.decode() for _, name in fanned}
    is_fanned = len(fanned) >= _SHARE * len(lines) and len(hosts) >= 2 and all(map(is_name, hosts))
    if is_fanned and any(not peel(line.decode("utf-8", "replace")).end for line, _ in fanned[:100]):
        return _fanned
    tasks = [one[1] for line in lines if (one := _TASK.match(line)) is not None]
    if len(tasks) >= _SHARE * len(lines) and len(set(tasks)) >= 2 and _CAPTURE.search(head) and not _JOB.search(head):
        return _task
    return None


def _word(line: bytes) -> tuple[str, bytes] | None:
    found = _TAGGED.match(line)
    return None if found is None else (found[1].decode(), line[found.end() :])


def _fanned(line: bytes) -> tuple[str, bytes] | None:
    found = _FANNED.match(line)
    return None if found is None else ((found[1] or found[2]).decode(), line[found.end() :])


def _task(line: bytes) -> tuple[str, bytes] | None:
    found = _TASK.match(line)
    return None if found is None else (f"task {int(found[1])}", line[found.end() :])


def heading_rows(stream: Readable) -> Iterator[Run]:
    """The lines under headings, behind the name of their host; those before the first heading as they are."""
    sections = _Sections()
    held: list[Run] = []  # a line of dashes, and the names below it
    for data, number in blocks(stream, _BLOCK):
        if number == 1:
            data = _without_progress(data)
        at = 0
        while at < len(data):
            stop = at if held else _found_at(data, at)
            end = (data.find(b"\n", stop) + 1 or len(data)) if stop == at else stop
            text = data[at:end]
            lines = Run(number, text.count(b"\n") + (not text.endswith(b"\n")), text)
            at, number = end, number + lines.lines
            line = text.rstrip(b"\r\n")
            if stop > at - len(text):
                yield from sections.take(lines)
            elif len(held) == 1 and _listed(line):
                held.append(lines)
            elif len(held) == 2 and _RULER.fullmatch(line):
                yield from sections.begin(_listed(held[1].text.rstrip(b"\r\n")))
                held = []
            else:
                for one in held:
                    yield from sections.take(one)
                held = []
                if _RULER.fullmatch(line):
                    held = [lines]
                elif (found := _ansible(line)) is not None:
                    yield from sections.begin((found[1].decode(),))
                    if found[2]:
                        yield from sections.take(lines._replace(text=text.partition(b" | ")[2]))
                elif (name := _marked(line)) is not None:
                    yield from sections.begin((name,))
                else:
                    yield from sections.take(lines)
    for one in held:
        yield from sections.take(one)
    yield from sections.begin(())
    if sections.cut:
        raise Cut("what more than one host printed alike is long, and counts for the first of them only")


def _found_at(data: bytes, at: int) -> int:
    """Where the next line begins that may be a heading."""
    found = _CANDIDATE.search(data, at)
    return len(data) if found is None else found.start()


def _labelled(host: bytes, lines: Run) -> Run:
    text = lines.text if lines.text.endswith(b"\n") else lines.text + b"\n"
    return lines._replace(text=host + text[:-1].replace(b"\n", b"\n" + host) + b"\n")


class _Sections:
    """What is below the heading that was read last."""

    def __init__(self) -> None:
        self.cut = False
        self._hosts: tuple[bytes, ...] = ()
        self._alike: list[Run] = []  # lines that several hosts printed
        self._size = 0
        self._repeated = 0

    def begin(self, hosts: tuple[str, ...]) -> Iterator[Run]:
        """Begin the section of these hosts, and give what is left of the one before."""
        for host in self._hosts if self._alike else ():
            yield from (_labelled(host, lines) for lines in self._alike)
            self._repeated += self._size
            if self._repeated > min(_REPEATED, budgets.limit("held")):
                self.cut = True
                break
        self._hosts = tuple(f"[host/{host}] ".encode() for host in hosts)
        self._alike, self._size = [], 0

    def take(self, lines: Run) -> Iterator[Run]:
        """More lines."""
        if len(self._hosts) < 2:
            yield _labelled(self._hosts[0], lines) if self._hosts else lines
            return
        self._alike.append(lines)
        self._size += len(lines.text)
        if self._size > _ALIKE:
            self.cut = True
            self._hosts, held = self._hosts[:1], self._alike
            self._alike = []
            yield from (_labelled(self._hosts[0], one) for one in held)


def tag_rows(stream: Readable) -> Iterator[Run]:
    """The lines behind the name of the host that their tags name."""
    take_off = None
    for data, number in blocks(stream, _BLOCK):
        take_off = take_off or _tag(data[:_HEAD]) or _word
        lines = data.removesuffix(b"\n").split(b"\n")
        at = 0
        while at < len(lines):
            start, at = at, at + 1
            found = take_off(lines[start])
            if found is None:
                yield Run(number + start, 1, lines[start] + b"\n")
                continue
            tag = lines[start][: len(lines[start]) - len(found[1])]
            if tag.endswith((b" ", b"\t")):
                while at < len(lines) and lines[at].startswith(tag):
                    at += 1
            host = f"[host/{found[0]}] ".encode()
            text = b"\n" + b"\n".join(lines[start:at])
            yield Run(number + start, at - start, text.replace(b"\n" + tag, b"\n" + host)[1:] + b"\n")
