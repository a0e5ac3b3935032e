"""One name for one host, and a host for kernel lines that name none.

NCCL prints the short name of a host, monitors and system logs often the full one. dmesg prints none: the path of its file, the
only host of the job, or a GPU that only one host has tells it.
"""

import json
import re
from collections import defaultdict

from nccl_doctor.facts.store import Facts, by_name, column_types

_COLUMNS = ("host", "src_host", "dst_host")
_KERNEL = ("xid", "message")
# What commands print of the node that they run on, without its name.
_CAPTURED = (
    "node_driver", "node_gpu", "gpu_health", "gpu_matrix", "nvlink_state", "ib_port", "kernel_module", "ofi_domain", "fabric_event",
)  # fmt: skip


def fold_hosts(facts: Facts) -> None:
    """Give a host that is named in full and in short its short name, in every table. Call before `derive`."""
    places = [
        (table, column) for table, class_ in by_name().items() for column in _COLUMNS if column in column_types(class_)
    ]
    filled = facts.looked()
    places = [(table, column) for table, column in places if table in filled]
    names: set[str] = set()
    for table, column in places:
        names |= {name for (name,) in facts.own(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")}
    aliases = _aliases(names) | _torn(facts)
    if not aliases:
        return
    facts.own("CREATE TEMP TABLE alias (name TEXT PRIMARY KEY, short TEXT)")
    facts.own(
        "INSERT INTO alias SELECT key, value FROM json_each(?)",
        (json.dumps(aliases),),
    )
    for table, column in places:
        facts.own(
            f"UPDATE {table} SET {column} = (SELECT short FROM alias WHERE name = {column})"
            f" WHERE {column} IN (SELECT name FROM alias)"
        )
    facts.own("DROP TABLE alias")


def _aliases(names: set[str]) -> dict[str, str]:
    """Full name -> short name, where the short one stands alone somewhere and only one full name can be meant."""
    full: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if "." in name and ":" not in name and not re.fullmatch(r"[\d.]+", name):
            full[name.split(".")[0]].append(name)
    return {
        known[0]: short for short, known in full.items() if short in names and len(known) == 1 and not short.isdigit()
    }


def _torn(facts: Facts) -> dict[str, str]:
    """Wrong name -> name, where a record was torn within the name or stands right behind another one on its line.

    Both names then have the same process, one ends with the other, and the wrong one has the fewer lines.
    """
    lines: dict[str, int] = defaultdict(int)
    hosts: dict[int, set[str]] = defaultdict(set)
    for host, pid, n in facts.own("SELECT host, pid, lines FROM process WHERE host IS NOT NULL AND pid IS NOT NULL"):
        lines[host] += n
        hosts[pid].add(host)
    wrong: dict[str, str] = {}
    for names in hosts.values():
        like: dict[str, list[str]] = defaultdict(list)
        for name in names:
            for end in {name[at:] for at in range(1, len(name))} & names:
                like[name].append(end)
                like[end].append(name)
        for name, others in like.items():
            if len(others) == 1 and 4 * lines[name] < lines[others[0]]:
                wrong[name] = others[0]
    return wrong


def locate(facts: Facts) -> None:
    """Name the host of kernel lines whose file names none. Call after the table `host` is there."""
    hosts = [name for (name,) in facts.own("SELECT name FROM host")]
    nameless = facts.own(
        "SELECT DISTINCT e.file FROM xid x JOIN evidence e ON e.id = x.ref WHERE x.host IS NULL UNION"
        " SELECT DISTINCT e.file FROM message m JOIN evidence e ON e.id = m.ref WHERE m.host IS NULL AND m.rank IS NULL"
        " AND m.text LIKE '%kill%process%'"
    )
    busy = {
        file
        for (file,) in facts.own(
            "SELECT DISTINCT e.file FROM process p JOIN evidence e ON e.id = p.ref UNION"
            " SELECT DISTINCT e.file FROM progress p JOIN evidence e ON e.id = p.ref"
        )
    }
    for (file,) in nameless:
        host = _of_path(file, hosts) if file not in busy else None
        if host is None and len(hosts) == 1:
            host = hosts[0]
        if host is not None:
            for table in _KERNEL:
                facts.own(
                    f"UPDATE {table} SET host = ? WHERE host IS NULL AND ref IN (SELECT id FROM evidence WHERE file = ?)",
                    (host, file),
                )
    _locate_captures(facts, hosts)
    owners: dict[str, set[str]] = defaultdict(set)
    for bus, host in facts.own(
        "SELECT DISTINCT bus_id, host FROM communicator WHERE bus_id IS NOT NULL AND host IS NOT NULL"
    ):
        owners[bus].add(host)
    for (pci,) in facts.own("SELECT DISTINCT pci FROM xid WHERE host IS NULL AND pci IS NOT NULL"):
        having = owners.get(bus_id(pci) or "", set())
        if len(having) == 1:
            facts.own("UPDATE xid SET host = ? WHERE host IS NULL AND pci = ?", (having.pop(), pci))


def _locate_captures(facts: Facts, hosts: list[str]) -> None:
    """A capture is of the host that its path names, or of the only host of the job."""
    looked = facts.looked()
    for table in _CAPTURED:
        if table not in looked:
            continue
        nameless = f"SELECT DISTINCT e.file FROM {table} t JOIN evidence e ON e.id = t.ref WHERE t.host IS NULL"
        for (file,) in facts.own(nameless):
            host = _of_path(file, hosts) or (hosts[0] if len(hosts) == 1 else None)
            if host is not None:
                facts.own(
                    f"UPDATE {table} SET host = ? WHERE host IS NULL AND ref IN (SELECT id FROM evidence WHERE file = ?)",
                    (host, file),
                )


def _of_path(file: str, hosts: list[str]) -> str | None:
    named = {host for host in hosts if re.search(rf"(?:^|[/!_.-]){re.escape(host)}(?:[/!_.-]|$)", file)}
    return named.pop() if len(named) == 1 else None


def bus_id(pci: str) -> str | None:
    """`0000:3b:00` or `00000000:3B:00.0` as NCCL prints it: `3b000`; None for anything else."""
    match = re.fullmatch(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?", pci)
    return (match[1] + match[2] + match[3] + (match[4] or "0")).lower().lstrip("0") if match else None
