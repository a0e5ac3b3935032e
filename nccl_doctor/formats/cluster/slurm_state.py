"""The nodes and the queue of Slurm: `scontrol show node`, `sinfo`, `sinfo -R`, `sinfo -N -l`, `squeue`, in a file or a log."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import QueuedJob, SchedulerNode
from nccl_doctor.formats.cluster.slurm_values import gpus as gpus_of
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.line_forms import RowSpans
from nccl_doctor.inputs.prefixes import NOTHING
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, plain_lines, read_head

_MOST_NODES = 100_000
_STATE_HEADS = re.compile(
    rb"NodeName=\S{1,80} (?:Arch=|CoresPerSocket=)|REASON +USER +TIMESTAMP +NODELIST|NODELIST +NODES +PARTITION +STATE"
    rb"|PARTITION +AVAIL +TIMELIMIT +NODES +STATE|NODELIST\(REASON\)|(?m:^[A-Z_()|:/ ]{0,1500}(?:JOBID\||NODELIST\||\|NODELIST))"
    rb"|(?m:^(?=[^\r\n]{0,600}NODELIST)[A-Z_()|:/ ]{0,600}(?:REASON|STATE) {3,})"
)
_NODE_ROWS = re.compile(rb"(?m:^(?: {3}[A-Z]|NodeName=)[^\r\n]{1,4000}\n|^\n(?!\n)){1,1000}")
_NODE_FIELD = re.compile(r"(?<!\S)[A-Z][A-Za-z]{1,30}=")
_READ_FIELD = re.compile(
    r"(?<!\S)(NodeName|State|CPUTot|CPUAlloc|CPULoad|RealMemory|FreeMem|Gres|CfgTRES|AllocTRES|Reason)=(\S{0,400})"
)
_NODE_REASON = re.compile(r"(?:^|(?<= ))Reason=(.{1,300}?)(?: \[[^\[\]]{1,80}\])?$")
_WHY_ROW = re.compile(r"(\S.{0,80}?) +(\S{1,40}) +(\d{4}-\d\d-\d\dT[\d:]{8}|Unknown) +(\S{1,400})\s*$")
_QUEUE_ROW = re.compile(
    r"\s*(\d[\w\[\],%+.-]{0,80})\s+\S{1,40}\s+(\S.{0,60}?)\s+\S{1,40}\s+([A-Z]{1,2}|[A-Z_]{6,16})\s+(?:[\d:-]{4,16}|INVALID)\s+"
    r"(?:(?:[\d:-]{4,16}|UNLIMITED|INVALID|NOT_SET)\s+)?(\d{1,6})\s+(\S.{0,400}?)\s*$"
)
_GROUP_ROW = re.compile(
    r"\S{1,60}\s+(?:up|down|drain|inact)\s+(?:infinite|[\d:-]{4,16})\s+\d{1,6}\s+[a-z]{2,14}[*~#!%$@^-]{0,2}\s+\S{1,400}\s*$"
)
_STATED_ROW = re.compile(
    r"([A-Za-z][\w.,\[\]-]{0,200})\s+((?:idle|alloc(?:ated)?|mix(?:ed)?|drain(?:ed|ing)?|drng|down|comp(?:leting)?|maint|resv|reserved|fail|planned"
    r"|plnd)[*~#!%$@^-]{0,2})(?:\s+(\S.{0,300}?))?\s*$"
)
# `sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong`
_STATED_LAST = re.compile(
    r"([A-Za-z][\w.-]{0,80}\d) +(?:\d[\d.:]{0,15} +){0,6}\d{1,6}/\d{1,6}/\d{1,6}/\d{1,6} +"
    r"(?:\d[\d.:]{0,15} +){0,6}([a-z]{2,12}[*~#!%$@^-]{0,2})\s*$"
)
# `squeue -h -o %i,%T` and `sinfo -N -h -o %N,%T`
_QUEUED_PAIR = re.compile(
    r"(\d{1,12}(?:_[\w\[\],%+-]{1,60})?)[,|](PENDING|RUNNING|COMPLETING|CONFIGURING|SUSPENDED|COMPLETED|CANCELLED|FAILED|TIMEOUT|PREEMPTED"
    r"|NODE_FAIL|OUT_OF_MEMORY|BOOT_FAIL|PD|R|CG|CF|S|CD|CA|F|TO|PR|NF|OOM)\s*$"
)
_STATED_PAIR = re.compile(_STATED_ROW.pattern.partition(r"(?:\s+")[0].replace(r"\s+", "[,|]", 1) + r"\s*$")
_UNTOLD = "DOWN OR DRAINED"
_TITLE, _NODES = re.compile(r"\S{1,80}"), re.compile(r"[A-Za-z][\w.,\[\]-]{0,200}")
_HEAD = 1 << 12  # bytes in which rows without titles are known from others
_WHOLE = re.compile(r"\d{1,9}")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?")
_SHOWN = 2000  # characters of a row that are kept of a job
_Job = tuple[str | None, str, str | None, int | None]  # name, state, reason and nodes


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every node and waiting job of a file.

    Source: src/api/node_info.c, src/sinfo/print.c and src/squeue/print.c of Slurm; checked with 22.05.8::

        NodeName=n2 Arch=x86_64 CoresPerSocket=1
           State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
           Reason=GPU 3 fell off the bus [root@2026-11-22T16:11:50]
    """
    reader = _Reader(name, facts)
    head = read_head(stream, _HEAD)
    stream = Joined(head, stream)
    if (table := reader.of_rows(head.decode("utf-8", "replace"))) is not None:
        used = 0
        for number, _, text in plain_lines(stream):
            used += table(text, number)
        facts.add(reader.rows())
        facts.mark_covered("scheduler_node", "queued_job")
        return Reading(number, used)
    sections = Sections(stream, _STATE_HEADS)
    used = 0
    for first, label, texts in sections.batches():
        last = 0
        for number, text in enumerate(texts, first):
            if not reader.take(text, number):
                continue
            used += 1
            last = number
            if label is NOTHING and text.startswith("NodeName="):
                sections.used(number)
                last, run = 0, sections.run(_NODE_ROWS, number)
                if run is not None:
                    used += reader.take_rows(*run)
                    break
        if last:
            sections.used(last)
    facts.add(reader.rows())
    facts.mark_covered("scheduler_node", "queued_job")
    return Reading(sections.lines, used)


class _Reader:
    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._table: Callable[[str, int], bool] | None = None
        self._fields: dict[str, str] = {}  # of the node that `scontrol` is printing
        self._place = (0, "")
        self._nodes: dict[tuple[str, str, str | None], SchedulerNode] = {}
        self._queue_rows = RowSpans(_QUEUE_ROW)
        self._jobs: dict[
            str, tuple[int, str, _Job | None]
        ] = {}  # by number, as each was shown last: where, and what it says

    def rows(self) -> Iterator[SchedulerNode | QueuedJob]:
        self._close()
        yield from self._joined_nodes()
        for number, text, _ in sorted(self._jobs.values(), key=itemgetter(0)):  # evidence is numbered as the lines are
            self._facts.evidence(self._name, number, text.strip())
        for job, (number, text, said) in self._jobs.items():
            name, state, reason, nodes = said or _queued_job(text)
            ref = self._facts.evidence(self._name, number, text.strip())
            yield QueuedJob(job[:80], self._name, name, state, reason, nodes, ref)

    def _joined_nodes(self) -> Iterator[SchedulerNode]:
        """The nodes; those of `sinfo -R`, which shows no state, are one with those that another list shows without a reason."""
        bare = {node.host: node for node in self._nodes.values() if node.reason is None}
        told = {node.host for node in self._nodes.values() if node.state == _UNTOLD} & bare.keys()
        for node in self._nodes.values():
            if node.host in told and node.state == _UNTOLD:
                yield bare[node.host]._replace(reason=node.reason, ref=node.ref)
            elif node.host not in told or node is not bare[node.host]:
                yield node

    def take(self, text: str, number: int) -> bool:
        """Whether a line is part of a table."""
        if "NODELIST" in text and (table := self._of_head(text)) is not None:
            self._close()
            self._table = table
            return True
        if text.startswith("NodeName=") and len(self._nodes) < _MOST_NODES:
            self._close()
            self._table = self._node
            self._place = (number, text)
        return self._table is not None and self._table(text, number)

    def _of_head(self, text: str) -> Callable[[str, int], bool] | None:
        titles = text.split("|")
        if len(titles) > 1:
            return self._parted(titles)
        titles = text.split()
        if (table := self._of_widths(text, titles)) is not None:
            return table
        if titles[-1:] == ["NODELIST(REASON)"]:
            return self._queued
        if titles[:4] == ["REASON", "USER", "TIMESTAMP", "NODELIST"]:
            return self._why
        if titles[:4] == ["NODELIST", "NODES", "PARTITION", "STATE"]:
            return self._long
        return self._short if titles[:2] == ["PARTITION", "AVAIL"] and titles[-1] == "NODELIST" else None

    def _of_widths(self, text: str, titles: list[str]) -> Callable[[str, int], bool] | None:
        """The table of `sinfo --Format=reason:40,nodelist`: columns of fixed width in any order, with a reason or a state."""
        if not 1 < len(titles) < 20 or "NODELIST" not in titles or not {"REASON", "STATE"} & set(titles):
            return None
        starts = [match.start() for match in _TITLE.finditer(text)]
        padded = [text[start - 3 : start].isspace() for start in starts[1:]]
        if not all(padded) or {"TIMESTAMP", "AVAIL", "PARTITION", "JOBID"} & set(titles):
            return None

        def take(line: str, number: int) -> bool:
            cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
            found = dict(zip(titles, cells, strict=True))
            if any(line[start - 1 : start] not in ("", " ") for start in starts[1:]) or not _NODES.fullmatch(
                found["NODELIST"]
            ):
                return False
            reason = found.get("REASON")
            state = found.get("STATE", _UNTOLD if reason not in ("", "none") else "")
            if state:
                self._add(
                    found["NODELIST"], state, reason if reason not in ("", "none", "N/A") else None, (number, line)
                )
            return bool(state)

        return take

    def of_rows(self, head: str) -> Callable[[str, int], bool] | None:
        """The table of rows without titles with which a text begins; None for any other text."""
        first = head.removeprefix("\ufeff").lstrip().partition("\n")[0].rstrip()
        if any(title in head for title in ("NODELIST", "NodeName=")):
            return None
        if _QUEUE_ROW.match(first):
            return self._queued
        if _GROUP_ROW.match(first):
            return self._short
        if _QUEUED_PAIR.match(first):
            return self._queued_pair
        if _STATED_PAIR.match(first):
            return self._stated_pair
        if _STATED_LAST.match(first):
            return self._stated_last
        return self._stated if _STATED_ROW.match(first) else None

    def _queued_pair(self, text: str, number: int) -> bool:
        row = _QUEUED_PAIR.match(text)
        if row is not None and len(self._jobs) < _MOST_NODES:
            self._jobs[row[1]] = number, text, (None, row[2], None, None)
        return row is not None

    def _stated_pair(self, text: str, number: int) -> bool:
        row = _STATED_PAIR.match(text)
        if row is not None:
            self._add(row[1], row[2], None, (number, text))
        return row is not None

    def _stated_last(self, text: str, number: int) -> bool:
        row = _STATED_LAST.match(text)
        if row is not None:
            self._add(row[1], row[2], None, (number, text))
        return row is not None

    def _stated(self, text: str, number: int) -> bool:
        row = _STATED_ROW.match(text)
        if row is not None:
            reason = row[3] if row[3] not in (None, "none", "(null)", "N/A") else None
            self._add(row[1], row[2], reason, (number, text))
        return row is not None

    def _parted(self, titles: list[str]) -> Callable[[str, int], bool] | None:
        """The table of a list whose format has `|` between the columns, `%all` too: there a title can stand twice."""
        if not titles[-1].strip():
            titles = titles[:-1]
        at = {title.strip(): place for place, title in enumerate(titles)}
        state = at.get("STATE", at.get("ST"))
        job, nodes, why = at.get("JOBID"), at.get("NODELIST"), at.get("NODELIST(REASON)", at.get("REASON"))
        if state is None or (job is None and nodes is None):
            return None

        def take(text: str, number: int) -> bool:
            cells = [cell.strip() for cell in text.split("|")]
            if not len(titles) <= len(cells) <= len(titles) + 1 or any(cells[len(titles) :]) or not cells[state]:
                return False
            told = cells[why] if why is not None else ""
            if job is None:
                assert nodes is not None
                self._add(cells[nodes], cells[state], told if told not in ("", "none") else None, (number, text))
            elif len(self._jobs) < _MOST_NODES and cells[job][:1].isdecimal():
                reason = told[1:-1] if told.startswith("(") and told.endswith(")") else told if "REASON" in at else None
                count = _whole(cells[at["NODES"]]) if "NODES" in at else None
                named = cells[at["NAME"]] if "NAME" in at else None
                self._jobs[cells[job]] = number, text.strip()[:_SHOWN], (named, cells[state][:40], reason, count)
            return True

        return take

    def _add(self, host: str, state: str, reason: str | None, place: tuple[int, str], **more: Any) -> None:
        key = host, state, reason
        if key not in self._nodes and len(self._nodes) < _MOST_NODES:
            number, text = place
            values: dict[str, Any] = dict.fromkeys(
                ("cpus", "cpus_used", "memory", "memory_free", "load", "gpus", "gpus_used")
            )
            ref = self._facts.evidence(self._name, number, text.strip())
            row = SchedulerNode(
                host=host, file=self._name, state=state.upper(), reason=reason, **{**values, **more}, ref=ref
            )
            self._nodes[key] = row

    def _node(self, text: str, number: int) -> bool:
        fields = _node_fields(text)
        if fields is None:
            return False
        if fields:
            self._fields |= fields
            if "State" in fields or "Reason" in fields:
                self._place = (number, text)
        return True

    def take_rows(self, first: int, rows: bytes) -> int:
        """Takes the lines behind the first one of a node, and those of the next nodes; returns how many are part of them."""
        taken = 0
        for number, text in enumerate(rows.decode("utf-8", "replace").split("\n"), first):
            taken += self._node(text, number) if text[:1] == " " else self.take(text, number)
        return taken

    def _close(self) -> None:
        """Add the node that `scontrol` printed last."""
        fields, self._fields = self._fields, {}
        get = fields.get
        if (
            (get("NodeName"), get("State"), get("Reason")) in self._nodes
            or "NodeName" not in fields
            or "State" not in fields
        ):
            return
        total, taken = gpus_of(get("CfgTRES", "")), gpus_of(get("AllocTRES", ""))
        gpus = gpus_of(get("Gres", "")) if total is None else total
        self._add(
            fields["NodeName"], fields["State"], get("Reason"), self._place, cpus=_whole(get("CPUTot")), cpus_used=_whole(get("CPUAlloc")),
            memory=_number(get("RealMemory")), memory_free=_number(get("FreeMem")), load=_number(get("CPULoad")), gpus=gpus,
            gpus_used=0 if taken is None and gpus is not None and "AllocTRES" in fields else taken,
        )  # fmt: skip

    def _why(self, text: str, number: int) -> bool:
        row = _WHY_ROW.match(text)
        if row is not None:
            self._add(row[4], _UNTOLD, row[1], (number, text))
        return row is not None

    def _long(self, text: str, number: int) -> bool:
        cells = text.split(None, 10)
        if len(cells) < 11 or not cells[1].isdecimal():
            return False
        reason: str | None = cells[10].strip()
        reason = None if reason == "none" else reason
        if (cells[0], cells[3], reason) not in self._nodes:
            more = {"cpus": _whole(cells[4]), "memory": _number(cells[6])}
            self._add(cells[0], cells[3], reason, (number, text), **more)
        return True

    def _short(self, text: str, number: int) -> bool:
        cells = text.split()
        if len(cells) != 6 or not cells[3].isdecimal():
            return False
        self._add(cells[5], cells[4], None, (number, text))
        return True

    def _queued(self, text: str, number: int) -> bool:
        spans = self._queue_rows.of(text)
        if spans is None:
            return False
        start, stop = spans[0]
        job = text[start:stop]
        if len(self._jobs) < _MOST_NODES or job in self._jobs:
            self._jobs[job] = number, text if len(text) <= _SHOWN else " ".join(text.split()), None
        return True


def _queued_job(text: str) -> _Job:
    """What a row of `squeue` says."""
    row = _QUEUE_ROW.match(text)
    assert row is not None
    reason = row[5][1:-1] if row[5].startswith("(") and row[5].endswith(")") else None
    return row[2], row[3], reason, int(row[4])


@lru_cache(1 << 12)  # many nodes of a cluster say the same
def _node_fields(text: str) -> dict[str, str] | None:
    """The fields of a line of `scontrol show node` that are read; None for another line."""
    fields = dict(_READ_FIELD.findall(text))
    if not fields and _NODE_FIELD.search(text) is None:
        return None
    reason = _NODE_REASON.search(text.rstrip()) if "Reason" in fields else None
    return fields if reason is None else {**fields, "Reason": reason[1]}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None
