"""Output of commands about a host, in a file of its own or pasted into a log, of one host or many behind prefixes.

`ulimit -a`, `free`, `/proc/meminfo`, `df`, `mount`, `lscpu`, `numactl -H`, `top -b`, `ps`, `perf stat`, `lspci -vv`, `rdma link`,
`show_gids`, `ibportstate`, /proc/net/bonding, /sys/class/infiniband, `sar -n DEV`, `lfs df`, `lctl get_param`, `nfsiostat` and
`nvidia-smi topo -p2p`. A command that is run again and again keeps its worst row.
"""

import re
from collections.abc import Callable, Hashable, Iterator
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    BondMember,
    GpuPair,
    HostMemory,
    HostNumber,
    IbPort,
    ListedProcess,
    LustreTarget,
    Mount,
    MountProbe,
    RdmaGid,
    SharedMemory,
    TaskLimit,
)
from nccl_doctor.formats.captures import (
    device_sections,
    host_sections,
    link_sections,
    process_sections,
    storage_sections,
)
from nccl_doctor.formats.captures.host_sections import HIGHEST_COUNTS, Section
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_MOST_ROWS = 100_000
_MOST_WRITERS = 20_000
_SECTIONS = (
    *host_sections.SECTIONS, *device_sections.SECTIONS, *link_sections.SECTIONS, *process_sections.SECTIONS, *storage_sections.SECTIONS,
)  # fmt: skip
_BEGINS = re.compile("|".join(f"(?:{section.BEGINS.pattern})" for section in _SECTIONS))
_LUSTRE_CLIENT = re.compile(r"-(?:osc|mdc)-[0-9a-f]{8,16}$")
_Key = tuple[type, str | None, Hashable]


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every capture of a file.

    Source: bash `ulimit`, procps-ng, coreutils, util-linux, numactl, pciutils, iproute2, mlnx-tools, drivers 390 and newer::

        max locked memory           (kbytes, -l) 64
        Mem:           2.0Ti       1.9Ti        11Gi       502Gi        81Gi        14Gi
        LnkSta: Speed 16GT/s (downgraded), Width x8 (downgraded)
    """
    kept = _Rows()
    open_: dict[tuple[str | None, int | None], Section | None] = {}
    lines = used = 0
    for first, label, texts in plain_batches(stream):
        lines += len(texts)
        writer = label.host, label.rank
        section = open_.get(writer)
        if section is None and len(open_) >= _MOST_WRITERS:
            continue
        kept.host = label.host
        if label.host is not None and _LUSTRE_CLIENT.search(label.host):  # `lfs check servers` has a name in front, too
            texts = [f"{label.host}: {text}" for text in texts]
            kept.host = None
        at = 0
        while at < len(texts):
            if section is not None:
                end = section.take_all(texts, at, first)
                used, at = used + end - at, end
                if at == len(texts):
                    break
                section = None
            begun = _section_of(texts[at])
            if begun is not None:
                section = begun(kept.add)
                used += section.take(texts[at], first + at)
            at += 1
        if section is not None or writer in open_:
            open_[writer] = section
    facts.mark_covered(
        "host_number", "task_limit", "host_memory", "mount", "mount_probe", "shared_memory", "rdma_gid", "gpu_pair"
    )
    if any(isinstance(row, LustreTarget) for row in kept.all()):
        facts.mark_covered("lustre_target")
    facts.mark_covered("message", "ib_port", "bond_member", "listed_process")
    facts.add(kept.rows(facts, name))
    note = f"holds more than {_MOST_ROWS:,} facts; the others were left out" if kept.full else None
    return Reading(lines, used, note)


@lru_cache(1 << 12)  # most hosts print the same
def _section_of(text: str) -> type[Section] | None:
    """The section that a line begins."""
    return next(one for one in _SECTIONS if one.BEGINS.match(text)) if _BEGINS.match(text) else None


class _Rows:
    """The rows of all hosts, of the same thing the worst."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.full = False
        self._kept: dict[_Key, tuple[Any, str | None, int, str]] = {}  # row, its host, line, text

    def add(self, row: Any, number: int, text: str) -> None:
        """Keep a row, unless a worse one of the same thing is there."""
        host = row.host or self.host
        subject = _SUBJECTS.get(type(row))
        key = type(row), host, number if subject is None else subject(row)
        known = self._kept.get(key)
        if known is None and len(self._kept) >= _MOST_ROWS:
            self.full = True
        elif known is None or _badness(row) > _badness(known[0]):
            self._kept[key] = row, host, number, text

    def all(self) -> list[Any]:
        """The rows, without file and evidence."""
        return [row for row, *_ in self._kept.values()]

    def rows(self, facts: Facts, name: str) -> Iterator[Any]:
        """The rows with host, file and evidence."""
        for row, host, number, text in self._kept.values():
            columns = list(row)
            host_at, file_at, ref_at = _places(row._fields)
            columns[host_at], columns[ref_at] = host, facts.evidence(name, number, text.strip()[:600])
            if file_at is not None:
                columns[file_at] = name
            yield row._make(columns)


@cache
def _places(columns: tuple[str, ...]) -> tuple[int, int | None, int]:
    """Where a row of a table with these columns has its host, its file where it has one, and its evidence."""
    return columns.index("host"), columns.index("file") if "file" in columns else None, columns.index("ref")


# What a row is about; of other rows each is of its own.
_SUBJECTS: dict[type, Callable[[Any], Hashable]] = {
    HostNumber: attrgetter("command", "name"),
    TaskLimit: attrgetter("name"),
    HostMemory: lambda _: None,
    SharedMemory: lambda _: None,
    MountProbe: lambda row: (row.path, row.size is None),
    Mount: attrgetter("path"),
    IbPort: attrgetter("hca", "port"),
    LustreTarget: attrgetter("kind", "name"),
    BondMember: attrgetter("bond", "name"),
    RdmaGid: attrgetter("device", "port", "number", "kind"),
    ListedProcess: attrgetter("pid"),
    GpuPair: attrgetter("gpu", "peer"),
}


def _badness(row: Any) -> float:
    """How much worse a later row of the same thing is; of others the first counts."""
    match row:
        case HostNumber() if row.unit in HIGHEST_COUNTS or row.name == "load":
            return row.value
        case HostNumber() if row.command == "ps":
            return row.value
        case ListedProcess():
            return float((row.state or "-") in "DZ")
        case HostNumber() if row.name == "available":
            return -row.value
        case HostMemory() if row.available is not None:
            return -float(row.available)
        case MountProbe():
            return -float(row.free if row.free is not None else row.files_free or 0)
        case SharedMemory() if row.free is not None:
            return -float(row.free)
        case _:
            return 0.0
