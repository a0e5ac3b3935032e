"""File systems of an invented node, and what can be wrong with them."""

from typing import Any

from nccl_doctor.simulate.node.host import NOW
from nccl_doctor.simulate.node.machines import Machine
from nccl_doctor.simulate.node.tree import Tree, fault, part

GIB = 1 << 30
_LUSTRE = ("/scratch", "lustre", "10.1.8.1@o2ib:/scratch")
_HOME = ("/home", "nfs4", "fs01:/home")
SHARED = {
    "p3dn": [("/fsx", "lustre", "10.1.8.1@tcp:/abcdefgh")],
    "p4d": [("/fsx", "lustre", "10.1.8.1@tcp:/abcdefgh"), _HOME],
    "p5": [("/fsx", "lustre", "10.1.8.1@tcp:/abcdefgh"), _HOME],
    "p5en": [("/fsx", "lustre", "10.1.8.1@tcp:/abcdefgh"), _HOME],
    "nd-a100-v4": [_HOME, ("/data", "nfs", "10.1.8.4:/data")],
    "nd-h100-v5": [_HOME, ("/amlfs", "lustre", "10.1.8.1@tcp:/lustrefs")],
    "a3-highgpu": [("/home", "nfs", "10.1.8.2:/nfsshare"), ("/gcs", "fuse.gcsfuse", "training-data")],
    "dgx-h100": [_LUSTRE, _HOME],
    "b200-roce": [("/gpfs", "gpfs", "gpfs"), _HOME],
    "mi300x": [_LUSTRE, _HOME],
    "l40s-pcie": [("/projects", "cifs", "//fs02/projects"), _HOME],
}
WITH_LUSTRE = tuple(name for name, mounts in SHARED.items() if any(kind == "lustre" for _, kind, _ in mounts))
WITH_NFS = tuple(name for name, mounts in SHARED.items() if any(kind.startswith("nfs") for _, kind, _ in mounts))


def first(machine: Machine, *kinds: str) -> str:
    """The first shared folder of a machine type, or the first of these kinds."""
    return next(path for path, kind, _ in SHARED[machine.name] if not kinds or kind in kinds)


def probe(tree: Tree, path: str, operation: str = "stat", **values: Any) -> None:
    """Change the answer of a trial."""
    paths = tree.extra.setdefault("mounts", {"uid": 1000}).setdefault("paths", {})
    paths.setdefault(path, {}).setdefault(operation, {"outcome": "ok", "seconds": 0.0007}).update(values)


@part
def mounts(tree: Tree, machine: Machine) -> None:
    lines = [
        "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw",
        "23 22 0:21 / /proc rw,nosuid shared:13 - proc proc rw",
        "24 22 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw",
        f"25 22 0:23 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,size={machine.ram * GIB // 2048}k",
        "26 22 259:5 / /local rw,noatime shared:31 - xfs /dev/nvme1n1 rw,attr2,inode64",
    ]
    fstab = ["UUID=0a1b2c3d-1111-2222-3333-444455556666 / ext4 defaults 0 1"]
    stats = ["device /dev/nvme0n1p2 mounted on / with fstype ext4"]
    probe(tree, "/", size=1750 * GIB, free=1320 * GIB, files=117_000_000, files_free=115_000_000)
    probe(tree, "/local", size=28_000 * GIB, free=27_500 * GIB, files=2_900_000_000, files_free=2_890_000_000)
    for number, (path, kind, source) in enumerate(SHARED[machine.name]):
        lines.append(f"{60 + number} 22 0:{50 + number} / {path} rw,relatime shared:{40 + number} - {kind} {source} rw")
        probe(tree, path, size=400_000 * GIB, free=180_000 * GIB, files=4_000_000_000, files_free=3_500_000_000)
        if not kind.startswith("fuse"):
            fstab.append(f"{source} {path} {kind} defaults,_netdev 0 0")
        if kind.startswith("nfs"):
            stats += [
                f"device {source} mounted on {path} with fstype {kind} statvers=1.1",
                "\tage:\t345000",
                "\tper-op statistics",
                "\t        NULL: 1 1 0 44 24 0 0 0 0",
                "\t        READ: 500000 500012 0 64000000 65536000000 12000 410000 440000 0",
                "\t       WRITE: 80000 80000 0 10485760000 9600000 900 96000 99000 0",
            ]
        if kind == "lustre":
            lustre(tree, source.partition("@")[2].partition(":")[0])
    tree.put("/proc/self/mountinfo", "\n".join(lines))
    tree.put("/proc/self/mountstats", "\n".join(stats))
    tree.put("/etc/fstab", "\n".join(fstab))


def lustre(tree: Tree, network: str) -> None:
    """The client of a small Lustre: one management, two metadata and four data targets."""
    tree.put("/sys/module/lustre/version", "2.15.3")
    tree.put("/sys/module/lnet/refcnt", 9)
    tree.put("/sys/fs/lustre/health_check", "healthy")
    tree.command("lctl list_nids", f"10.1.0.11@{network}\n")
    targets = [
        ("mgc", f"MGC10.1.8.1@{network}"),
        ("mdc", "fs0-MDT0000-mdc-ffff9a0012345678"),
        ("mdc", "fs0-MDT0001-mdc-ffff9a0012345678"),
    ]
    targets += [("osc", f"fs0-OST000{n}-osc-ffff9a0012345678") for n in range(4)]
    for kind, name in targets:
        state(tree, f"/proc/fs/lustre/{kind}/{name}", "FULL", 300_000)
        if kind != "mgc":
            tree.put(f"/sys/fs/lustre/{kind}/{name}/active", 1)


def state(tree: Tree, folder: str, now: str, seconds: float) -> None:
    """The state file of a Lustre connection."""
    at = int(NOW - seconds)
    tree.put(
        f"{folder}/state", f"current_state: {now}\nstate_history:\n - [ {at - 2}, CONNECTING ]\n - [ {at}, {now} ]"
    )


def _unmount(tree: Tree, path: str) -> None:
    lines = tree.files["/proc/self/mountinfo"].splitlines()
    tree.put("/proc/self/mountinfo", "\n".join(line for line in lines if f" {path} " not in line))
    tree.extra["mounts"]["paths"].pop(path)


@fault("mount-missing", "p4d", "dgx-h100", "l40s-pcie")
def _missing(tree: Tree, machine: Machine) -> None:
    _unmount(tree, first(machine))


@fault("mount-hung")
def _hung(tree: Tree, machine: Machine) -> None:
    probe(tree, first(machine), outcome="hung", seconds=2.0, size=None, free=None, files=None, files_free=None)


@fault("mount-failing")
def _failing(tree: Tree, machine: Machine) -> None:
    probe(tree, first(machine), outcome="ESTALE", size=None, free=None, files=None, files_free=None)


@fault("filesystem-read-only")
def _turned(tree: Tree, machine: Machine) -> None:
    text = tree.files["/proc/self/mountinfo"]
    tree.put("/proc/self/mountinfo", text.replace("xfs /dev/nvme1n1 rw,", "xfs /dev/nvme1n1 ro,"))


@fault("mount-not-writable")
def _quota(tree: Tree, machine: Machine) -> None:
    probe(tree, first(machine), "write", outcome="EDQUOT")


@fault("mount-read-only", "dgx-h100", "nd-a100-v4")
def _read_only(tree: Tree, machine: Machine) -> None:
    text = tree.files["/proc/self/mountinfo"]
    path = first(machine)
    tree.put("/proc/self/mountinfo", text.replace(f" {path} rw,", f" {path} ro,"))


@fault("mount-full")
def _full(tree: Tree, machine: Machine) -> None:
    probe(tree, "/", free=20 << 20)


@fault("inodes-used-up")
def _inodes(tree: Tree, machine: Machine) -> None:
    probe(tree, "/", files_free=112)


@fault("slow-mount")
def _slow(tree: Tree, machine: Machine) -> None:
    probe(tree, first(machine), seconds=1.7)


@fault("nfs-slow", *WITH_NFS)
def _nfs(tree: Tree, machine: Machine) -> None:
    text = tree.files["/proc/self/mountstats"]
    tree.put("/proc/self/mountstats", text.replace(" 12000 410000 440000 0", " 12000 184100000 184400000 0"))


@fault("lustre-disconnected", *WITH_LUSTRE)
def _disconnected(tree: Tree, machine: Machine) -> None:
    state(tree, "/proc/fs/lustre/osc/fs0-OST0002-osc-ffff9a0012345678", "DISCONN", 840)


@fault("lustre-unhealthy", *WITH_LUSTRE)
def _unhealthy(tree: Tree, machine: Machine) -> None:
    tree.put("/sys/fs/lustre/health_check", "NOT HEALTHY")


@fault("lnet-no-address", *WITH_LUSTRE)
def _lnet(tree: Tree, machine: Machine) -> None:
    tree.command("lctl list_nids", "0@lo\n")
