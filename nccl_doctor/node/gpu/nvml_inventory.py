"""Everything that NVML says of a node, as one plain dictionary whose keys are the columns of the tables in `node_gpu`.

What a driver or GPU does not have is None; a call that fails because of the node is listed in `errors`.
"""

import os
import time
from itertools import combinations
from typing import Any

from nccl_doctor.node.gpu.nvml import CODES, Nvml, NvmlFailure

INFOROM_BUDGET = 0.8  # seconds after which the slow check of the infoROM is left out
MOST_LINKS = 36
INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
_FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}
_HEALTH = {0: "degraded bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access timeout"}  # shift -> name
_MISCONFIGURED = {
    2: "wrong system GUID", 3: "wrong chassis", 4: "no partition", 5: "too few NVLinks", 6: "incompatible firmware",
    7: "wrong location", 8: "wrong GPU state",
}  # fmt: skip
_SINGLE: dict[str, tuple[Any, ...]] = {  # column: call and its further arguments
    "minor": ("nvmlDeviceGetMinorNumber",), "model": ("nvmlDeviceGetName",), "uuid": ("nvmlDeviceGetUUID",),
    "vbios": ("nvmlDeviceGetVbiosVersion",), "clock_sm": ("nvmlDeviceGetClockInfo", 1),
    "clock_memory": ("nvmlDeviceGetClockInfo", 2), "clock_sm_max": ("nvmlDeviceGetMaxClockInfo", 1),
    "clock_memory_max": ("nvmlDeviceGetMaxClockInfo", 2), "clock_app": ("nvmlDeviceGetApplicationsClock", 1),
    "clock_app_default": ("nvmlDeviceGetDefaultApplicationsClock", 1), "pstate": ("nvmlDeviceGetPerformanceState",),
    "slowdown": ("nvmlDeviceGetTemperatureThreshold", 1), "margin": ("nvmlDeviceGetMarginTemperature",),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth",), "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth",),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration",),
    "pcie_generation_max": ("nvmlDeviceGetMaxPcieLinkGeneration",), "compute_mode": ("nvmlDeviceGetComputeMode",),
    "persistence": ("nvmlDeviceGetPersistenceMode",),
    "corrected": ("nvmlDeviceGetTotalEccErrors", 0, 0), "uncorrected": ("nvmlDeviceGetTotalEccErrors", 1, 0),
    "corrected_total": ("nvmlDeviceGetTotalEccErrors", 0, 1),
    "uncorrected_total": ("nvmlDeviceGetTotalEccErrors", 1, 1),
}  # fmt: skip
_RETIRED = {"retired_single": 29, "retired_double": 30, "retired_pending": 31}
_FIELDS = {**_RETIRED, "temperature_memory": 82, "recovery": 230}
_FIELD_COUNTERS = {"clock-thermal-us": 270, "clock-brake-us": 271}
_LINK_COUNTERS = {"nvlink-replay": (161, 52), "nvlink-recovery": (162, 59), "nvlink-crc": (163, 38)}  # per link, total
_LINK5_COUNTERS = {"nvlink-link-recovery": 215, "nvlink-receive-errors": 208}  # ports of NVLink 5


def ask(switches: bool = False) -> dict[str, Any]:
    """All that NVML says; `switches`: the node has NVSwitches, so that somebody must run the Fabric Manager."""
    started = time.monotonic()
    whole = int(_whole())
    rows: dict[str, Any] = {"source": "nvml", "whole": whole, "gpus": [], "pairs": [], "errors": []}
    if switches and whole:
        rows["fabric_manager"] = int(_runs("nv-fabricmanage"))  # the kernel keeps 15 characters of a name
    try:
        nvml = Nvml()
    except NvmlFailure as failure:
        rows["errors"].append(_failed(failure))
        return rows
    try:
        rows["system"] = _system(nvml)
        answering: dict[int, Any] = {}
        for gpu in range(nvml.count()):
            rows["gpus"].append(_gpu(nvml, gpu, rows["errors"], answering))
        rows["pairs"] = _pairs(nvml, answering)
        for gpu, handle in answering.items():
            if time.monotonic() - started < INFOROM_BUDGET:
                rows["gpus"][gpu]["inforom"] = _inforom(nvml, handle)
    except NvmlFailure as failure:
        rows["errors"].append(_failed(failure))
    finally:
        rows["seconds"] = round(time.monotonic() - started, 4)
        rows["calls"] = nvml.calls
        nvml.close()
    return rows


def _failed(failure: NvmlFailure, gpu: int | None = None, pci: str | None = None) -> dict[str, Any]:
    return {"gpu": gpu, "pci": pci, "call": failure.call, "code": failure.code, "text": failure.text}


def _whole() -> bool:
    """True outside containers: NVML lists only processes of the caller's own PID namespace."""
    try:
        return os.readlink("/proc/self/ns/pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _runs(name: str) -> bool:
    for pid in os.listdir("/proc"):
        if pid.isdecimal():
            try:
                with open(f"/proc/{pid}/comm", "rb") as file:
                    if file.read(16).strip() == name.encode():
                        return True
            except OSError:
                continue
    return False


def _system(nvml: Nvml) -> dict[str, Any]:
    state = nvml.get("nvmlSystemGetConfComputeState")
    on = int(bool(state.ccFeature)) if state is not None else None
    return {
        "driver": nvml.get("nvmlSystemGetDriverVersion"),
        "nvml": nvml.get("nvmlSystemGetNVMLVersion"),
        "cuda": nvml.first(("nvmlSystemGetCudaDriverVersion_v2",), ("nvmlSystemGetCudaDriverVersion",)),
        "confidential": on,
        "ready": nvml.get("nvmlSystemGetConfComputeGpusReadyState") if on else None,
    }


def _gpu(nvml: Nvml, gpu: int, errors: list[dict[str, Any]], answering: dict[int, Any]) -> dict[str, Any]:
    """One GPU; for one that is lost meanwhile, the answers before."""
    rows: dict[str, Any] = {"gpu": gpu}
    try:
        handle = nvml.handle(gpu)
        info = nvml.get("nvmlDeviceGetPciInfo", handle)
        rows["pci"] = f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" if info is not None else None
        for column, call in _SINGLE.items():
            rows[column] = nvml.get(call[0], handle, *call[1:])
        _load(nvml, handle, rows)
        _memory_health(nvml, handle, rows)
        _fabric(nvml, handle, rows)
        _links(nvml, handle, rows)
        rows["tasks"] = [task._asdict() for task in nvml.tasks(handle)]
        answering[gpu] = handle
    except NvmlFailure as failure:
        errors.append(_failed(failure, gpu, rows.get("pci")))
    return rows


def _load(nvml: Nvml, handle: Any, found: dict[str, Any]) -> None:
    util = nvml.get("nvmlDeviceGetUtilizationRates", handle)
    if util is not None:
        found["util"], found["util_memory"] = int(util.gpu), int(util.memory)
    memory = nvml.memory(handle)
    if memory is not None:
        found["memory_total"], used, reserved = memory[0] / 2**20, memory[1], memory[2]
        if reserved is not None:
            found["memory_used"], found["memory_reserved"] = used / 2**20, reserved / 2**20
    bar = nvml.get("nvmlDeviceGetBAR1MemoryInfo", handle)
    found["bar1_total"] = bar.bar1Total / 2**20 if bar is not None else None
    for column, call in {
        "power": "nvmlDeviceGetPowerUsage", "power_limit": "nvmlDeviceGetEnforcedPowerLimit",
        "power_default": "nvmlDeviceGetPowerManagementDefaultLimit",
    }.items():  # fmt: skip
        value = nvml.get(call, handle)
        found[column] = value / 1000 if value is not None else None
    found["reasons"] = nvml.reasons(handle)
    found["temperature"] = nvml.temperature(handle)
    mig = nvml.get("nvmlDeviceGetMigMode", handle)
    if mig is not None:
        found["mig"], found["mig_pending"] = mig


def _memory_health(nvml: Nvml, handle: Any, found: dict[str, Any]) -> None:
    ecc = nvml.get("nvmlDeviceGetEccMode", handle)
    if ecc is not None:
        found["ecc"], found["ecc_pending"] = ecc
    sram = nvml.structure("nvmlDeviceGetSramEccErrorStatus", ["c_nvmlEccSramErrorStatus_v1_t"], handle)
    if sram is not None:
        found["sram_uncorrected"] = sram.volatileUncParity + sram.volatileUncSecDed
        found["sram_uncorrected_total"] = sram.aggregateUncParity + sram.aggregateUncSecDed
        found["sram_threshold"] = int(bool(sram.bThresholdExceeded))
    else:
        found["sram_uncorrected"] = nvml.get("nvmlDeviceGetMemoryErrorCounter", handle, 1, 0, 7)
        found["sram_uncorrected_total"] = nvml.get("nvmlDeviceGetMemoryErrorCounter", handle, 1, 1, 7)
    rows = nvml.get("nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        names = ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")
        found.update(zip(names, map(int, rows), strict=True))
        banks = nvml.get("nvmlDeviceGetRowRemapperHistogram", handle)
        found["remap_banks_none"] = int(banks.none) if banks is not None else None
    values = nvml.fields(handle, [*_FIELDS.values(), *_FIELD_COUNTERS.values()])
    found.update(zip(_FIELDS, values, strict=False))
    counters = dict(zip(_FIELD_COUNTERS, values[len(_FIELDS) :], strict=True))
    counters["pcie-replay"] = nvml.get("nvmlDeviceGetPcieReplayCounter", handle)
    counters["ecc-corrected"] = found.get("corrected")
    found["counters"] = {name: value for name, value in counters.items() if value is not None}


def _fabric(nvml: Nvml, handle: Any, found: dict[str, Any]) -> None:
    info = nvml.structure(
        "nvmlDeviceGetGpuFabricInfoV", ["c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"], handle
    ) or nvml.structure("nvmlDeviceGetGpuFabricInfo", ["c_nvmlGpuFabricInfo_t"], handle)
    state = _FABRIC_STATES.get(info.state) if info is not None else None
    if state is None:
        return
    found["fabric_state"], found["fabric_status"] = state, int(info.status)
    identity = bytes(info.clusterUuid).hex()
    found["cluster"], found["clique"] = (identity if identity.strip("0") else None), int(info.cliqueId)
    mask = getattr(info, "healthMask", None)
    if mask is not None:
        found["fabric_health"] = ", ".join(complaints(mask))


def complaints(mask: int) -> list[str]:
    """What the health mask of the fabric says is wrong; each part holds 0 not supported, 1 true, 2 false."""
    rows = [name for shift, name in _HEALTH.items() if mask >> shift & 3 == 1]
    wrong = _MISCONFIGURED.get(mask >> 8 & 15)
    return [*rows, wrong] if wrong else rows


def _links(nvml: Nvml, handle: Any, found: dict[str, Any]) -> None:
    count, common = nvml.fields(handle, [91, 90])
    states = []
    for link in range(MOST_LINKS if count is None else min(count, MOST_LINKS)):
        state = nvml.get("nvmlDeviceGetNvLinkState", handle, link)
        if state is None and count is None:
            break
        if state is not None:
            states.append((link, int(state)))
    if not states:
        found["links"] = count
        return
    names = [*_LINK_COUNTERS, *_LINK5_COUNTERS]
    per_link = [164, *(one for one, _ in _LINK_COUNTERS.values()), *_LINK5_COUNTERS.values()]
    values = nvml.fields(handle, [(field, link) for link, _ in states for field in per_link])
    totals = dict(zip(_LINK_COUNTERS, nvml.fields(handle, [old for _, old in _LINK_COUNTERS.values()]), strict=True))
    found["links"], found["links_active"], found["nvlinks"] = len(states), sum(state for _, state in states), []
    sums: dict[str, int] = {}
    for index, (link, state) in enumerate(states):
        speed, *counts = values[index * len(per_link) : (index + 1) * len(per_link)]
        speed = speed or common
        found["nvlinks"].append({"link": link, "active": state, "speed": speed / 1000 if speed and state else None})
        for name, value in zip(names, counts, strict=True):
            if value is not None:
                sums[name] = sums.get(name, 0) + value
    found["counters"].update({name: value for name, value in totals.items() if value is not None} | sums)


def _pairs(nvml: Nvml, answering: dict[int, Any]) -> list[list[int | None]]:
    """[GPU, peer, level, P2P reads, P2P over NVLink] of each pair; pynvml's own NVML_P2P_CAPS_INDEX_READ is a tuple."""
    pairs: list[list[int | None]] = []
    for gpu, peer in combinations(answering, 2):
        one, other = answering[gpu], answering[peer]
        try:
            level = nvml.get("nvmlDeviceGetTopologyCommonAncestor", one, other)
            read, link = (nvml.get("nvmlDeviceGetP2PStatus", one, other, cap) for cap in (0, 2))
        except NvmlFailure:  # lost since it was asked
            continue
        pairs.append([gpu, peer, level, read, link])
    return pairs


def _inforom(nvml: Nvml, handle: Any) -> int | None:
    """1 valid, 0 corrupt, None where the GPU cannot say."""
    try:
        nvml.must("nvmlDeviceValidateInforom", handle)
    except NvmlFailure as failure:
        return 0 if CODES.get(failure.code) == "inforom-corrupt" else None
    return 1
