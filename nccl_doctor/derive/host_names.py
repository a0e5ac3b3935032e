"""One name for one host, and a host for rows that name none.

NCCL prints the short name of a host, monitors and system logs often the full one. dmesg and nvidia-smi print none: the path
of their file, the only host of the job, or a GPU that only one host has tells it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from nccl_doctor.common.expressions import compiled
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.schema import by_name, column_types
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    GpuUse,
    HostAlias,
    InferredHost,
    Message,
    Process,
    ProcessEnd,
    Progress,
    Xid,
)  # fmt: skip

HOST_COLUMNS = ("host", "src_host", "dst_host", "peer_host")
_KERNEL = ("xid", "message", "earlier")
# What commands print of the node that they run on, without its name.
_CAPTURED = (
    "node_driver", "node_gpu", "gpu_health", "gpu_matrix", "nvlink_state", "ib_port", "kernel_module", "ofi_domain", "fabric_event",
)  # fmt: skip
_SAMPLED = ("gpu_use", "gpu_sample", "gpu_throttle", "gpu_counter", "gpu_process", "throttle_span", "idle_span")
_NAMED = compiled(r"(?:^|[_.-])((?:node|host|worker|compute)-?[a-z]{0,200}\d{1,20}[a-z0-9-]{0,200})(?:[_.]|$)")


def host_columns(facts: Facts) -> Iterator[tuple[str, str]]:
    """(table, column) of every column with host names in a table that a source covered."""
    covered = facts.covered()
    for table, class_ in by_name().items():
        if table in covered:
            yield from ((table, column) for column in HOST_COLUMNS if column in column_types(class_))


@derivation(fills=[HostAlias], reads=[Process], as_printed=True)  # and the host names of every other table
def host_aliases(facts: Facts) -> Iterator[HostAlias]:
    """Alternative names of hosts and the name used for each."""
    shown_in: dict[str, tuple[str, str]] = {}  # name -> the first table and column that have it
    for table, column in host_columns(facts):
        for (name,) in facts.query(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"):
            shown_in.setdefault(name, (table, column))
    torn = _torn_names(facts)
    yield from (HostAlias(name, host, "torn", _first(facts, name, shown_in.get(name))) for name, host in torn.items())
    for name, host in _short_names(shown_in.keys()).items():
        if name not in torn:
            yield HostAlias(name, host, "full-name", _first(facts, name, shown_in.get(name)))


def _first(facts: Facts, name: str, shown_in: tuple[str, str] | None) -> int | None:
    """The first line of a table that names a host in a column."""
    if shown_in is None or "ref" not in column_types(by_name()[shown_in[0]]):
        return None
    table, column = shown_in
    ref: int | None = facts.query(f"SELECT min(ref) FROM {table} WHERE {column} = ?", (name,))[0][0]
    return ref


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Full name -> short name, where the short one is printed too and only one full name can be meant."""
    known = set(names)
    full_names: dict[str, list[str]] = defaultdict(list)
    for name in known:
        if "." in name and ":" not in name and not re.fullmatch(r"[\d.]+", name):
            full_names[name.split(".")[0]].append(name)
    return {
        full[0]: short
        for short, full in sorted(full_names.items())
        if short in known and len(full) == 1 and not short.isdigit()
    }


def _torn_names(facts: Facts) -> dict[str, str]:
    """Wrong name -> name, where a record was torn within the name or follows another one on its line.

    Both names then have the same process, one ends with the other, and the wrong one has the fewer lines.
    """
    lines: dict[str, int] = defaultdict(int)
    hosts: dict[int, set[str]] = defaultdict(set)
    for host, pid, n in facts.query("SELECT host, pid, lines FROM process WHERE host IS NOT NULL AND pid IS NOT NULL"):
        lines[host] += n
        hosts[pid].add(host)
    wrong: dict[str, str] = {}
    for names in hosts.values():
        similar: dict[str, list[str]] = defaultdict(list)
        for name in names:
            for end in {name[at:] for at in range(1, len(name))} & names:
                similar[name].append(end)
                similar[end].append(name)
        for name, others in similar.items():
            if len(others) == 1 and 4 * lines[name] < lines[others[0]]:
                wrong[name] = others[0]
    return wrong


@derivation(
    fills=[InferredHost],
    reads=[HostAlias, Xid, Message, Process, Progress, ProcessEnd, Communicator, GpuUse],
    as_printed=True,
)
def inferred_hosts(facts: Facts) -> Iterator[InferredHost]:
    """Hosts of kernel lines, captures and samples whose lines name none."""
    hosts = _hosts_of_job(facts)
    yield from _of_kernel_files(facts, hosts)
    yield from _of_captures(facts, hosts)
    yield from _of_samples(facts, hosts)
    yield from _of_gpus(facts)


def _hosts_of_job(facts: Facts) -> list[str]:
    """The hosts that the job's own lines name."""
    return [
        name
        for (name,) in facts.query(
            "SELECT DISTINCT coalesce(a.host, p.host) FROM (SELECT host FROM process UNION SELECT host FROM progress UNION"
            " SELECT host FROM process_end UNION SELECT host FROM message) p LEFT JOIN host_alias a ON a.name = p.host"
            " WHERE p.host IS NOT NULL"
        )
    ]


def _of_kernel_files(facts: Facts, hosts: list[str]) -> Iterator[InferredHost]:
    """The path names the host of a file with kernel lines only; in the log of a job they are of its only host."""
    nameless = facts.query(
        "SELECT DISTINCT e.file FROM xid x JOIN evidence e ON e.id = x.ref WHERE x.host IS NULL UNION"
        " SELECT DISTINCT e.file FROM message m JOIN evidence e ON e.id = m.ref WHERE m.host IS NULL AND m.rank IS NULL"
        " AND m.text LIKE '%kill%process%'"
    )
    if not nameless:
        return
    of_jobs = {
        file
        for (file,) in facts.query(
            "SELECT DISTINCT e.file FROM process p JOIN evidence e ON e.id = p.ref UNION"
            " SELECT DISTINCT e.file FROM progress p JOIN evidence e ON e.id = p.ref"
        )
    }
    for (file,) in nameless:
        host, why = _host_of_path(file, hosts) if file not in of_jobs else None, "path"
        if host is None and len(hosts) == 1:
            host, why = hosts[0], "only-host"
        if host is not None:
            yield from (InferredHost(table, file, None, host, why) for table in _KERNEL)


def _of_captures(facts: Facts, hosts: list[str]) -> Iterator[InferredHost]:
    """A capture is of the host that its path names, or of the only host of the job."""
    covered = facts.covered()
    for table in _CAPTURED:
        if table not in covered:
            continue
        for (file,) in facts.query(
            f"SELECT DISTINCT e.file FROM {table} t JOIN evidence e ON e.id = t.ref WHERE t.host IS NULL"
        ):
            named = _host_of_path(file, hosts)
            host = named or (hosts[0] if len(hosts) == 1 else None)
            if host is not None:
                yield InferredHost(table, file, None, host, "path" if named else "only-host")


def _of_samples(facts: Facts, hosts: list[str]) -> Iterator[InferredHost]:
    """As captures. Where nothing names a host of the job, a file name such as `gpu_node07.csv` does."""
    for (file,) in facts.query("SELECT DISTINCT file FROM gpu_use WHERE host IS NULL"):
        named = _host_of_path(file, hosts)
        if not hosts and (match := _NAMED.search(PurePath(file.replace("!", "/")).stem)):
            named = match[1]
        host = named or (hosts[0] if len(hosts) == 1 else None)
        if host is not None:
            yield from (InferredHost(table, file, None, host, "path" if named else "only-host") for table in _SAMPLED)


def _of_gpus(facts: Facts) -> Iterator[InferredHost]:
    """The PCI address of an Xid tells the host where only one host of the job has a GPU at it."""
    addresses = facts.query("SELECT DISTINCT pci FROM xid WHERE host IS NULL AND pci IS NOT NULL")
    if not addresses:
        return
    owners: dict[str, set[str]] = defaultdict(set)
    for bus, host in facts.query(
        "SELECT DISTINCT c.bus_id, coalesce(a.host, c.host) FROM communicator c LEFT JOIN host_alias a ON a.name = c.host"
        " WHERE c.bus_id IS NOT NULL AND c.host IS NOT NULL"
    ):
        owners[bus].add(host)
    for (pci,) in addresses:
        hosts = owners.get(bus_id(pci) or "", set())
        if len(hosts) == 1:
            yield InferredHost("xid", None, pci, next(iter(hosts)), "gpu")


def _host_of_path(file: str, hosts: Iterable[str]) -> str | None:
    """The one of these hosts that a path names between separators."""
    named = {host for host in hosts if re.search(rf"(?:^|[/!_.-]){re.escape(host)}(?:[/!_.-]|$)", file)}
    return named.pop() if len(named) == 1 else None


def bus_id(pci: str) -> str | None:
    """`0000:3b:00` or `00000000:3B:00.0` as NCCL prints it: `3b000`; None for anything else."""
    match = re.fullmatch(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?", pci)
    return (match[1] + match[2] + match[3] + (match[4] or "0")).lower().lstrip("0") if match else None
