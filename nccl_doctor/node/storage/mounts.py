"""Which file systems a node has mounted, and which it should have: read without touching any of them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

SHARED = frozenset((
    "9p", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "gfs2", "orangefs", "panfs", "smb3", "virtiofs", "wekafs",
))  # fmt: skip
_SHARED_FUSE = re.compile(
    r"fuse\.(?:beegfs|blobfuse2?|ceph(?:-fuse)?|dfuse|gcsfuse|glusterfs|goofys|juicefs|jindofs|lustre|mount-s3|"
    r"mountpoint-s3|rclone|s3fs|sshfs|JuiceFS.*|JuiceFS:.*)"
)
LOCAL = frozenset(("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs"))
_PLACES = re.compile(r"/(?:tmp|var|var/tmp|home|scratch|raid\d*|local\w*|mnt(?:/[^/]+)?|data\d*|nvme\w*|opt|dev/shm)?")
_INSIDE = re.compile(r"/(?:var/lib/(?:kubelet|docker|containers|containerd)|run/(?:containerd|docker)|snap)/")


class Entry(NamedTuple):
    """A line of mountinfo or fstab."""

    path: str
    fstype: str
    source: str
    options: frozenset[str]
    above: frozenset[str]  # options of the file system itself, which hold for all its mounts
    root: str  # the part of the file system that is mounted
    line: int


def unescape(text: str) -> str:
    """Decodes octal escapes such as that of a blank, `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def parse(text: str) -> list[Entry]:
    """/proc/self/mountinfo. Of several mounts at one mount point only the last one listed counts."""
    rows: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        left, mark, right = line.partition(" - ")
        head, tail = left.split(), right.split(" ")
        if mark and len(head) >= 6 and len(tail) >= 2:
            path = unescape(head[4])
            rows.pop(path, None)
            rows[path] = Entry(
                path, tail[0], unescape(tail[1]), frozenset(head[5].split(",")),
                frozenset(tail[2].split(",")) if len(tail) > 2 else frozenset(), unescape(head[3]), number,
            )  # fmt: skip
    return list(rows.values())


def kind(entry: Entry) -> str | None:
    """shared, local or autofs; None for what no job reads or writes."""
    if entry.fstype == "autofs":
        return "autofs"
    if entry.fstype in SHARED or _SHARED_FUSE.fullmatch(entry.fstype):
        return None if entry.path.startswith("/run/") else "shared"
    if _INSIDE.match(entry.path + "/"):
        return None
    if entry.fstype in LOCAL and entry.root == "/":
        return "local"
    if entry.fstype in ("overlay", "tmpfs") and _PLACES.fullmatch(entry.path) and entry.path != "/dev/shm":
        return "local"
    return None


def turned(entry: Entry) -> bool:
    """Whether the mount allows writing and the file system does not: the kernel made it read-only after errors."""
    return "ro" in entry.above and "rw" in entry.options and entry.fstype in LOCAL


def parse_fstab(text: str) -> Iterator[Entry]:
    """Shared file systems that are mounted at boot; not those that somebody mounts later or on access."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) >= 3 and words[2] in SHARED:
            options = frozenset(words[3].split(",")) if len(words) > 3 else frozenset()
            if not options & {"noauto", "x-systemd.automount", "comment=systemd.automount"}:
                yield Entry(
                    unescape(words[1]).rstrip("/") or "/",
                    words[2],
                    unescape(words[0]),
                    options,
                    frozenset(),
                    "/",
                    number,
                )


class Nfs(NamedTuple):
    """Counters of an NFS mount since it was mounted."""

    path: str
    server: str
    operations: int
    repeats: int
    timeouts: int
    rtt: float | None  # ms
    line: int


_DEVICE = re.compile(r"device (\S+) mounted on (\S+) with fstype (nfs4?)\b")
_CALL = re.compile(r"\s+([A-Z_0-9]+): (\d+) (\d+) (\d+) \d+ \d+ \d+ (\d+) \d+")


def parse_nfs(text: str) -> Iterator[Nfs]:
    """/proc/self/mountstats: per call operations, transmissions, major timeouts, bytes, queue, round trip, total (ms)."""
    current: Nfs | None = None
    sums = [0, 0, 0, 0]
    for number, line in enumerate([*text.splitlines(), "device - mounted on - with fstype end"], 1):
        if line.startswith("device "):
            if current is not None:
                operations, sent, timeouts, waited = sums
                yield current._replace(
                    operations=operations, repeats=max(0, sent - operations), timeouts=timeouts,
                    rtt=waited / operations if operations else None,
                )  # fmt: skip
            match = _DEVICE.match(line)
            current = Nfs(unescape(match[2]), _server(unescape(match[1])), 0, 0, 0, None, number) if match else None
            sums = [0, 0, 0, 0]
        elif current is not None and (call := _CALL.match(line)) is not None and call[1] != "NULL":
            for index in range(4):
                sums[index] += int(call[index + 2])


def _server(source: str) -> str:
    """`fs01:/export` -> fs01; `[2001:db8::1]:/export` -> 2001:db8::1."""
    match = re.match(r"\[([0-9a-fA-F:.%\w]+)\]:|([^:/]+):", source)
    return (match[1] or match[2]) if match else source
