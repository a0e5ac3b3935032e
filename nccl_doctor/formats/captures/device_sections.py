"""Parts of what commands about a host print: file systems, PCI links, RDMA ports and their addresses, access between GPUs.

The reader is `host_commands`; `host_sections` says what a part is.
"""

import json
import re
from typing import Any, ClassVar

from nccl_doctor.facts.tables import GpuPair, IbPort, Message, Mount, MountProbe, RdmaGid, SharedMemory
from nccl_doctor.formats.captures.host_sections import Add, Section, parse_size

_SHARED = {
    "9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "smb3", "virtiofs", "wekafs",
}  # fmt: skip
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs"}
_NO_PLACE = re.compile(
    r"/(?:boot|snap|run|sys|proc|etc|dev|usr/lib|var/lib/(?:docker|kubelet|containers|containerd|snapd))(?:/|$)"
)
_NO_DISK = re.compile(r"(?:/dev/loop\d{1,5}|udev|devtmpfs|tmpfs|efivarfs|squashfs|shm|none|cgroup\d?)$")
_SHM = "/dev/shm"
_SMALLEST = 256 << 20  # bytes; smaller file systems hold firmware or keys, and are full by design


class Df(Section):
    """`df`, also with `-h`, `-i`, `-T` or `-P` and in other languages: the last column but one is a share, the last a path."""

    BEGINS = re.compile(
        r"(?:Filesystem|Dateisystem|Sys\. ?de fichiers|S\. ?ficheros|File ?system|Fil\S{4,20})\s.{0,60}%.{1,40}$"
    )
    _ROW = re.compile(
        r"(?P<source>\S.{0,200}?)?\s+(?:(?P<type>[a-z][\w.]{1,20})\s+)?(?P<cells>(?:\S{1,20}\s+){3})(?P<share>\d{1,3}%|-)\s+(?P<path>/\S{0,250})\s*$"
    )

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._inodes = False
        self._unit = 1.0

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if self.BEGINS.match(text):
            self._inodes = re.search(r"\bI(?:nod|[A-Z])", text) is not None
            self._unit = (
                1 << 20 if re.search(r"\b1M-|\b1048576-", text) else 1 << 30 if re.search(r"\b1G-", text) else 1 << 10
            )
            return True
        row = self._ROW.match(text)
        if row is None:
            return (
                re.fullmatch(r"\S{15,250}\s*", text) is not None
            )  # a long source has a line of its own in old versions
        cells = [parse_size(cell) for cell in row["cells"].split()]
        if cells[0] is None or cells[2] is None:
            return True
        plain = not re.search(r"[A-Z]", row["cells"])
        size, free = (int(cell * (self._unit if plain and not self._inodes else 1)) for cell in (cells[0], cells[2]))
        path, at = row["path"], (number, text)
        if path == _SHM and not self._inodes:
            self.add(SharedMemory(None, size, free, 0, 0, None, 0), *at)
        elif (
            (self._inodes or size >= _SMALLEST)
            and size
            and not _NO_PLACE.match(path)
            and not _NO_DISK.match((row["source"] or "").strip())
        ):
            known: dict[str, Any] = {"size": None, "free": None, "files": None, "files_free": None}
            known |= {"files": size, "files_free": free} if self._inodes else {"size": size, "free": free}
            self.add(MountProbe(None, path, "stat", "ok", 0.0, **known, wanted=0, uid=None, ref=0), *at)
            what = f"inodes used of {path}" if self._inodes else f"used of {path}"
            share = float(row["share"].rstrip("%")) if row["share"] != "-" else 0.0
            self.number("df", what, share, "%", at)
        return True


class MountList(Section):
    """`mount`, and /proc/mounts: `/dev/sda2 on / type ext4 (rw,relatime)`."""

    BEGINS = re.compile(
        r"\S{1,250} on /\S{0,250} type [\w.-]{2,30} \([\w,=./:+-]{2,2000}\)\s*$|\S{1,250} /\S{0,250} [\w.-]{2,30} r[wo]\S{0,2000} 0 0\s*$"
    )
    _ROW = re.compile(
        r"(?P<source>\S+) (?:on )?(?P<path>/\S{0,250}) (?:type )?(?P<type>[\w.-]{2,30}) \(?(?P<options>[^\s)]{2,2000})"
    )

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        row = self._ROW.match(text) if self.BEGINS.match(text) else None
        if row is None:
            return False
        options = row["options"].split(",")
        size = next((option.partition("=")[2] for option in options if option.startswith("size=")), None)
        if row["path"] == _SHM and size is not None and (found := re.fullmatch(r"(\d{1,15})([kmg]?)", size)):
            held = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]
            self.add(SharedMemory(None, held, None, 0, 0, None, 0), number, text)
        kind = "shared" if row["type"] in _SHARED else "local" if row["type"] in _LOCAL else None
        if kind is not None and not _NO_PLACE.match(row["path"]):
            row_ = Mount(
                None, row["path"], row["type"], row["source"], kind, int("ro" in options), 0, row["options"][:500], 0
            )
            self.add(row_, number, text)
        return True


class PciLinks(Section):
    """`lspci -vv`: the device, what its link can (LnkCap) and what it does now (LnkSta)."""

    BEGINS = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z3].{2,200}$|\s{0,12}Lnk(?:Cap|Sta):\s")
    _HEAD = re.compile(
        r"(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<kind>[\w /3-]{3,60}?)(?: \[\w{4}\])?: (?P<name>.{2,200})$"
    )
    _LINK = re.compile(
        r"\s{0,12}Lnk(?P<what>Cap|Sta):\s.{0,40}?Speed (?P<speed>\d{1,3}(?:\.\d)?)GT/s(?: \((?P<speed_state>\w+)\))?,"
        r" Width x(?P<width>\d{1,2})(?: \((?P<width_state>\w+)\))?"
    )
    _NIC = re.compile(r"Ethernet|Infiniband|Network|Fabric", re.IGNORECASE)
    _GPU = re.compile(r"3D|VGA|Display|Processing accelerator", re.IGNORECASE)

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._device: re.Match[str] | None = None
        self._best: re.Match[str] | None = None

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if (head := self._HEAD.match(text)) is not None:
            self._device, self._best = head, None
            return True
        link = self._LINK.match(text)
        if link is None:
            return text.startswith(("\t", " ")) or not text.strip()
        if link["what"] == "Cap":
            self._best = link
        else:
            self._status(link, number, text)
        return True

    def _status(self, link: re.Match[str], number: int, text: str) -> None:
        kind = self._device["kind"] if self._device is not None else ""
        words = {name: link[name] for name in ("speed", "width", "speed_state", "width_state")}
        for name in ("speed", "width"):
            best = self._best[name] if self._best is not None else None
            words[f"{name}_max"] = best
            if best is not None and words[f"{name}_state"] is None:
                words[f"{name}_state"] = "downgraded" if _less(link[name], best) else "ok"
        if self._device is not None:
            words["device"] = f"{self._device['pci']} ({self._device['name'].partition('(rev')[0].strip()})"
            words["of"] = "nic" if self._NIC.search(kind) else "gpu" if self._GPU.search(kind) else None
        self.add(
            Message(
                kind="lspci-link", level=None, host=None, rank=None, pid=None, source=None, text=text.strip()[:300],
                fields=json.dumps({name: word for name, word in words.items() if word is not None}), n=1, last_line=number, stamp=None,
                ref=0,
            ),
            number, text,
        )  # fmt: skip


def _less(value: str, best: str) -> bool:
    try:
        return float(value) < float(best)
    except ValueError:
        return False


class RdmaLinks(Section):
    """`rdma link`: `link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens3f0`."""

    BEGINS = re.compile(r"(?:link|\d{1,3}/\d{1,3}:) [\w-]{2,40}/\d{1,3}:? .{0,200}\bstate \w{2,20} physical_state ")
    _ROW = re.compile(
        r"(?:link|\d{1,3}/\d{1,3}:) (?P<device>[\w-]{2,40})/(?P<port>\d{1,3}):? (?P<rest>.{0,300}\bstate (?P<state>\w{2,20})"
        r" physical_state (?P<physical>\w{2,30}).{0,100})"
    )
    _STATES: ClassVar = {
        "ACTIVE": "Active",
        "DOWN": "Down",
        "INIT": "Initializing",
        "ARMED": "Armed",
        "ACTIVE_DEFER": "Active_defer",
    }
    _PHYSICAL: ClassVar = {"LINK_UP": "LinkUp", "POLLING": "Polling", "DISABLED": "Disabled", "SLEEP": "Sleep"}

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        row = self._ROW.match(text)
        if row is None:
            return False
        lid = re.search(r"\blid (\d{1,6}) sm_lid (\d{1,6})", row["rest"])
        self.add(
            IbPort(
                host=None, file="", hca=row["device"], port=int(row["port"]),
                state=self._STATES.get(row["state"], row["state"].capitalize()),
                physical=self._PHYSICAL.get(row["physical"], row["physical"]), rate=None,
                link_layer="InfiniBand" if lid else "Ethernet" if "netdev" in row["rest"] else None, lanes=None, speed=None,
                lid=int(lid[1]) if lid else None, sm_lid=int(lid[2]) if lid else None, partitions=None, mtu=None, ref=0,
            ),
            number, text,
        )  # fmt: skip
        return True


class Gids(Section):
    """`show_gids`: device, port, number, GID, IPv4 address, version of RoCE, interface."""

    BEGINS = re.compile(r"DEV\s+PORT\s+INDEX\s+GID\s")
    _ROW = re.compile(
        r"(?P<device>[\w-]{2,40})\s+(?P<port>\d{1,3})\s+(?P<number>\d{1,4})\s+(?P<gid>[0-9a-fA-F:]{8,40})\s+(?:(?P<address>\d{1,3}(?:\.\d{1,3}){3})\s+)?(?P<kind>v[12])(?:\s+(?P<interface>\S{1,40}))?\s*$"
    )

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        row = self._ROW.match(text)
        if row is None:
            return text.startswith(("DEV", "---"))
        scope = "ipv4" if row["address"] else "link-local" if row["gid"].lower().startswith("fe80") else "global"
        kind = "RoCE v2" if row["kind"] == "v2" else "IB/RoCE v1"
        self.add(
            RdmaGid(
                None, row["device"], int(row["port"]), int(row["number"]), row["gid"], row["address"], scope, kind, row["interface"], 0
            ),
            number, text,
        )  # fmt: skip
        return True


class PeerAccess(Section):
    """`nvidia-smi topo -p2p r`: OK, or why not, for each pair of GPUs."""

    BEGINS = re.compile(r"(?:\s+GPU0|GPU0\s+GPU1)(?:\s+GPU\d{1,3})*\s*$")
    _ROW = re.compile(r"\s{0,4}GPU(\d{1,3})((?:\s+(?:X|OK|CNS|GNS|TNS|NS|DR|U)){1,256})\s*$")
    _CODES: ClassVar = {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5, "U": 6}  # nvmlGpuP2PStatus_t

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if self.BEGINS.match(text):
            return True
        row = self._ROW.match(text)
        if row is None:
            return False
        for peer, word in enumerate(row[2].split()):
            if word in self._CODES:
                self.add(GpuPair(None, int(row[1]), peer, None, self._CODES[word], None, 0), number, text)
        return True


SECTIONS: tuple[type[Section], ...] = (Df, MountList, PciLinks, RdmaLinks, Gids, PeerAccess)
