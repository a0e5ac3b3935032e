"""Maps column names of GPU monitoring tools to the names used in this package."""

import re
from functools import lru_cache

RENAMED = {
    "index": "index",
    "gpu": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "bus",
    "gpu_bus_id": "bus",
    "name": "model",
    "gpu_name": "model",
    "hostname": "host",
    "utilization.gpu": "util",
    "utilization.aip": "util",  # of hl-smi
    "temperature.aip": "temperature",
    "memory.used": "memory",
    "memory.total": "memory_total",
    "power.draw": "power",
    "power.draw.average": "power",
    "power.draw.instant": "power",
    "power.limit": "power_limit",
    "enforced.power.limit": "power_limit",
    "clocks.sm": "clock",
    "clocks.current.sm": "clock",
    "clocks.gr": "clock",
    "clocks.current.graphics": "clock",
    "clocks.max.sm": "clock_max",
    "temperature.gpu": "temperature",
    "pcie.link.width.current": "width",
    "pcie.link.width.max": "width_max",
    "timestamp": "time",
    # in tables of people's own
    "datetime": "time",
    "time": "time",
    "gpu_id": "index",
    "index_gpu": "index",
    "pci_bus_id": "bus",
    "gpu_index": "index",
    **dict.fromkeys(("util", "utilization", "gpu_util", "gpu_utilization", "gpu_use", "gpu_busy", "gpu_load"), "util"),
    **dict.fromkeys(("memory_used", "mem_used", "gpu_memory_used", "gpu_mem_used", "vram_used"), "memory"),
    **dict.fromkeys(("memory_total", "mem_total", "gpu_memory_total", "gpu_mem_total", "vram_total"), "memory_total"),
    **dict.fromkeys(("power_limit", "power_cap"), "power_limit"),
    **dict.fromkeys(("power", "power_draw", "power_usage", "gpu_power"), "power"),
    **dict.fromkeys(
        ("temp", "temperature", "gpu_temp", "gpu_temperature", "temp_edge", "temp_junction", "edge_temp"), "temperature"
    ),
    **dict.fromkeys(("sm_clock", "clock_sm", "clocks_sm", "gr_clock", "graphics_clock", "clock_graphics"), "clock"),
}
"""Columns of `nvidia-smi --query-gpu`; a later name of the same thing wins nothing, the first in the file counts."""

REASONS = {
    "hw_slowdown": 0x8,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "sw_power_cap": 0x4,
}
REASON_NAMES = {
    0x4: "power-cap",
    0x8: "hw-slowdown",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "power-brake",
}
"""NVML clock event reasons; those that are no fault and say nothing (idle, application clocks, sync boost) are left out."""

_REASON = re.compile(r"clocks_(?:throttle|event)_reasons(?:_counters)?\.(\w+)$")
_COUNTERS = (
    (re.compile(r"ecc\.errors\.uncorrected\.volatile\.total$"), "ecc-uncorrected"),
    (re.compile(r"ecc\.errors\.corrected\.volatile\.total$"), "ecc-corrected"),
    (re.compile(r"retired_pages\.(?:double_bit\.count|dbe)$"), "retired-pages"),
    (re.compile(r"retired_pages\.pending$"), "retired-pending"),
    (re.compile(r"remapped_rows\.pending$"), "remap-pending"),
    (re.compile(r"remapped_rows\.failure$"), "remap-failed"),
    (re.compile(r"remapped_rows\.uncorrectable$"), "remapped-rows"),
)
_OWN_UNIT = re.compile(r"_(?:percent|pct|mb|mib|gb|gib|bytes|w|watts|c|celsius|mhz)$")
_FACTORS = (("_bytes", 1 / (1 << 20)), ("_gb", 1024.0), ("_gib", 1024.0))  # to MiB
_UNIT = re.compile(r"\s{0,40}(?:\[[^\]]{0,200}\]|\([^()]{1,12}\))\s{0,40}$")


@lru_cache(64)  # JSON repeats the names in every record
def canonical(header: tuple[str, ...]) -> tuple[str | None, ...]:
    """What each column is called here; None for one that is not used or already there.

    `reason:HEX` is a yes-or-no column of one clock event reason, `mask` their sum, `counter:NAME` an error counter.
    """
    seen: set[str] = set()
    names: list[str | None] = []
    for title in header:
        name = _name(_UNIT.sub("", title.strip()).strip()) or _name(_OWN_UNIT.sub("", title.strip()))
        names.append(None if name in seen else name)
        if name is not None:
            seen.add(name)
    return tuple(names)


_WANDB = re.compile(r"(?:system[./])?gpu\.(\d{1,3})\.(\w{1,40})$")
_WANDB_COLUMNS = {
    "gpu": "util", "temp": "temperature", "powerWatts": "power", "enforcedPowerLimitWatts": "power_limit", "smClock": "clock",
    "memoryAllocatedBytes": "memory",
}  # fmt: skip


@lru_cache(4096)
def wandb_column(key: str) -> tuple[int, str] | None:
    """Number of a GPU and column of a metric of the system as Weights & Biases keeps it: `system.gpu.3.powerWatts`.

    Source: wandb `core/pkg/monitor/gpu_nvidia.go`, before 0.15 `wandb/sdk/internal/stats.py`. Memory is in bytes.
    """
    found = _WANDB.match(key)
    column = _WANDB_COLUMNS.get(found[2]) if found is not None else None
    return (int(found[1]), column) if found is not None and column is not None else None


def factor_of(title: str) -> float:
    """What makes the numbers of a column of people's own those of this package: `vram_used_bytes` counts MiB here."""
    return next((factor for end, factor in _FACTORS if title.strip().endswith(end)), 1.0)


def _name(title: str) -> str | None:
    if title in RENAMED:
        return RENAMED[title]
    reason = _REASON.match(title)
    if reason is not None:
        if reason[1] == "active":
            return "mask"
        return f"reason:{REASONS[reason[1]]:x}" if reason[1] in REASONS and "counters" not in title else None
    return next((f"counter:{name}" for pattern, name in _COUNTERS if pattern.match(title)), None)


LIMITS = (
    (r"GB200|B300", 1200.0),
    (r"B200", 1000.0),
    (r"H200|H100(?!.*PCIe)|H800|H20\b", 700.0),
    (r"H100.*PCIe", 350.0),
    (r"A100.*PCIE|A100.*PCIe", 300.0),
    (r"A100|A800", 400.0),
    (r"V100.*PCIE", 250.0),
    (r"V100", 300.0),
    (r"P100", 300.0),
    (r"L40S", 350.0),
    (r"L40\b|A40\b", 300.0),
    (r"A30\b", 165.0),
    (r"A10G?\b", 150.0),
    (r"L4\b|T4\b", 72.0),
)
"""Board power in W by model, from NVIDIA's data sheets; used only where the file has no limit."""


def limit_of(model: str | None) -> float | None:
    """Board power of a model in W, where it is known."""
    return next((watts for pattern, watts in LIMITS if model and re.search(pattern, model)), None)
