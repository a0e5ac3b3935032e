"""SELinux and AppArmor of an invented node, and labels that are wrong."""

import re

from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.tree import Tree, fault, part

SELINUX = ("b200-roce", "l40s-pcie")  # the others run AppArmor, as Ubuntu does
KUBELET = "/var/lib/kubelet/device-plugins"
_DEVICE = re.compile(r"/dev/nvidia[\w-]*")


@part
def security(tree: Tree, machine: Machine) -> None:
    """Modules, and the labels of everything that SELinux is asked about."""
    if machine.name not in SELINUX:
        tree.put("/sys/module/apparmor/parameters/enabled", "Y")
        tree.put("/proc/self/attr/current", "unconfined")
        return
    tree.put("/sys/fs/selinux/enforce", "1")
    tree.put("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    tree.put("/sys/fs/selinux/booleans/container_use_xserver_devices", "1 1")
    tree.put("/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=targeted")
    tree.put("/proc/self/attr/current", "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023")
    for path in sorted({*tree.files, *tree.extra.get("stat", {})}):
        if _DEVICE.fullmatch(path):
            tree.put(path, "")  # for the folder to list it
            label(tree, path, "xserver_misc_device_t")
        elif path.startswith("/dev/infiniband/"):
            label(tree, path, "infiniband_device_t")
    for name in ("nvidia-smi", "nvidia-modprobe", "nvidia-persistenced"):
        path = f"/usr/bin/{name}"
        if path not in tree.files:
            tree.put(path, "")
        label(tree, path, "xserver_exec_t", 0o100755)
    for path, kind in ((KUBELET, "container_var_lib_t"), ("/var/lib/kubelet/pod-resources", "kubelet_var_lib_t")):
        tree.folders.add(path)
        label(tree, path, kind, 0o40755)


def label(tree: Tree, path: str, kind: str, mode: int | None = None) -> None:
    """Give a path the SELinux type."""
    known = tree.extra.get("stat", {}).get(path, {}).get("mode")
    tree.stat(path, mode=mode or known or 0o20666, label=f"system_u:object_r:{kind}:s0")


@fault("selinux-gpu-device-label", *SELINUX)
def _device_label(tree: Tree, machine: Machine) -> None:
    label(tree, "/dev/nvidia-uvm", "device_t")


@fault("selinux-kubelet-label", *SELINUX)
def _kubelet_label(tree: Tree, machine: Machine) -> None:
    label(tree, KUBELET, "var_lib_t")


@fault("selinux-gpu-program-label", *SELINUX)
def _program_label(tree: Tree, machine: Machine) -> None:
    label(tree, "/usr/bin/nvidia-smi", "user_home_t")


@fault("selinux-rdma-device-label", *SELINUX)
def _rdma_label(tree: Tree, machine: Machine) -> None:
    label(tree, "/dev/infiniband/uverbs0", "device_t")


@fault("security-module-denies-device", "p5", "nd-h100-v5", "dgx-h100")
def _profile(tree: Tree, machine: Machine) -> None:
    tree.put("/proc/self/attr/current", "docker-default (enforce)")
    tree.stat("/dev/infiniband/rdma_cm", opens="EACCES")
