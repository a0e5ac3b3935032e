"""What a node should be: from the data on GPU models and machine types, and from the site's own file."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.trusted import read_settings
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Expected
from nccl_doctor.knowledge import machines

KNOWN: dict[str, dict[str, str]] = {
    "gpu": {
        "count": "GPUs of the node", "model": "as `nvidia-smi -L` names it", "memory": "MiB of one GPU",
        "power": "W, limit of one GPU", "ecc": "1 on, 0 off", "mig": "1 on, 0 off", "bar1": "MiB, at least",
        "persistence": "1 on, 0 off", "pcie": "generation of the link under load", "width": "lanes of the link",
        "driver": "version, or its beginning", "clock": "MHz of the SMs that are asked for",
    },
    "nvlink": {"links": "active NVLinks of one GPU", "speed": "GB/s of one link and direction, at least"},
    "nvswitch": {"count": "NVSwitches on the PCI bus"},
    "nic": {
        "count": "network cards for GPU traffic", "rate": "Gb/s of one port, at least", "kind": "ib, roce, efa, ethernet",
        "firmware": "version", "gdr": "1 where they must reach GPU memory (GPUDirect RDMA)",
    },
    "host": {
        "hugepages": "pages of 2 MiB, at least", "memlock": "KiB, at least", "shm": "MiB of /dev/shm, at least",
        "memory": "GiB, at least", "cpus": "at least", "nvme": "NVMe drives, at least",
    },
    "software": {"nccl": "version", "cuda": "version", "libfabric": "version", "efa": "installer's version"},
    "mount": {},  # paths, each with its file system, or a list of paths
}  # fmt: skip
_MODEL = {
    "memory": ("gpu", "memory"), "power": ("gpu", "power"), "ecc": ("gpu", "ecc"), "bar1": ("gpu", "bar1"),
    "pcie": ("gpu", "pcie"), "width": ("gpu", "width"), "links": ("nvlink", "links"), "link_speed": ("nvlink", "speed"),
}  # fmt: skip


class _Wish(NamedTuple):
    subject: str
    name: str
    value: str
    source: str  # model, memory, machine, file
    why: str


def read(file: Path) -> dict[str, Any]:
    """The site's own file, subject -> name -> value. Raises UsageProblem where it cannot be used."""
    try:
        wanted = tomllib.loads(read_settings(file))
    except OSError as error:
        raise UsageProblem(f"{file}: {error.strerror}") from None
    except RecursionError:
        raise UsageProblem(f"{file}: lists or tables are nested too deeply") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise UsageProblem(f"{file}: {' '.join(str(error).split())[:200]}") from None
    for subject, values in wanted.items():
        if subject not in KNOWN:
            raise UsageProblem(f"{file}: unknown key {subject}; there are {', '.join(KNOWN)}")
        if subject == "mount" and isinstance(values, list) and all(isinstance(value, str) for value in values):
            continue
        if not isinstance(values, dict):
            raise UsageProblem(f"{file}: {subject} must be a table, [{subject}]")
        for name, value in values.items():
            if KNOWN[subject] and name not in KNOWN[subject]:
                raise UsageProblem(f"{file}: unknown key {subject}.{name}; there are {', '.join(KNOWN[subject])}")
            if not isinstance(value, str | int | float):
                raise UsageProblem(f"{file}: {subject}.{name} must be a number or a text")
    return wanted


def add(facts: Facts, wanted: Mapping[str, Any], inventory: Mapping[str, Any] | None = None) -> None:
    """Fill `expected` for every node that was looked at; what the site says comes before what data say.

    `inventory` is what the last good check of this node saw (`inventory_of`).
    """
    facts.mark_covered("expected")
    made = []
    for (host,) in facts.query("SELECT DISTINCT host FROM collection"):
        chosen: dict[tuple[str, str], _Wish] = {}
        for wish in [
            *_of_model(facts, host), *_of_memory(facts, inventory), *_of_machine(facts, host), *_of_file(wanted)
        ]:  # fmt: skip
            chosen[wish.subject, wish.name] = wish
        for number, wish in enumerate(chosen.values(), 1):
            text = f"expected: {wish.subject} {wish.name} {wish.value} ({wish.why})"
            ref = facts.evidence(f"expectations of {host or 'the node'}", number, text)
            made.append(Expected(host, wish.subject, wish.name, wish.value, wish.source, ref))
    facts.add(made)


def _of_model(facts: Facts, host: str | None) -> Iterator[_Wish]:
    """Expectations from the GPU model, where all GPUs of the node have the same."""
    names = facts.query("SELECT DISTINCT model FROM node_gpu WHERE host IS ? AND model IS NOT NULL", (host,))
    numbers = facts.query("SELECT DISTINCT device FROM pci_device WHERE host IS ? AND kind = 'gpu'", (host,))
    found = [machines.model(name) for (name,) in names] or [machines.model(None, device) for (device,) in numbers]
    if len(found) != 1 or found[0] is None:
        return
    for key, (subject, name) in _MODEL.items():
        if key in found[0]:
            yield _Wish(subject, name, str(found[0][key]), "model", f"{found[0]['model']}, {found[0]['source']}")


def inventory_of(facts: Facts) -> dict[str, Any] | None:
    """What a node has that was found good: the number of its GPUs, and by what the machine is told from others."""
    ((gpus,),) = facts.query("SELECT count(*) FROM pci_device WHERE kind IN ('gpu', 'amd-gpu')")
    return {"gpus": gpus, "machine": _machine(facts)} if gpus else None


def _machine(facts: Facts) -> str | None:
    names = facts.query("SELECT vendor, product FROM node_machine")
    return f"{names[0][0]} {names[0][1]}" if len(names) == 1 else None


def _of_memory(facts: Facts, inventory: Mapping[str, Any] | None) -> Iterator[_Wish]:
    """Expectations from the last good check; none where the host name now belongs to another machine."""
    gpus = (inventory or {}).get("gpus")
    if inventory is None or type(gpus) is not int or not 0 < gpus < 1000 or inventory.get("machine") != _machine(facts):
        return
    yield _Wish("gpu", "count", str(gpus), "memory", "as the last good check of this node saw")


def _of_machine(facts: Facts, host: str | None) -> Iterator[_Wish]:
    types = facts.query("SELECT DISTINCT type FROM node_machine WHERE host IS ?", (host,))
    entry = machines.machine(types[0][0]) if len(types) == 1 else None
    if entry is None:
        return
    for subject, values in entry["expect"].items():
        for name, value in values.items():
            yield _Wish(subject, name, str(value), "machine", f"machine type {entry['type']}, {entry['source']}")


def _of_file(wanted: Mapping[str, Any]) -> Iterator[_Wish]:
    for subject, values in wanted.items():
        named = values if isinstance(values, Mapping) else dict.fromkeys(values, "")
        for name, value in named.items():
            text = str(int(value)) if isinstance(value, bool) else str(value)
            yield _Wish(subject, str(name), text, "file", "the site's file")


_LEARN = (  # subject, name, question; the answer counts where there is one and only one
    (
        "gpu",
        "count",
        "SELECT count(*) FROM pci_device WHERE kind IN ('gpu', 'amd-gpu') GROUP BY NULL HAVING count(*) > 0",
    ),
    ("gpu", "model", "SELECT DISTINCT model FROM node_gpu"),
    ("gpu", "memory", "SELECT DISTINCT CAST(memory_total AS INTEGER) FROM node_gpu"),
    ("gpu", "power", "SELECT DISTINCT power_limit FROM node_gpu"),
    ("gpu", "ecc", "SELECT DISTINCT ecc FROM gpu_health"),
    ("gpu", "mig", "SELECT DISTINCT mig FROM node_gpu"),
    ("gpu", "persistence", "SELECT DISTINCT persistence FROM node_gpu"),
    ("gpu", "width", "SELECT DISTINCT pcie_width_max FROM node_gpu"),
    ("gpu", "pcie", "SELECT DISTINCT pcie_generation_max FROM node_gpu"),
    ("gpu", "driver", "SELECT DISTINCT driver FROM node_driver WHERE driver IS NOT NULL"),
    ("nvlink", "links", "SELECT DISTINCT links_active FROM node_gpu"),
    ("nvlink", "speed", "SELECT min(speed) FROM gpu_link"),
    ("host", "memory", "SELECT total / 1073741824 FROM host_memory"),
    ("host", "cpus", "SELECT cpus FROM host_load"),
    ("host", "nvme", "SELECT number FROM host_part WHERE name = 'nvme' AND number > 0"),
    ("nvswitch", "count", "SELECT count(*) FROM pci_device WHERE kind = 'nvswitch' GROUP BY NULL HAVING count(*) > 0"),
)


def learn(facts: Facts) -> str:
    """A file for `read` that expects what this node has. Subjects that it does not show are left out."""
    found: dict[str, dict[str, Any]] = {}
    for subject, name, question in (*_LEARN, *_learn_nics(facts)):
        values = [value for (value,) in facts.query(question) if value is not None]
        if len(values) == 1:
            found.setdefault(subject, {})[name] = values[0]
    lines = ["# What nccl-doctor expects of a node: what a good one had. Take out what may differ.", ""]
    for subject, named in found.items():
        lines.append(f"[{subject}]")
        lines += [f"{name} = {_toml(value)}  # {KNOWN[subject][name]}" for name, value in named.items()]
        lines.append("")
    return "\n".join(lines)


def _learn_nics(facts: Facts) -> Iterator[tuple[str, str, str]]:
    if facts.query("SELECT 1 FROM rdma_device WHERE rail = 1 LIMIT 1"):
        yield "nic", "count", "SELECT count(*) FROM rdma_device WHERE rail = 1"
        yield "nic", "kind", "SELECT DISTINCT kind FROM rdma_device WHERE rail = 1"
        yield "nic", "rate", "SELECT min(p.rate) FROM ib_port p JOIN rdma_device d ON d.device = p.hca AND d.rail = 1"


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else json.dumps(str(value))
