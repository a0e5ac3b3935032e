"""GPU models and machine types: what a healthy GPU and a healthy machine have, with the source of each figure."""

import re
from collections.abc import Iterable
from typing import Any

from nccl_doctor.knowledge import entries

Pci = tuple[str, str, str | None]  # kind (gpu, nic, nvswitch), vendor, device


def model(name: str | None, device: str | None = None) -> dict[str, Any] | None:
    """Returns the GPU model by its NVML name, else by its PCI device number; None if unknown."""
    if name:
        upper = name.upper()
        for entry in entries("gpu_models"):
            if re.search(entry["name"], upper):
                return entry
    return next((entry for entry in entries("gpu_models") if device and device in entry["devices"]), None)


def machine(type_: str | None) -> dict[str, Any] | None:
    """Returns the machine type of this name, else None."""
    return next((entry for entry in entries("machine_types") if entry["type"] == type_), None)


def recognise(vendor: str | None, product: str | None, devices: Iterable[Pci]) -> str | None:
    """Returns the machine type by its firmware strings and, if these name only the cloud, by its PCI devices."""
    listed = list(devices)
    for entry in entries("machine_types"):
        if not re.search(entry["vendor"], vendor or "") or not re.search(entry["product"], product or ""):
            continue
        if all(_has(listed, need) for need in entry.get("pci", [])):
            return str(entry["type"])
    return None


def _has(devices: list[Pci], need: dict[str, Any]) -> bool:
    """Returns whether at least `count` devices of a kind, vendor and device number are listed."""
    matching = [
        (kind, vendor, device) for kind, vendor, device in devices
        if kind == need["kind"] and vendor == need.get("vendor", vendor) and device in need.get("devices", [device])
    ]  # fmt: skip
    return len(matching) >= int(need["count"])
