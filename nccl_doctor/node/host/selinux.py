"""SELinux and AppArmor: their mode, the labels of what containers with GPUs need, and devices that they deny."""

import os
import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import DeviceAccess, SecurityBoolean, SecurityLabel, SecurityMode
from nccl_doctor.node.runtime.root import Absent, Root

TABLES = (SecurityMode, SecurityLabel, SecurityBoolean, DeviceAccess)
SELINUX = "/sys/fs/selinux"
APPARMOR = "/sys/module/apparmor/parameters/enabled"
_BOOLEANS = ("container_use_xserver_devices", "container_use_devices")
_GPU_DEVICE = re.compile(r"nvidia(\d{1,3}|ctl|-modeset|-uvm|-uvm-tools)")
_ONE_GPU = re.compile(r"/dev/nvidia\d+")  # opening it wakes the GPU up; /dev/nvidiactl has the same label rules
_DEVICE_TYPE = re.compile(r"(\w+_)?device_t")  # `device_node` of the policy: device_t is the type of /dev itself
_CONTAINER = ("container_file_t", "container_ro_file_t")  # what every container may use
# purpose -> the type that the policy gives, and others that containers are allowed too
WANTED = {
    "gpu-device": ("xserver_misc_device_t", ("nvidia_device_t", "gpu_device_t")),
    "gpu-program": ("xserver_exec_t", ("bin_t", "container_runtime_exec_t", "nvidia_exec_t")),
    "kubelet": ("container_var_lib_t", ("kubelet_var_lib_t", "kubernetes_file_t")),
    "rdma-device": ("infiniband_device_t", ()),
}
_KUBELET = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources")


def collect(root: Root) -> Iterator[Any]:
    """Rows of both; labels only where SELinux is on, because they have no effect otherwise."""
    selinux = _selinux(root)
    apparmor = root.value(APPARMOR) == "Y"
    devices = list(_devices(root))
    if selinux is None and not apparmor and not devices:
        raise Absent("neither SELinux nor AppArmor is on")
    own = (root.text("/proc/self/attr/current") or "").strip("\0 \n") or None
    if selinux is not None:
        configured = configured_mode(root.text("/etc/selinux/config"))
        text = f"enforce={selinux} configured={configured} label of this process={own}"
        yield SecurityMode(None, "selinux", selinux, configured, own, Seen(f"{SELINUX}/enforce", text))
        booleans = list(_booleans(root))
        yield from _labels(root, devices, any(one.name == "container_use_devices" and one.value for one in booleans))
        yield from booleans
    elif apparmor:
        yield SecurityMode(None, "apparmor", "enabled", None, own, Seen(APPARMOR, f"profile of this process: {own}"))
    for path, _ in devices:
        if not _ONE_GPU.fullmatch(path):
            yield from _access(root, path, confinement(own))


def _selinux(root: Root) -> str | None:
    """enforcing or permissive; None where it is off. A policy that is not loaded leaves the folder empty."""
    return {"1": "enforcing", "0": "permissive"}.get(root.value(f"{SELINUX}/enforce") or "")


def configured_mode(text: str | None) -> str | None:
    """What /etc/selinux/config sets for the next boot."""
    match = re.search(r"^[ \t]*SELINUX[ \t]*=[ \t]*(\w{1,20})", text or "", re.MULTILINE)
    return match[1].lower() if match else None


def confinement(own: str | None) -> str | None:
    """The profile or label of this process where it is held to one: `docker-default (enforce)`, `…:container_t:…`."""
    if own is None or own.startswith("unconfined") or own.endswith("(unconfined)"):
        return None
    parts = own.split(":")
    if len(parts) >= 3:
        return None if parts[2] in ("unconfined_t", "spc_t", "kernel_t", "initrc_t") else own
    return own if own.endswith("(enforce)") else None


def _devices(root: Root) -> Iterator[tuple[str, str]]:
    """Paths of the devices of GPUs and network cards, each with its purpose."""
    for name in root.names("/dev"):
        if _GPU_DEVICE.fullmatch(name):
            yield f"/dev/{name}", "gpu-device"
    for folder, purpose in (("/dev/nvidia-caps", "gpu-device"), ("/dev/infiniband", "rdma-device")):
        for name in root.names(folder):
            if not name.startswith(("issm", "umad")) and "by-" not in name:
                yield f"{folder}/{name}", purpose


def _labels(root: Root, devices: list[tuple[str, str]], opens_devices: bool) -> Iterator[SecurityLabel]:
    """A row a labelled file; `opens_devices`: container_use_devices is on, which allows every type of a device."""
    programs = [(f"/usr/bin/{name}", "gpu-program") for name in root.names("/usr/bin") if name.startswith("nvidia-")]
    kubelet = [(path, "kubelet") for path in _KUBELET if root.exists(path)]
    for path, purpose in (*devices, *programs[:64], *kubelet):
        label = root.label(path)
        kind = label_type(label)
        if kind is None:
            continue
        wanted, also = WANTED[purpose]
        is_allowed = opens_devices and purpose.endswith("-device") and _DEVICE_TYPE.fullmatch(kind) is not None
        wrong = int(kind not in (wanted, *also, *_CONTAINER) and not is_allowed)
        yield SecurityLabel(None, path, purpose, label, kind, wanted, wrong, Seen(path, f"{path} {label}"))


def label_type(label: str | None) -> str | None:
    """`system_u:object_r:device_t:s0` -> device_t."""
    parts = (label or "").split(":")
    return parts[2] if len(parts) >= 3 and re.fullmatch(r"\w{1,80}", parts[2]) else None


def _booleans(root: Root) -> Iterator[SecurityBoolean]:
    for name in _BOOLEANS:
        path = f"{SELINUX}/booleans/{name}"
        words = (root.value(path) or "").split()
        if words and words[0] in ("0", "1"):
            yield SecurityBoolean(None, name, int(words[0]), Seen(path, f"{name} {' '.join(words)}"))


def _access(root: Root, path: str, confined: str | None) -> Iterator[DeviceAccess]:
    """A row where the permissions let everybody in and opening fails nevertheless."""
    error = root.opens(path, os.O_RDWR)
    status = root.stat(path) if error in ("EPERM", "EACCES") else None
    if status is not None and error and status.mode & 0o006 == 0o006:
        mode = f"{status.mode & 0o777:04o}"
        seen = Seen(path, f"{path} mode {mode}: {error}{f', confined by {confined}' if confined else ''}")
        yield DeviceAccess(None, path, error, mode, confined, seen)
