"""GPUs, NVSwitches and network cards on the PCI bus, the NVIDIA driver's kernel files and its device files."""

import os
import re
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import GpuFile, GpuHint, NodeCounter, NodeDriver, NodeMachine, PciDevice
from nccl_doctor.knowledge import machines
from nccl_doctor.node.gpu import hints
from nccl_doctor.node.runtime.root import Absent, Root, fields

TABLES = (NodeMachine, GpuHint, PciDevice, GpuFile, NodeDriver, NodeCounter)
BUS = "/sys/bus/pci/devices"
NVIDIA, AMD = "0x10de", "0x1002"
_NIC_VENDORS = {"0x15b3", "0x1d0f", "0x1ae0", "0x14e4", "0x8086"}  # Mellanox, Amazon, Google, Broadcom, Intel
_AER = {"aer_dev_correctable": "COR", "aer_dev_nonfatal": "NONFATAL", "aer_dev_fatal": "FATAL"}
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ACS_ID = 0x000D
_ACS_REDIRECT = 0x0C  # request and completion redirect


class Device(NamedTuple):
    """A device that belongs to us."""

    pci: str
    kind: str
    vendor: str
    device: str | None


def devices(root: Root) -> list[Device]:
    """GPUs, NVSwitches and network cards. Three small files are read of each device on the bus at most."""
    rows = []
    for pci in root.names(BUS):
        vendor = root.value(f"{BUS}/{pci}/vendor")
        if vendor not in (NVIDIA, AMD) and vendor not in _NIC_VENDORS:
            continue
        kind = _kind(vendor, root.value(f"{BUS}/{pci}/class") or "")
        if kind is not None:
            rows.append(Device(pci, kind, vendor, root.value(f"{BUS}/{pci}/device")))
    return rows


def _kind(vendor: str, class_: str) -> str | None:
    if vendor == NVIDIA:
        if class_.startswith(("0x0302", "0x0300")):
            return "gpu"
        return "nvswitch" if class_.startswith("0x0680") else None
    if vendor == AMD:
        return "amd-gpu" if class_.startswith(("0x1200", "0x0380", "0x0302")) else None
    return "nic" if class_.startswith(("0x0200", "0x0207", "0x0280")) else None


def collect(root: Root) -> Iterator[Any]:
    on_bus = devices(root)
    vendor, product = root.value("/sys/class/dmi/id/sys_vendor"), root.value("/sys/class/dmi/id/product_name")
    type_ = machines.recognise(vendor, product, [(d.kind, d.vendor, d.device) for d in on_bus])
    seen = Seen("/sys/class/dmi/id/product_name", f"{vendor or '?'} {product or '?'}")
    yield NodeMachine(None, vendor, product, type_, _container(root), seen)
    kinds = [device.kind for device in on_bus]
    if not any(kind.endswith("gpu") for kind in kinds):
        yield from hints.collect(root, kinds)
    if not on_bus and not root.exists("/proc/driver/nvidia/version"):
        raise Absent("no GPU of NVIDIA or AMD and no network card for RDMA on the PCI bus")
    bridges: dict[str, None] = {}
    for device in on_bus:
        way = _way(root, device.pci)
        bridges.update(dict.fromkeys(way))
        yield _row(root, device, way)
        yield from _counters(root, device.pci)
    for bridge in bridges:
        way = _way(root, bridge)
        ids = root.value(f"{BUS}/{bridge}/vendor") or "?", root.value(f"{BUS}/{bridge}/device")
        yield _row(root, Device(bridge, "bridge", *ids), way)
    if any(device.vendor == NVIDIA for device in on_bus) or root.exists("/proc/driver/nvidia/version"):
        yield from _files(root)
        yield _driver(root, sum(device.kind == "gpu" for device in on_bus))


def _row(root: Root, device: Device, way: list[str]) -> PciDevice:
    base = f"{BUS}/{device.pci}"
    about = information(root, device.pci) if device.kind == "gpu" else {}
    driver = root.target(f"{base}/driver")
    numa = integer(root.value(f"{base}/numa_node"))
    width, width_max = (lanes(root.value(f"{base}/{name}_link_width")) for name in ("current", "max"))
    speed, speed_max = (rate(root.value(f"{base}/{name}_link_speed")) for name in ("current", "max"))
    answers, acs = config(_head(root, f"{base}/config"))
    shown = f"{device.kind} {device.vendor}:{device.device}, link x{width} of x{width_max}, {speed} of {speed_max} GT/s"
    if answers == 0:
        shown = "configuration space reads ff ff ff ff"
    firmware = about.get("GPU Firmware")
    return PciDevice(
        host=None, pci=device.pci, kind=device.kind, vendor=device.vendor, device=device.device,
        driver=os.path.basename(driver) if driver else None, parent=way[-1] if way else None,
        path="/".join(way) or None, numa=numa, width=width, width_max=width_max, speed=speed, speed_max=speed_max,
        answers=answers, acs=acs, excluded={"Yes": 1, "No": 0}.get(about.get("GPU Excluded", "")),
        minor=integer(about.get("Device Minor")), firmware=firmware if firmware != "N/A" else None,
        ref=Seen(base, shown),
    )  # fmt: skip


def _way(root: Root, pci: str) -> list[str]:
    """The bridges between the root complex and a device, from the top."""
    target = root.target(f"{BUS}/{pci}")
    if target is None:
        return []
    return [part for part in target.split("/")[:-1] if _ADDRESS.fullmatch(part)]


def _head(root: Root, path: str) -> bytes | None:
    """The configuration space: 64 bytes, 4096 for root. A tree holds it as hex words."""
    if not root.live:
        text = root.value(path)
        try:
            return bytes.fromhex(text) if text else None
        except ValueError:
            return None
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return None


def config(content: bytes | None) -> tuple[int | None, int | None]:
    """Whether a device answers, and for a bridge whether ACS redirects traffic between its devices."""
    if not content or len(content) < 4:
        return None, None
    if content[:4] == b"\xff\xff\xff\xff":
        return 0, None
    return 1, _acs(content)


def _acs(content: bytes) -> int | None:
    """Walks the extended capabilities (PCIe specification 7.9), which only root reads; None where there is none."""
    at = 0x100
    for _ in range(64):
        if at < 0x100 or at + 8 > len(content):
            return None
        head = int.from_bytes(content[at : at + 4], "little")
        if head & 0xFFFF == _ACS_ID:
            control = int.from_bytes(content[at + 6 : at + 8], "little")
            return int(bool(control & _ACS_REDIRECT))
        at = head >> 20
    return None


def lanes(text: str | None) -> int | None:
    """`16` -> 16; 0 and 255 mean that the link is not known, as in virtual machines."""
    number = integer(text)
    return number if number is not None and 0 < number <= 32 else None


def rate(text: str | None) -> float | None:
    """`16.0 GT/s PCIe` or `8 GT/s` -> GT/s; None for `Unknown`."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text or "")
    return float(match[1]) if match else None


def integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None


def information(root: Root, pci: str) -> dict[str, str]:
    """The fields of /proc/driver/nvidia/gpus/PCI/information; empty for a GPU that the driver does not know."""
    return fields(root.text(f"/proc/driver/nvidia/gpus/{pci}/information") or "")


def _counters(root: Root, pci: str) -> Iterator[NodeCounter]:
    for name, total in _AER.items():
        path = f"{BUS}/{pci}/{name}"
        text = root.text(path)
        match = re.search(rf"^TOTAL_ERR_{total}\s+(\d{{1,18}})$", text or "", re.MULTILINE)
        if match:
            kind = f"pcie-aer-{name.removeprefix('aer_dev_')}"
            yield NodeCounter(None, pci, kind, int(match[1]), None, Seen(path, match[0]))


def _files(root: Root) -> Iterator[GpuFile]:
    majors = _majors(root.text("/proc/devices") or "")
    helper = int(any(root.exists(f"{folder}/nvidia-modprobe") for folder in ("/usr/bin", "/usr/sbin", "/sbin")))
    numbers = [m for name in root.names("/proc/driver/nvidia/gpus") if (m := _minor(root, name)) is not None]
    present = (re.fullmatch(r"nvidia(\d{1,4})", name) for name in root.names("/dev"))
    numbers += [int(match[1]) for match in present if match]
    wanted: list[tuple[str, int | None]] = [("/dev/nvidiactl", None), ("/dev/nvidia-uvm", None)]
    wanted += [(f"/dev/nvidia{number}", number) for number in sorted(set(numbers))]
    for path, minor in wanted:
        major = majors.get("nvidia-uvm" if minor is None and "uvm" in path else "nvidia")
        status = root.stat(path)
        if status is None:
            yield GpuFile(
                host=None, path=path, minor=minor, present=0, character=None, error=None, major=None,
                major_expected=major, helper=helper, ref=Seen(path, f"{path}: no such file"),
            )  # fmt: skip
            continue
        error = root.opens(path) or None
        text = f"{path}: {stat.filemode(status.mode)}, device {status.device >> 8}:{status.device & 255}, {error or 'opens'}"
        yield GpuFile(
            host=None, path=path, minor=minor, present=1, character=int(stat.S_ISCHR(status.mode)), error=error,
            major=status.device >> 8, major_expected=major, helper=helper, ref=Seen(path, text),
        )  # fmt: skip


def _minor(root: Root, pci: str) -> int | None:
    return integer(information(root, pci).get("Device Minor"))


def _majors(text: str) -> dict[str, int]:
    """Character device numbers in /proc/devices; the driver's own is listed as nvidia, nvidia-frontend or nvidiactl."""
    rows: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdecimal() and name.startswith("nvidia"):
            short = "nvidia" if name in ("nvidia-frontend", "nvidiactl") else name
            rows.setdefault(short, int(number[:6]))
    return rows


def _driver(root: Root, gpus: int) -> NodeDriver:
    path = "/proc/driver/nvidia/version"
    text = root.text(path) or ""
    version = driver_version(text) or root.value("/sys/module/nvidia/version")
    nouveau = re.search(r"^nouveau .*$", root.text("/proc/modules") or "", re.MULTILINE)
    seen = Seen(path, next(iter(text.splitlines()), "no NVIDIA driver is loaded"))
    if nouveau:
        seen = Seen("/proc/modules", nouveau[0])
    return NodeDriver(
        host=None, source="pci", driver=version, open_module=int("Open Kernel Module" in text) if text else None,
        nvml=None, cuda=None, gpus=gpus, confidential=None, ready=None, fabric_manager=None,
        nouveau=int(nouveau is not None), whole=None, seconds=None, ref=seen,
    )  # fmt: skip


def driver_version(text: str) -> str | None:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …` -> 550.54.15."""
    match = re.search(r"^NVRM version:.*?(?:Kernel Module|Module for \S+)\s+(\d+\.\d+(?:\.\d+)?)", text, re.MULTILINE)
    return match[1] if match else None


def _container(root: Root) -> int | None:
    if root.exists("/.dockerenv") or root.exists("/run/.containerenv"):
        return 1
    groups = root.text("/proc/1/cgroup")
    if groups is None:
        return None
    return int(re.search(r"docker|kubepods|containerd|libpod|lxc|crio", groups) is not None)
