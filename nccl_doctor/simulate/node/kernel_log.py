"""The kernel's log of an invented node, and what it can report."""

import re

from nccl_doctor.simulate.node.host import BARE, UPTIME
from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.storage import WITH_NFS
from nccl_doctor.simulate.node.tree import Tree, fault, part

HOUR = 3600.0
_DEVICE = re.compile(r"[\w-]{1,60} ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")
_NOT_PLAIN = re.compile(r"[^ -~]|\\")


def print_line(tree: Tree, ago: float, *texts: str, priority: int = 4) -> None:
    """Records of /dev/kmsg from this many seconds before the node was looked at; a priority from 8 on: of a program."""
    at = int((UPTIME - ago) * 1e6)
    kept = tree.extra.setdefault("kmsg", {"text": ""})
    number = 1000 + kept["text"].count("\n")
    records = []
    for i, text in enumerate(texts):
        device = _DEVICE.match(text)
        escaped = _NOT_PLAIN.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
        records.append(f"{priority},{number + i},{at + i * 31},-,caller=T812;{escaped}\n")
        if device and priority < 8:  # dev_printk adds them; what a program writes to /dev/kmsg has none
            records.append(f" SUBSYSTEM=pci\n DEVICE=+pci:{device[1]}\n")
    kept["text"] += "".join(records)


@part
def boot(tree: Tree, machine: Machine) -> None:
    print_line(
        tree, UPTIME - 1,
        "Linux version 5.15.0-105-generic (buildd@builder) (gcc 11.4.0) #115-Ubuntu SMP",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
    )  # fmt: skip
    for nic in machine.nics:
        if nic.driver == "mlx5_core":
            print_line(
                tree, UPTIME - 12,
                "mlx5_core 0000:48:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
                "mlx5_core 0000:48:00.0 eth0: Link up",
            )  # fmt: skip
    if machine.amd:
        return
    print_line(
        tree, UPTIME - 20,
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07",
        "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    )  # fmt: skip
    # A bus number that looks like an Xid, and a program's own fault.
    print_line(
        tree,
        30 * HOUR,
        "NVRM: Xid (PCI:0000:48:00): 13, pid=4321, name=python3, Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0)",
    )


def _xid(code: int, text: str, pci: str = "0000:48:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}, {text}"


@fault("xid-gpu-lost")
def _79(tree: Tree, machine: Machine) -> None:
    print_line(
        tree,
        2 * HOUR,
        _xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        "NVRM: GPU 0000:48:00.0: GPU has fallen off the bus.",
    )


@fault("xid-memory-fatal")
def _95(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, _xid(95, "pid=4321, name=python3, Uncontained: LTC (0x2,0x1). RST: Yes, D-RST: No"))


@fault("xid-gsp-silent")
def _119(tree: Tree, machine: Machine) -> None:
    for turn in range(5):
        print_line(
            tree,
            HOUR - 6 * turn,
            _xid(
                119,
                "pid=2024, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! "
                "Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
            ),
        )


@fault("xid-gpu-stopped")
def _62(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, _xid(62, "pid='<unknown>', name=<unknown>, 1dfc(2d20) 00000000 00000000"))


@fault("xid-nvlink", "p4d", "p5", "dgx-h100")
def _74(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, _xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 04 (0x01100123 0x00000000)"))


@fault("xid-row-remap")
def _63(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, _xid(63, "pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate."))


@fault("xid-recovery-asked")
def _154(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, _xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"))


@fault("xid-of-driver")
def _109(tree: Tree, machine: Machine) -> None:
    print_line(
        tree, HOUR, _xid(109, "pid=4321, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x1c001")
    )


@fault("sxid-fatal", "p4d", "p5", "dgx-h100")
def _sxid(tree: Tree, machine: Machine) -> None:
    print_line(
        tree, HOUR,
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 Sub-engine instance 00",
    )  # fmt: skip


@fault("sxid-nonfatal", "p4d", "p5", "dgx-h100")
def _sxid_nonfatal(tree: Tree, machine: Machine) -> None:
    print_line(
        tree,
        HOUR,
        "nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)",
    )


@fault("gpu-start-failed")
def _start(tree: Tree, machine: Machine) -> None:
    print_line(tree, UPTIME - 21, "NVRM: GPU 0000:48:00.0: RmInitAdapter failed! (0x26:0x56:1474)")


@fault("aer-fatal", *BARE)
def _aer(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, "pcieport 0000:47:01.0: AER: Uncorrected (Fatal) error received: 0000:48:00.0")


@fault("pcie-bandwidth-limited", "dgx-h100", "b200-roce")
def _limited(tree: Tree, machine: Machine) -> None:
    print_line(
        tree,
        UPTIME - 12,
        "mlx5_core 0000:9c:00.0: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8 link at "
        "0000:97:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
    )


@fault("nic-firmware-dead", "dgx-h100", "nd-h100-v5", "b200-roce")
def _health(tree: Tree, machine: Machine) -> None:
    print_line(
        tree,
        HOUR,
        "mlx5_core 0000:5d:00.0: mlx5_health_report:123:(pid 0): device's health compromised - reached miss count",
    )


@fault("nic-cable-trouble", "dgx-h100", "b200-roce")
def _module(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, "mlx5_core 0000:5d:00.0: Port module event[error]: module 0, Cable error, High Temperature")


@fault("link-flapping", "dgx-h100", "b200-roce")
def _flaps(tree: Tree, machine: Machine) -> None:
    for turn in range(8):
        print_line(
            tree,
            HOUR - 60 * turn,
            "mlx5_core 0000:5d:00.0 ens3np0: Link down",
            "mlx5_core 0000:5d:00.0 ens3np0: Link up",
        )


@fault("oom-kills-recent")
def _oom(tree: Tree, machine: Machine) -> None:
    print_line(
        tree, HOUR,
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=python,pid=1234,uid=1000",
        "Out of memory: Killed process 1234 (python) total-vm:1234kB, anon-rss:1234kB, file-rss:0kB",
    )  # fmt: skip


@fault("task-stuck-in-kernel")
def _stuck(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, "INFO: task nvidia-smi:4321 blocked for more than 120 seconds.")
    tree.put("/proc/4321/stat", "4321 (nvidia-smi) D 1 4321 4321 0 -1 4194560 0 0 0 0")
    tree.put(
        "/proc/4321/stack", "[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[<0>] nvidia_ioctl+0x71/0x880 [nvidia]"
    )


@fault("cpu-lockup")
def _lockup(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, "watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [python:4321]")


@fault("machine-check-uncorrected", *BARE)
def _mce(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: bea0000000000108")


@fault("disk-errors")
def _disk(tree: Tree, machine: Machine) -> None:
    print_line(tree, HOUR, "blk_update_request: I/O error, dev nvme1n1, sector 12345678 op 0x0:(READ) flags 0x80700")


@fault("nfs-not-responding", *WITH_NFS)
def _nfs(tree: Tree, machine: Machine) -> None:
    # The server answered once in between; the last word is that it does not.
    server = "10.1.8.2" if machine.name == "a3-highgpu" else "fs01"
    print_line(tree, 3 * HOUR, f"nfs: server {server} not responding, still trying")
    print_line(tree, 2 * HOUR, f"nfs: server {server} OK")
    print_line(tree, 600, f"nfs: server {server} not responding, still trying")
    tree.extra["mounts"]["paths"].pop("/home")


@fault("lustre-errors", "p5", "dgx-h100", "nd-h100-v5")
def _lustre(tree: Tree, machine: Machine) -> None:
    for turn in range(20):
        print_line(
            tree,
            HOUR - 30 * turn,
            "LustreError: 11-0: fs0-MDT0000-mdc-ffff9a0012345678: operation obd_ping to node 10.1.8.1@o2ib failed: rc = -107",
        )
