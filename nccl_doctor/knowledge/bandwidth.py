"""Bandwidth of links in GB/s, one direction: NVLink by GPU model, PCIe by generation and width, network ports.

The figures are those that NCCL uses (src/graph/topo.h and topo.cc), 10 to 20 % below the nominal ones. A healthy
all-reduce of large messages reaches 0.8 to 1.0 of them. NVLink SHARP (NVLS) exceeds them, because the switch reduces.
"""

import re
from functools import cache
from typing import Any, NamedTuple

from nccl_doctor.knowledge import entries

LARGE = 32 << 20  # bytes of a message from which bandwidth, not latency, decides
SMALL = 4 << 10  # bytes up to which latency decides


class Gpu(NamedTuple):
    """The links of a GPU model."""

    name: str
    nvlink: float | None  # all its links together; None without NVLink
    generation: int | None
    optional: bool  # True if NVLink is an optional bridge
    pcie: float  # x16


def gpu(model: str) -> Gpu | None:
    """Returns the links of a model by its name in nccl-tests or nvidia-smi; None for an unknown model."""
    for pattern, entry in _models():
        if pattern.search(model):
            width = float(entry["links"] * entry["per_link"])
            return Gpu(entry["name"], width or None, entry["nvlink"], bool(entry["optional"]), pcie(entry["pcie"]))
    return None


@cache
def _models() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((re.compile(entry["pattern"]), entry) for entry in entries("bandwidth") if entry["kind"] == "gpu")


def pcie(generation: int, lanes: int = 16) -> float:
    """Returns the bandwidth of a PCIe link. Raises ValueError for an unknown generation."""
    for entry in entries("bandwidth"):
        if entry["kind"] == "pcie" and entry["generation"] == generation:
            return float(entry["x16"]) * lanes / 16
    raise ValueError(f"PCIe generation {generation} is unknown")


def port(gigabits: float) -> float:
    """Returns the bandwidth of a network port of this speed in Gbit/s."""
    return gigabits / 8


def port_name(gigabits: float) -> str | None:
    """Returns the usual name of ports of this speed, such as NDR; None if there is none."""
    for entry in entries("bandwidth"):
        if entry["kind"] == "nic" and entry["gigabits"] == gigabits:
            return str(entry["name"])
    return None


def sources() -> list[str]:
    """Returns the sources of the figures."""
    return [f"{entry['text']}: {entry['where']}" for entry in entries("bandwidth") if entry["kind"] == "source"]
