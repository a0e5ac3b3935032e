"""GPU models and machine types: what a GPU and a whole machine have when nothing is wrong, with the source of each figure."""

import re
from collections.abc import Iterable
from typing import Any

from nccl_doctor.knowledge import entries

Pci = tuple[str, str, str | None]  # kind (gpu, nic, nvswitch), vendor, device


def model(name: str | None, device: str | None = None) -> dict[str, Any] | None:
    """The GPU model of this NVML name, else of this PCI device number."""
    if name:
        words = name.upper()
        for entry in entries("gpu_models"):
            if re.search(entry["name"], words):
                return entry
    return next((entry for entry in entries("gpu_models") if device and device in entry["devices"]), None)


def machine(type_: str | None) -> dict[str, Any] | None:
    """The machine type of this name."""
    return next((entry for entry in entries("machine_types") if entry["type"] == type_), None)


def recognise(vendor: str | None, product: str | None, devices: Iterable[Pci]) -> str | None:
    """The machine type, from its firmware and, where that names only the cloud, from its PCI devices."""
    found = list(devices)
    for entry in entries("machine_types"):
        if not re.search(entry["vendor"], vendor or "") or not re.search(entry["product"], product or ""):
            continue
        if all(_has(found, need) for need in entry.get("pci", [])):
            return str(entry["type"])
    return None


def _has(found: list[Pci], need: dict[str, Any]) -> bool:
    """True where at least `count` devices of a kind, vendor and device number are there."""
    hits = [
        one for one in found
        if one[0] == need["kind"] and one[1] == need.get("vendor", one[1]) and one[2] in need.get("devices", [one[2]])
    ]  # fmt: skip
    return len(hits) >= int(need["count"])
