"""The settings of the task, and the devices, interfaces and files of this node that they name."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import Env, SettingTarget, TaskFolder
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.node.software import nccl_conf
from nccl_doctor.node.software.variables import variables

TABLES = (Env, SettingTarget, TaskFolder)
_SETTINGS = re.compile(
    r"(?:NCCL|RCCL|OFI_NCCL|FI|UCX|OMPI|TORCH|PYTORCH|HOROVOD|CUDA|RDMAV|GLOO|MASTER|NVIDIA|OMP|NSIGHT|COMPUTE)_\w*\s*"
)
_FILES = (
    "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "NCCL_TUNER_CONFIG_PATH", "NCCL_NET_PLUGIN",
    "NCCL_TUNER_PLUGIN", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
# Exact names of IP interfaces, in lists.
_INTERFACES = (
    "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include", "UCX_NET_DEVICES",
)  # fmt: skip
_MOST_GPUS = 32
_RAIL = 100  # Gb/s from which a RoCE port is taken for one of a fast network
_ABSTRACT = ("/", ":", ".")  # networks, ranges and ports of Open MPI and UCX are not plain names


def collect(root: Root) -> Iterator[Any]:
    """Raises Absent where nothing at all is set."""
    environment = variables(root)
    ours = {name: value for name, value in environment.items() if _SETTINGS.fullmatch(name)}
    sources = {name: Seen("environment", f"{name}={value}") for name, value in ours.items()}
    for line in nccl_conf.lines(root, environment):
        if line.problem == "":
            ours[line.name] = line.value
            sources[line.name] = line.ref  # type: ignore[assignment]
    if not environment:
        raise Absent("no variable of a job in the environment")
    for name, value in sorted(ours.items()):
        yield Env(None, None, None, name, value, 1, sources[name])
    for target in targets(root, ours):
        yield target._replace(ref=sources[target.name])
    yield from _folders(root, environment)


def _folders(root: Root, environment: Mapping[str, str]) -> Iterator[TaskFolder]:
    """Comes last: a file system that does not answer delays only this."""
    paths = {name: path for name in ("HOME", "TMPDIR") if (path := environment.get(name, "")).startswith("/")}
    kept = root.asked("folders", lambda: {"uid": os.geteuid(), **{path: _state(path) for path in paths.values()}}) or {}
    for name, path in paths.items():
        if isinstance(state := kept.get(path), str):
            seen = Seen("environment", f"{name}={path}: {state}")
            yield TaskFolder(None, name, path, state, kept.get("uid"), seen)


def _state(path: str) -> str:
    if not os.path.exists(path):
        return "missing"
    if not os.path.isdir(path):
        return "not-a-folder"
    return "ok" if os.access(path, os.W_OK | os.X_OK) else "not-writable"


def targets(root: Root, settings: Mapping[str, str]) -> Iterator[SettingTarget]:
    """What the names in settings refer to on this node; `ref` is left at 0."""
    interfaces = [name for name in root.names("/sys/class/net") if root.exists(f"/sys/class/net/{name}/type")]
    devices = root.names("/sys/class/infiniband")
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
        if settings.get(name):
            have = interfaces if name == "NCCL_SOCKET_IFNAME" else devices
            yield from _nccl_list(name, settings[name], have, "interface" if have is interfaces else "hca")
    for name in _INTERFACES:
        yield from _exact_list(name, settings.get(name, ""), interfaces, devices)
    for name in _FILES:
        value = settings.get(name, "")
        if value.startswith("/"):
            parsed = value if root.exists(value) else ""
            yield SettingTarget(
                host=None, name=name, value=value, part=value, kind="file", exact=1, found=parsed, have="", ref=0,
            )  # fmt: skip
    yield from _gpus(root, settings)
    yield from _switches(root, settings, devices)


def _nccl_list(name: str, value: str, have: list[str], kind: str) -> Iterator[SettingTarget]:
    """NCCL's lists: `^` excludes, `=` asks for equal names, else a name may be the beginning of one; `:port` limits to a port."""
    text = value.strip("\"'")
    if text.startswith("^"):
        return
    exact = text.startswith("=")
    for part in text.removeprefix("=").split(","):
        wanted = part.partition(":")[0] if kind == "hca" else part
        if not wanted:
            continue
        rows = [one for one in have if (one == wanted if exact else one.startswith(wanted))]
        yield SettingTarget(
            host=None, name=name, value=value, part=part, kind=kind, exact=int(exact), found=" ".join(rows),
            have=" ".join(have), ref=0,
        )  # fmt: skip


def _exact_list(name: str, value: str, interfaces: list[str], devices: list[str]) -> Iterator[SettingTarget]:
    for part in value.split(",") if value and value not in ("all", "any") else ():
        plain = part.strip().partition(":")[0] if name == "UCX_NET_DEVICES" else part.strip()
        if not plain or plain.startswith("^") or any(mark in plain for mark in _ABSTRACT):
            continue
        have = interfaces + devices if name == "UCX_NET_DEVICES" else interfaces
        yield SettingTarget(
            host=None, name=name, value=value, part=part, kind="interface", exact=1,
            found=plain if plain in have else "", have=" ".join(have), ref=0,
        )  # fmt: skip


def device_files(root: Root) -> list[int]:
    """Numbers of the /dev/nvidiaN."""
    return [number for number in range(_MOST_GPUS) if root.exists(f"/dev/nvidia{number}")]


def gpus(root: Root) -> int | None:
    """GPUs that the driver knows (/proc/driver/nvidia/gpus), else the device files; None without either."""
    listed = root.names("/proc/driver/nvidia/gpus")
    return len(listed) or len(device_files(root)) or None


def _gpus(root: Root, settings: Mapping[str, str]) -> Iterator[SettingTarget]:
    value = settings.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return
    count = gpus(root)
    have = " ".join(str(number) for number in range(count)) if count else ""
    for part in value.split(","):
        plain = part.strip()
        uuid = plain.startswith(("GPU-", "MIG-"))
        parsed = plain if uuid or (plain.isdecimal() and count is not None and int(plain) < count) else ""
        yield SettingTarget(
            host=None, name="CUDA_VISIBLE_DEVICES", value=value, part=plain, kind="gpu", exact=1, found=parsed,
            have=have, ref=0,
        )  # fmt: skip


def _switches(root: Root, settings: Mapping[str, str], devices: list[str]) -> Iterator[SettingTarget]:
    """Settings that keep NCCL away from a network whose devices are there and up."""
    efa = [
        one
        for one in devices
        if os.path.basename(root.target(f"/sys/class/infiniband/{one}/device/driver") or "") == "efa"
    ]
    efa = efa or [one for one in devices if one.startswith(("efa_", "rdmap"))]
    active = [one for one in devices if one not in efa and _port(root, one, "state").endswith("ACTIVE")]
    band = [one for one in active if (_port(root, one, "link_layer") or "InfiniBand") == "InfiniBand"]
    fast, kind = (
        (band + efa, "switch") if band or efa else ([one for one in active if _rate(root, one) >= _RAIL], "roce")
    )
    have = " ".join(devices)
    off = settings.get("NCCL_IB_DISABLE", "").strip()
    if off.isdecimal() and int(off) != 0 and not efa:
        yield SettingTarget(
            host=None, name="NCCL_IB_DISABLE", value=off, part=off, kind=kind, exact=1, found=" ".join(fast),
            have=have, ref=0,
        )  # fmt: skip
    net = settings.get("NCCL_NET", "")
    if net.lower() == "socket":
        yield SettingTarget(
            host=None, name="NCCL_NET", value=net, part=net, kind=kind, exact=1, found=" ".join(fast), have=have,
            ref=0,
        )  # fmt: skip
    plugin = settings.get("NCCL_NET_PLUGIN", "")
    if plugin.lower() == "none" and efa:
        yield SettingTarget(
            host=None, name="NCCL_NET_PLUGIN", value=plugin, part=plugin, kind="switch", exact=1,
            found=" ".join(efa), have=have, ref=0,
        )  # fmt: skip
    provider = settings.get("FI_PROVIDER")
    if provider and efa:
        chosen = [one for one in re.split(r"[;,]", provider) if one.strip() == "efa"]
        ours = bool(chosen) != provider.startswith("^")
        yield SettingTarget(
            host=None, name="FI_PROVIDER", value=provider, part=provider, kind="provider", exact=1,
            found="efa" if ours else "", have=" ".join(efa), ref=0,
        )  # fmt: skip


def _port(root: Root, device: str, name: str) -> str:
    return root.value(f"/sys/class/infiniband/{device}/ports/1/{name}") or ""


def _rate(root: Root, device: str) -> int:
    """Gb/s of `400 Gb/sec (4X NDR)`."""
    first = _port(root, device, "rate").partition(" ")[0]
    return int(first) if first.isdecimal() else 0
