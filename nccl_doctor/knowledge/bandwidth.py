"""What links allow, in GB/s of bus bandwidth in one direction: NVLink by GPU model, PCIe by generation and width, network ports.

The figures are those that NCCL itself reckons with (src/graph/topo.h and topo.cc), a tenth or two below the names on the box. A
healthy all-reduce of large messages reaches 0.8 to 1.0 of them; NVLink SHARP (NVLS) passes them, because the switch adds.
"""

import re
from functools import cache
from typing import Any, NamedTuple

from nccl_doctor.knowledge import entries


class Gpu(NamedTuple):
    """The links of a GPU model."""

    name: str
    nvlink: float | None  # all its links together; None without NVLink
    generation: int | None
    optional: bool  # True where NVLink is a bridge that must be bought
    pcie: float  # x16


def gpu(model: str) -> Gpu | None:
    """The links of a model as nccl-tests or nvidia-smi print its name; None for one that is not in the table."""
    for pattern, entry in _models():
        if pattern.search(model):
            width = float(entry["links"] * entry["per_link"])
            return Gpu(entry["name"], width or None, entry["nvlink"], bool(entry["optional"]), pcie(entry["pcie"]))
    return None


@cache
def _models() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((re.compile(entry["pattern"]), entry) for entry in entries("bandwidth") if entry["kind"] == "gpu")


def pcie(generation: int, lanes: int = 16) -> float:
    """A PCIe link of this generation and width."""
    for entry in entries("bandwidth"):
        if entry["kind"] == "pcie" and entry["generation"] == generation:
            return float(entry["x16"]) * lanes / 16
    raise ValueError(f"PCIe has no generation {generation} here")


def port(gigabits: float) -> float:
    """A network port of this speed in Gbit/s."""
    return gigabits / 8


def port_name(gigabits: float) -> str | None:
    """What ports of this speed are called."""
    for entry in entries("bandwidth"):
        if entry["kind"] == "nic" and entry["gigabits"] == gigabits:
            return str(entry["name"])
    return None


def sources() -> list[str]:
    """Where the figures come from."""
    return [f"{entry['text']}: {entry['where']}" for entry in entries("bandwidth") if entry["kind"] == "source"]
