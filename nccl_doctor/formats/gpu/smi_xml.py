"""`nvidia-smi -q -x` as the dictionary of `nvml_ask`, for a node where the library cannot be loaded by us."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from xml.parsers import expat

COMMAND = ("nvidia-smi", "-q", "-x")
_STATES = {"Enabled": 1, "Disabled": 0, "Yes": 1, "No": 0, "Active": 1, "Not Active": 0, "True": 1, "False": 0}
_MODES = {"Default": 0, "Prohibited": 2, "Exclusive_Process": 3}
_RECOVERY = {"None": 0, "GPU Reset": 1, "Node Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
_REASONS = {
    "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10, "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80, "gpu_idle": 0x1, "applications_clocks_setting": 0x2,
}  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,6})?")
_STATUSES = {"Success": 0, "Not Supported": 3, "Timeout": 10, "Insufficient Resources": 23}
_UNKNOWN_ERROR = 999  # NVML_ERROR_UNKNOWN
_FABRIC = {"Not Started": "not-started", "In Progress": "in-progress", "Completed": "completed"}


@lru_cache(1 << 12)  # most GPUs of a cluster say the same
def number(text: str) -> float | None:
    """`700.00 W`, `16x`, `81559 MiB` -> the number; None for `N/A` or `[Not Supported]`."""
    match = _NUMBER.match(text)
    return float(match[0]) if match else None


def _whole(text: str) -> int | None:
    value = number(text)
    return int(value) if value is not None else None


def _fabric_status(text: str) -> int | None:
    """The code of NVML behind its words; None where the fabric has none yet."""
    return None if text in ("N/A", "[N/A]") else _STATUSES.get(text, _UNKNOWN_ERROR)


class Column(NamedTuple):
    """What the text of a place is."""

    name: str
    read: Callable[[str], Any]


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "product_name": ("model", str), "uuid": ("uuid", str), "vbios_version": ("vbios", str),
    "minor_number": ("minor", _whole), "persistence_mode": ("persistence", _STATES.get),
    "compute_mode": ("compute_mode", _MODES.get), "performance_state": ("pstate", lambda text: _whole(text[1:])),
    "mig_mode/current_mig": ("mig", _STATES.get), "mig_mode/pending_mig": ("mig_pending", _STATES.get),
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": ("pcie_generation_max", _whole),
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": ("pcie_generation", _whole),
    "pci/pci_gpu_link_info/link_widths/max_link_width": ("pcie_width_max", _whole),
    "pci/pci_gpu_link_info/link_widths/current_link_width": ("pcie_width", _whole),
    "fb_memory_usage/total": ("memory_total", number), "fb_memory_usage/used": ("memory_used", number),
    "fb_memory_usage/reserved": ("memory_reserved", number), "bar1_memory_usage/total": ("bar1_total", number),
    "utilization/gpu_util": ("util", _whole), "utilization/memory_util": ("util_memory", _whole),
    "ecc_mode/current_ecc": ("ecc", _STATES.get), "ecc_mode/pending_ecc": ("ecc_pending", _STATES.get),
    "retired_pages/multiple_single_bit_retirement/retired_count": ("retired_single", _whole),
    "retired_pages/double_bit_retirement/retired_count": ("retired_double", _whole),
    "retired_pages/pending_retirement": ("retired_pending", _STATES.get),
    "retired_pages/pending_blacklist": ("retired_pending", _STATES.get),
    "remapped_rows/remapped_row_corr": ("remapped_corrected", _whole),
    "remapped_rows/remapped_row_unc": ("remapped_uncorrected", _whole),
    "remapped_rows/remapped_row_pending": ("remap_pending", _STATES.get),
    "remapped_rows/remapped_row_failure": ("remap_failed", _STATES.get),
    "temperature/gpu_temp": ("temperature", _whole), "temperature/memory_temp": ("temperature_memory", _whole),
    "temperature/gpu_temp_slow_threshold": ("slowdown", _whole),
    "temperature/gpu_temp_tlimit": ("margin", _whole),
    "power_readings/power_draw": ("power", number), "gpu_power_readings/power_draw": ("power", number),
    "gpu_power_readings/instant_power_draw": ("power", number),
    "power_readings/enforced_power_limit": ("power_limit", number),
    "gpu_power_readings/current_power_limit": ("power_limit", number),
    "power_readings/default_power_limit": ("power_default", number),
    "gpu_power_readings/default_power_limit": ("power_default", number),
    "clocks/sm_clock": ("clock_sm", _whole), "clocks/mem_clock": ("clock_memory", _whole),
    "max_clocks/sm_clock": ("clock_sm_max", _whole), "max_clocks/mem_clock": ("clock_memory_max", _whole),
    "applications_clocks/graphics_clock": ("clock_app", _whole),
    "default_applications_clocks/graphics_clock": ("clock_app_default", _whole),
    "fabric/state": ("fabric_state", _FABRIC.get), "fabric/status": ("fabric_status", _fabric_status),
    "gpu_recovery_action": ("recovery", _RECOVERY.get),
    "ecc_errors/volatile/sram_threshold_exceeded": ("sram_threshold", _STATES.get),
    "ecc_errors/aggregate/sram_threshold_exceeded": ("sram_threshold", _STATES.get),
}  # fmt: skip
COLUMNS = {place: Column(*column) for place, column in _READ.items()}
"""Place in the XML -> what it fills."""

_FABRIC_PARTS = {
    "bandwidth": "degraded bandwidth", "route_recovery_in_progress": "route recovery", "route_unhealthy": "route unhealthy",
    "access_timeout_recovery": "access timeout", "incorrect_configuration": "wrong configuration",
}  # fmt: skip
_SUMMARIES = ("unhealthy", "limited capacity")  # which say less than the parts behind them
_FABRIC_WELL = ("n/a", "full", "false", "none", "no", "not supported")
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons/clocks_(?:event|throttle)_reason_(\w+)")
_ECC = re.compile(r"ecc_errors/(volatile|aggregate)/(?:(sram|dram)_)?(.*)")


class _Refused(Exception):
    """The document declares an entity, which nvidia-smi never does."""


def parse(text: str) -> dict[str, Any]:
    """The fields of one document; a part that is missing or unreadable is left out, broken XML gives the parts before.

    Source: `nvidia-smi -q -x` of drivers 390 and newer (nvsmi_device_v*.dtd)::

        <gpu id="00000000:1B:00.0">
            <product_name>NVIDIA H100 80GB HBM3</product_name>
    """
    found: dict[str, Any] = {"source": "nvidia-smi", "system": {}, "gpus": [], "pairs": [], "errors": []}
    path: list[str] = []
    words: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        words.clear()
        if path[1:] == ["gpu"]:
            pci = attributes.get("id", "").lower()
            found["gpus"].append({"gpu": len(found["gpus"]), "pci": pci[-12:] or None, "tasks": [], "counters": {}})

    def end(_: str) -> None:
        value = "".join(words).strip()
        if path[1:2] == ["gpu"] and value:
            take(found["gpus"][-1], "/".join(path[2:]), value)
        elif len(path) == 2 and value:
            _system(found["system"], path[1], value)
        path.pop()
        words.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, words.append
    parser.EntityDeclHandler = _refuse
    with suppress(expat.ExpatError, _Refused):
        parser.Parse(text, True)
    return found


def _refuse(*_: object) -> None:
    raise _Refused


def _system(system: dict[str, Any], name: str, value: str) -> None:
    value = value.partition(" [")[0]  # 610 marks titles that it will leave out
    if name in ("driver_version", "kmd_version"):
        system["driver"] = value
    elif name in ("cuda_version", "cuda_umd_version") and (match := re.fullmatch(r"(\d{1,3})\.(\d{1,2})", value)):
        system["cuda"] = int(match[1]) * 1000 + int(match[2]) * 10


def is_read(place: str) -> bool:
    """Whether `take` uses the text at a path of the XML."""
    if place in COLUMNS or place == "pci/replay_counter" or _REASON.fullmatch(place) or _ECC.fullmatch(place):
        return True
    return place.startswith(("fabric/health/", "processes/process_info/"))


def take(gpu: dict[str, Any], place: str, value: str) -> None:
    """Put the text at a path of the XML below `gpu` into its column."""
    known = COLUMNS.get(place)
    if known is not None:
        made = known.read(value)
        if made is not None:
            gpu.setdefault(known.name, made)
        return
    reason = _reason(place)
    if reason is not None:
        gpu["reasons"] = gpu.get("reasons", 0) | (_REASONS.get(reason, 0) if value == "Active" else 0)
    elif place.startswith("fabric/health/") and place.rpartition("/")[2] in _FABRIC_PARTS:
        complaint = "" if value.lower() in _FABRIC_WELL else _FABRIC_PARTS[place.rpartition("/")[2]]
        known = gpu.get("fabric_health")
        gpu["fabric_health"] = ", ".join(filter(None, ["" if complaint and known in _SUMMARIES else known, complaint]))
    elif place == "fabric/health/summary" and value.lower() in _SUMMARIES:
        gpu["fabric_health"] = value.lower()
    elif place == "pci/replay_counter" and (count := _whole(value)) is not None:
        gpu["counters"]["pcie-replay"] = count
    elif place.startswith("processes/process_info/"):
        _task(gpu["tasks"], place.rpartition("/")[2], value)
    elif (count := _whole(value)) is not None:
        for name in ecc_sums(place):
            gpu[name] = gpu.get(name, 0) + count


def _task(tasks: list[dict[str, Any]], name: str, value: str) -> None:
    if name == "pid":
        tasks.append({"pid": _whole(value), "kind": "C", "memory": None})
    elif tasks and name == "type":
        tasks[-1]["kind"] = "G" if value == "G" else "C"
    elif tasks and name == "used_memory":
        used = number(value)
        tasks[-1]["memory"] = int(used * 2**20) if used is not None else None


@lru_cache(1 << 10)
def _reason(place: str) -> str | None:
    """The reason for lower clocks of which a place of the XML tells; None for other places."""
    match = _REASON.fullmatch(place)
    return None if match is None else match[1]


@lru_cache(1 << 10)
def ecc_sums(place: str) -> tuple[str, ...]:
    """The sums over the memories of a GPU to which the errors at a place of the XML count; SRAM has one of its own."""
    match = _ECC.fullmatch(place)
    if match is None:
        return ()
    kind, memory, name = match.groups()
    ending = "_total" if kind == "aggregate" else ""
    if "uncorrectable" in name or name == "double_bit/total":
        every = f"uncorrected{ending}"
        return (every, f"sram_{every}") if memory == "sram" else (every,)
    return (f"corrected{ending}",) if "correctable" in name or name == "single_bit/total" else ()
