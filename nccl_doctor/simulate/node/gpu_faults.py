"""Faults of GPUs, of their links and of the NVIDIA driver."""

from collections.abc import Callable

from nccl_doctor.simulate.node import bus
from nccl_doctor.simulate.node.gpu import device_file, refuse, told
from nccl_doctor.simulate.node.machines import MACHINES, Machine
from nccl_doctor.simulate.node.tree import Tree, fault

SWITCHED = tuple(m.name for m in MACHINES.values() if m.nvswitches)
LINKED = tuple(m.name for m in MACHINES.values() if m.nvlinks)
HOPPER = tuple(m.name for m in MACHINES.values() if m.capability[0] >= 9 and m.nvswitches)
AMPERE_ON = tuple(m.name for m in MACHINES.values() if m.capability[0] >= 8)
KNOWN = tuple(m.name for m in MACHINES.values() if m.name not in ("b200-roce", "l40s-pcie"))
VERBS = tuple(m.name for m in MACHINES.values() if any(nic.kind in ("ib", "roce") for nic in m.nics))


@fault("gpu-missing-on-bus", *KNOWN)
def missing_on_bus(tree: Tree, machine: Machine) -> None:
    place = bus.gpus(machine)[3]
    bus.take_out(tree, place)
    tree.remove(f"/proc/driver/nvidia/gpus/{place.pci}")
    tree.remove("/dev/nvidia3")
    _forget(tree, 3)


@fault("gpus-not-visible", "b200-roce", "l40s-pcie")
def none_visible(tree: Tree, machine: Machine) -> None:
    """All GPUs are gone and with them the driver; the NVSwitches or the name of the product are left."""
    tree.put("/sys/class/dmi/id/product_name", f"{machine.product} HGX")
    for place in bus.gpus(machine):
        bus.take_out(tree, place)
    for path in ("/proc/driver/nvidia", "/sys/module/nvidia", *(f"/dev/nvidia{n}" for n in range(machine.gpus))):
        tree.remove(path)
    del tree.extra["nvml"]


@fault("gpu-off-the-bus")
def off_the_bus(tree: Tree, machine: Machine) -> None:
    place = bus.gpus(machine)[2]
    bus.put(tree, place, "config", "ffffffff")
    bus.put(tree, place, "current_link_width", 63)
    tree.stat("/dev/nvidia2", opens="EIO")
    _lose(tree, machine, 2)


@fault("gpu-not-in-nvml")
def not_in_nvml(tree: Tree, machine: Machine) -> None:
    _forget(tree, 5)


@fault("gpu-lost")
def lost(tree: Tree, machine: Machine) -> None:
    _lose(tree, machine, 1)


def _forget(tree: Tree, number: int) -> None:
    """Remove a GPU from NVML's answers; the indices of those after it move down."""
    whole = told(tree)
    whole["gpus"] = [gpu for gpu in whole["gpus"] if gpu["gpu"] != number]
    whole["pairs"] = [pair for pair in whole["pairs"] if number not in pair[:2]]
    for index, gpu in enumerate(whole["gpus"]):
        gpu["gpu"] = index
    for pair in whole["pairs"]:
        pair[:2] = [one - (one > number) for one in pair[:2]]


def _lose(tree: Tree, machine: Machine, number: int) -> None:
    pci = bus.gpus(machine)[number].pci
    whole = told(tree)
    whole["gpus"][number] = {"gpu": number, "pci": pci}
    whole["pairs"] = [pair for pair in whole["pairs"] if number not in pair[:2]]
    whole["errors"] = [{"gpu": number, "pci": pci, "call": "nvmlDeviceGetName", "code": 15, "text": "GPU is lost"}]


@fault("nvml-library-missing")
def library_missing(tree: Tree, machine: Machine) -> None:
    refuse(tree, 12, "libnvidia-ml.so.1: cannot open shared object file: No such file or directory", "dlopen")


@fault("nvidia-driver-not-reloaded")
def not_reloaded(tree: Tree, machine: Machine) -> None:
    refuse(tree, 18, "Driver/library version mismatch")


@fault("nvml-no-permission")
def no_permission(tree: Tree, machine: Machine) -> None:
    refuse(tree, 4, "Insufficient Permissions")
    for number in range(machine.gpus):
        device_file(tree, f"/dev/nvidia{number}", 195, number, 0o20660)
        tree.stat(f"/dev/nvidia{number}", opens="EACCES")


@fault("nvml-init-failed")
def init_failed(tree: Tree, machine: Machine) -> None:
    refuse(tree, 999, "Unknown Error")


@fault("nvidia-driver-not-loaded")
def not_loaded(tree: Tree, machine: Machine) -> None:
    refuse(tree, 9, "Driver Not Loaded")
    _unload(tree, machine)


@fault("nouveau-loaded")
def nouveau(tree: Tree, machine: Machine) -> None:
    not_loaded(tree, machine)
    for place in bus.gpus(machine):
        bus.driver(tree, place, "nouveau")
    tree.put("/proc/modules", tree.files["/proc/modules"] + "nouveau 2285568 1 - Live 0x0000000000000000")


def _unload(tree: Tree, machine: Machine) -> None:
    for place in bus.gpus(machine):
        bus.driver(tree, place, None)
    for path in ("/proc/driver/nvidia", "/sys/module/nvidia", "/dev/nvidiactl", "/dev/nvidia-uvm"):
        tree.remove(path)
    for number in range(machine.gpus):
        tree.remove(f"/dev/nvidia{number}")
    for path, name in (("/proc/modules", "nvidia"), ("/proc/devices", "nvidia")):
        tree.put(path, "\n".join(line for line in tree.files[path].splitlines() if name not in line))


@fault("gpu-device-file-missing")
def file_missing(tree: Tree, machine: Machine) -> None:
    tree.remove("/dev/nvidia-uvm")
    tree.remove("/usr/bin/nvidia-modprobe")


@fault("gpu-device-file-unusable")
def file_unusable(tree: Tree, machine: Machine) -> None:
    tree.stat("/dev/nvidia-uvm", mode=0o20600, opens="EACCES")


def _set(name: str, machines: tuple[str, ...], /, **values: object) -> None:
    """A fault that is a few values of one GPU."""

    @fault(name, *machines)
    def change(tree: Tree, machine: Machine) -> None:
        told(tree, 6).update(values)


EVERY = tuple(MACHINES)
_set("gpu-ecc-uncorrectable-now", EVERY, uncorrected=2, uncorrected_total=2)
_set("gpu-sram-threshold", EVERY, sram_threshold=1, sram_uncorrected_total=7)
_set("gpu-row-remap-failed", AMPERE_ON, remap_failed=1, remap_pending=1, remapped_uncorrected=9)
_set("gpu-row-remap-exhausted", AMPERE_ON, remapped_uncorrected=512)
_set("gpu-row-remap-pending-now", AMPERE_ON, remap_pending=1, remapped_uncorrected=1)
_set("gpu-pages-retired", ("p3dn",), retired_single=50, retired_double=12)
_set("gpu-recovery-asked", HOPPER, recovery=1)
_set("gpu-inforom-corrupt", EVERY, inforom=0)
_set("gpu-ecc-off", EVERY, ecc=0, ecc_pending=0)
_set("gpu-memory-held", EVERY, memory_used=9000.0)
_set("gpu-compute-prohibited", EVERY, compute_mode=2)
_set("gpu-mig-unexpected", tuple(set(SWITCHED) & set(AMPERE_ON)), mig=1, mig_pending=1, links_active=0)
_set("gpu-persistence-off", EVERY, persistence=0)
_set("gpu-thermal-slowdown", EVERY, reasons=0x48, temperature=91)
_set("gpu-power-brake-active", EVERY, reasons=0x88)
_set("gpu-hardware-slowdown", EVERY, reasons=0x08)
_set("gpu-software-thermal", EVERY, reasons=0x20, temperature=83)
_set("gpu-clocks-lowered", EVERY, clock_app=810)
_set("gpu-hot-idle", EVERY, temperature=74)
_set("gpu-bar1-small", KNOWN, bar1_total=256.0)
_set("gpu-vbios-differs", EVERY, vbios="86.00.00.00.00")
_set("fabric-unhealthy", HOPPER, fabric_health="degraded bandwidth")


@fault("gpu-power-limit-lowered")
def power_limit(tree: Tree, machine: Machine) -> None:
    told(tree, 4)["power_limit"] = machine.power * 0.6


@fault("gpu-memory-small")
def memory_small(tree: Tree, machine: Machine) -> None:
    told(tree, 4)["memory_total"] = machine.memory * 0.9


@fault("gpu-models-differ", "p4d", "nd-a100-v4")
def models_differ(tree: Tree, machine: Machine) -> None:
    told(tree, 7).update(model="NVIDIA A100-SXM4-80GB")


@fault("nvml-slow")
def slow(tree: Tree, machine: Machine) -> None:
    told(tree)["seconds"] = 4.2


@fault("gpu-stray-process")
def stray(tree: Tree, machine: Machine) -> None:
    tree.extra.setdefault("environ", {}).update(
        SLURM_JOB_ID="4712", SLURM_JOB_GPUS=",".join(map(str, range(machine.gpus)))
    )
    told(tree, 0).update(memory_used=30012.0, tasks=[{"pid": 31007, "kind": "C", "memory": 30011 << 20}])
    tree.put("/proc/31007/status", "Name:\tpython3\nState:\tS (sleeping)\nUid:\t1007\t1007\t1007\t1007")
    tree.put("/proc/31007/cgroup", "0::/system.slice/slurmstepd.scope/job_4698/step_0/user/task_0")


@fault("gpu-pcie-lanes-lost")
def pcie_narrow(tree: Tree, machine: Machine) -> None:
    bus.put(tree, bus.gpus(machine)[4], "current_link_width", 8)
    told(tree, 4)["pcie_width"] = 8


@fault("pcie-bridge-narrow")
def bridge_narrow(tree: Tree, machine: Machine) -> None:
    for folder in bus.gpus(machine)[1].above[:2]:
        tree.put(f"{folder}/current_link_width", 4)


@fault("nic-pcie-narrow", *VERBS)
def nic_narrow(tree: Tree, machine: Machine) -> None:
    bus.put(tree, bus.nics(machine)[1][1], "current_link_width", 8)


@fault("nvlink-inactive", *LINKED)
def link_down(tree: Tree, machine: Machine) -> None:
    gpu = told(tree, 2)
    gpu["links_active"] -= 1
    gpu["nvlinks"][-1].update(active=0, speed=None)


@fault("nvlink-slow", *LINKED)
def link_slow(tree: Tree, machine: Machine) -> None:
    told(tree, 2)["nvlinks"][1]["speed"] = 12.5


def _fabric(state: str) -> Callable[[Tree, Machine], None]:
    def change(tree: Tree, machine: Machine) -> None:
        for gpu in told(tree)["gpus"]:
            gpu.update(fabric_state=state, fabric_status=0)

    return change


fault("fabric-not-completed", *HOPPER)(_fabric("in-progress"))


@fault("fabric-manager-missing", *SWITCHED)
def no_fabric_manager(tree: Tree, machine: Machine) -> None:
    whole = told(tree)
    whole["fabric_manager"] = 0
    for gpu in whole["gpus"]:
        gpu["links_active"] = 0
        if "fabric_state" in gpu:
            gpu["fabric_state"] = "in-progress"


@fault("gpu-p2p-unavailable", *SWITCHED)
def no_p2p(tree: Tree, machine: Machine) -> None:
    for pair in told(tree)["pairs"]:
        if 3 in pair[:2]:
            pair[3:] = [5, 5]


@fault("nvswitch-missing", "dgx-h100")
def no_switch(tree: Tree, machine: Machine) -> None:
    bus.take_out(tree, bus.switches(machine)[0])
