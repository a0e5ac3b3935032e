"""What the NVIDIA driver of an invented node shows: NVML, /proc/driver/nvidia, device files."""

from itertools import combinations
from typing import Any

from nccl_doctor.simulate.node import bus
from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.tree import Tree, part

DRIVER = "550.90.07"
UVM_MAJOR = 511
_SPEEDS = {6: 25.781, 12: 25.0, 18: 26.562}  # GB/s of one NVLink, by their number
_CLOCKS = {"V100": (1530, 877), "A100": (1410, 1215), "H100": (1980, 2619), "H200": (1980, 3201), "B200": (1965, 3996)}


@part
def kernel(tree: Tree, machine: Machine) -> None:
    """The driver's files in /proc, its modules and device files."""
    if machine.amd:
        return
    kind = (
        "NVIDIA UNIX x86_64 Kernel Module" if machine.capability[0] < 9 else "NVIDIA UNIX Open Kernel Module for x86_64"
    )
    tree.put(
        "/proc/driver/nvidia/version",
        f"NVRM version: {kind}  {DRIVER}  Fri May 31 09:35:42 UTC 2024\nGCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1)",
    )
    tree.put("/proc/driver/nvidia/params", "EnableGpuFirmware: 18\nModifyDeviceFiles: 1\nNvLinkDisable: 0")
    tree.put("/sys/module/nvidia/version", DRIVER)
    old = tree.files.get("/proc/modules", "")
    names = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
    tree.put("/proc/modules", old + "\n".join(f"{name} 1736704 0 - Live 0x0000000000000000" for name in names))
    devices = tree.files.get("/proc/devices") or "Character devices:\n  1 mem\n\nBlock devices:\n259 blkext\n"
    ours = f"195 nvidia\n195 nvidiactl\n{UVM_MAJOR} nvidia-uvm\n"
    tree.put("/proc/devices", devices.replace("\nBlock devices:", f"{ours}\nBlock devices:"))
    tree.put("/usr/bin/nvidia-modprobe", "")
    device_file(tree, "/dev/nvidiactl", 195, 255)
    device_file(tree, "/dev/nvidia-uvm", UVM_MAJOR, 0)
    for number, place in enumerate(bus.gpus(machine)):
        device_file(tree, f"/dev/nvidia{number}", 195, number)
        firmware = "N/A" if machine.capability[0] < 9 else DRIVER
        tree.put(
            f"/proc/driver/nvidia/gpus/{place.pci}/information",
            f"Model: \t\t {machine.gpu}\nIRQ:   \t\t {200 + number}\nGPU UUID: \t {uuid(number)}\nVideo BIOS: \t {_vbios(machine)}\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: \t {place.pci}\nDevice Minor: \t {number}\n"
            f"GPU Firmware: \t {firmware}\nGPU Excluded:\t No",
        )


@part
def nvml(tree: Tree, machine: Machine) -> None:
    """The library's answers, as they are kept of a live node."""
    if machine.amd:
        return
    told: dict[str, Any] = {
        "source": "nvml", "seconds": 0.08, "calls": 612, "whole": 1, "errors": [],
        "system": {"driver": DRIVER, "nvml": f"12.{DRIVER}", "cuda": 12040, "confidential": 0, "ready": None},
        "gpus": [_gpu(machine, number, place.pci) for number, place in enumerate(bus.gpus(machine))],
        "pairs": [_pair(machine, *pair) for pair in combinations(range(machine.gpus), 2)],
    }  # fmt: skip
    if machine.nvswitches:
        told["fabric_manager"] = 1
    tree.extra["nvml"] = told


def _gpu(machine: Machine, number: int, pci: str) -> dict[str, Any]:
    clock, memory_clock = next((c for name, c in _CLOCKS.items() if name in machine.gpu), (2520, 9001))
    pages = machine.capability[0] < 8
    found: dict[str, Any] = {
        "gpu": number, "minor": number, "uuid": uuid(number), "pci": pci, "model": machine.gpu, "vbios": _vbios(machine),
        "util": 0, "util_memory": 0, "memory_total": float(machine.memory), "memory_used": 1.0,
        "memory_reserved": 547.0, "bar1_total": float(1 << (machine.memory - 1).bit_length()),
        "power": round(machine.power * 0.1 + number, 1), "power_limit": float(machine.power),
        "power_default": float(machine.power), "clock_sm": 345, "clock_memory": memory_clock, "clock_sm_max": clock,
        "clock_memory_max": memory_clock, "clock_app": clock - 120, "clock_app_default": clock - 120, "reasons": 1,
        "pstate": 0, "temperature": 29 + number % 4, "temperature_memory": None if pages else 38, "slowdown": 87,
        "margin": 56, "pcie_width": 16, "pcie_width_max": 16, "pcie_generation": 1,
        "pcie_generation_max": machine.pcie, "mig": None if pages else 0, "mig_pending": None if pages else 0,
        "compute_mode": 0, "persistence": 1, "ecc": 1, "ecc_pending": 1, "corrected": 0, "uncorrected": 0,
        "corrected_total": 2, "uncorrected_total": 0, "sram_uncorrected": 0, "sram_uncorrected_total": 0,
        "inforom": 1, "tasks": [], "counters": {"pcie-replay": 0, "ecc-corrected": 0},
    }  # fmt: skip
    if pages:
        found.update(retired_single=0, retired_double=0, retired_pending=0)
    else:
        found.update(remapped_corrected=0, remapped_uncorrected=0, remap_pending=0, remap_failed=0, remap_banks_none=0)
    if machine.capability[0] >= 9:
        found.update(sram_threshold=0, recovery=0)
        found.update(fabric_state="completed", fabric_status=0, fabric_health="")
    if machine.nvlinks:
        speed = 53.125 if "B200" in machine.gpu else _SPEEDS[machine.nvlinks]
        found.update(links=machine.nvlinks, links_active=machine.nvlinks)
        found["nvlinks"] = [{"link": link, "active": 1, "speed": speed} for link in range(machine.nvlinks)]
        found["counters"].update({"nvlink-replay": 0, "nvlink-recovery": 0, "nvlink-crc": 0})
    return found


def _pair(machine: Machine, gpu: int, peer: int) -> list[int]:
    """Cubes of V100 join each GPU with four others; NVSwitches join all; boards without NVLink meet over PCIe."""
    near = gpu * machine.sockets // machine.gpus == peer * machine.sockets // machine.gpus
    level = 40 if near else 50
    if not machine.nvlinks:
        return [gpu, peer, level, 0 if near else 1, 5]
    joined = machine.nvswitches > 0 or near or peer - gpu == 4
    return [gpu, peer, level, 0, 0 if joined else 5]


def _vbios(machine: Machine) -> str:
    return f"{86 + machine.capability[0]}.00.{machine.capability[1]:02d}.00.01"


def uuid(number: int) -> str:
    return f"GPU-5a1c9f00-0000-4000-8000-{number:012d}"


def device_file(tree: Tree, path: str, major: int, minor: int, mode: int = 0o20666) -> None:
    tree.stat(path, mode=mode, uid=0, gid=0, device=major << 8 | minor, opens="")


def told(tree: Tree, number: int | None = None) -> dict[str, Any]:
    """What NVML says of one GPU, or as a whole."""
    whole = tree.extra["nvml"]
    if number is None:
        return whole
    found: dict[str, Any] = next(gpu for gpu in whole["gpus"] if gpu["gpu"] == number)
    return found


def refuse(tree: Tree, code: int, text: str, call: str = "nvmlInit") -> None:
    """The library does not start."""
    whole = tree.extra["nvml"]
    whole.update(
        gpus=[], pairs=[], system={}, errors=[{"gpu": None, "pci": None, "call": call, "code": code, "text": text}]
    )
