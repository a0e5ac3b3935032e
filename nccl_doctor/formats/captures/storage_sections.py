"""Parts of what commands about a host print of its file servers: how full the targets of Lustre are, whether the client reaches them, NFS.

The reader is `host_commands`; `host_sections` says what a part is.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from nccl_doctor.facts.tables import LustreTarget
from nccl_doctor.formats.captures.host_sections import Add, Section, parse_size

_TARGET = r"[\w.-]{1,60}-(?:OST|MDT)[0-9a-f]{4}"
_WORDS = 6  # of a row of `lfs df`
_SHARE = 4  # characters of the longest share, `100%`
_ROWS = 10_000  # that are remembered
_LEAST_CALLS = 100  # of an operation, below which a mean says little
_LEAST_OPERATIONS = 1.0  # a second, below which a mean says little


class LfsDf(Section):
    """`lfs df`, also with `-h` or `-i`: the space of each target, and the targets that do not answer."""

    BEGINS = re.compile(r"UUID {2,60}(?:bytes|1K-blocks|Inodes|1M-blocks|1G-blocks) ")
    _ROW = re.compile(
        r"(?P<name>\S{1,120}?)(?:_UUID)?\s+(?P<cells>(?:\S{1,20}\s+){3})(?P<share>\d{1,3})%\s+(?P<path>/\S{0,250}?)(?:\[(?:MDT|OST):\d{1,5}\])?(?:\s+\w{1,8})?\s*$"
    )
    _SILENT = re.compile(
        r"(?P<name>(?:[\w.-]{1,60}-)?(?:OST|MDT)[0-9a-f]{4})(?:_UUID)?\s*: (?P<words>[a-zA-Z][\w /-]{3,80})\s*$"
    )

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._what = "used of"
        self._fullest: dict[tuple[str, str, str] | None, str] = {}  # what, name, path -> share of the rows before

    def take(self, text: str, number: int) -> bool:
        """Use a line. A row of what was as full before adds nothing."""
        words = text.split()
        row_of = (self._what, words[0], words[5]) if len(words) == _WORDS else None
        if row_of in self._fullest and words[4].rjust(_SHARE) <= self._fullest[row_of]:
            return True
        if (head := self.BEGINS.match(text)) is not None:
            self._what = "inodes used of" if "Inodes" in head[0] else "used of"
            return True
        if (silent := self._SILENT.match(text)) is not None:
            active = int("inactive" not in silent["words"])
            kind = "mdc" if "MDT" in silent["name"] else "osc"
            self.add(LustreTarget(None, kind, silent["name"], silent["words"], active, None, 0), number, text)
            return True
        row = self._ROW.match(text)
        if row is None:
            return not text.strip()
        if all(parse_size(cell) is not None for cell in row["cells"].split()):
            is_whole = row["name"].startswith("filesystem")
            self.number(
                "lfs df",
                f"{self._what} {row['path'] if is_whole else row['name']}",
                float(row["share"]),
                "%",
                (number, text),
            )
            if row_of is not None and len(self._fullest) < _ROWS:
                self._fullest[row_of] = words[4].rjust(_SHARE)
        return True


class LustreImports(Section):
    """`lctl get_param osc.*.import mdc.*.import`: the state of the connection to a target, and how long its requests took."""

    BEGINS = re.compile(r"(osc|mdc|mgc)\.\S{1,200}\.import=")
    _LINE = re.compile(r"\s{2,20}(?:(?P<name>target|state|avg_waittime): (?P<value>\S{1,200})|\S)|import:|\s*$")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._kind = ""
        self._target = ""

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        is_field = "state: " in text or "avg_waittime: " in text or "target: " in text
        if not is_field and text.startswith("  "):
            return True
        field = self._LINE.match(text)
        if field is None:
            head = self.BEGINS.match(text)
            if head is not None:
                self._kind, self._target = head[1], ""
            return head is not None
        name, value = field.groups()
        if name is None:
            return True
        if name == "target":
            self._target = value.removesuffix("_UUID")
        elif self._target and name == "state":
            self.add(
                LustreTarget(None, self._kind, self._target, value.upper(), 1, None, 0),
                number,
                f"{self._target}: {text.strip()}",
            )
        elif self._target and value.isdecimal() and len(value) < 13:
            self.number(
                "lctl",
                f"mean wait for {self._target}",
                int(value) / 1000,
                "ms",
                (number, f"{self._target}: {text.strip()}"),
            )
        return True

    def take_all(self, texts: Sequence[str], at: int, first: int) -> int:
        """Use lines; most of them are indented, and none of the fields that are read."""
        for place in range(at, len(texts)):
            text = texts[place]
            if text[:2] == "  " and not ("t: " in text or "e: " in text):
                continue
            if not self.take(text, first + place):
                return place
        return len(texts)


class LustreStates(Section):
    """Lines of `lctl get_param osc.*.ost_server_uuid`, `lctl get_param health_check` and `lfs check servers`, each for itself."""

    BEGINS = re.compile(
        rf"(?:osc|mdc)\.\S{{1,160}}\.\w{{3}}_server_uuid=(?P<told>{_TARGET})_UUID\s+(?P<state>[A-Z_]{{3,20}})(?P<off>\s+DEACTIVATED)?\s*$"
        rf"|(?P<checked>{_TARGET})-(?P<client>osc|mdc)-[0-9a-f]{{8,16}}(?P<well> active\.|: (?P<error>[A-Z][\w ,/()-]{{3,120}}))\s*$"
        r"|health_check=(?P<health>healthy|NOT HEALTHY|LBUG)\s*$"
    )

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        row = self.BEGINS.match(text)
        if row is None:
            return False
        name = row["told"] or row["checked"]
        if row["health"]:
            target = LustreTarget(None, "health", "client", row["health"], None, None, 0)
        elif row["told"]:
            target = LustreTarget(
                None, "mdc" if "-MDT" in name else "osc", name, row["state"], int(row["off"] is None), None, 0
            )
        else:
            target = LustreTarget(None, row["client"], name, row["error"] or "FULL", 1, None, 0)
        self.add(target, number, text)
        return True


class LustreStats(Section):
    """`lctl get_param llite.*.stats osc.*.stats mdc.*.stats`: bytes, and of each operation how often it came and how long all took."""

    BEGINS = re.compile(
        r"(?P<kind>llite|osc|mdc|obdfilter|mdt)\.(?P<name>[\w.@-]{1,160}?)(?:-(?:osc|mdc))?(?:-[0-9a-f]{8,16})?\.(?:md_)?stats=\s*$"
    )
    _ROW = re.compile(
        r"(?P<name>[a-z_]{2,40})\s{1,40}(?P<n>\d{1,18}) samples \[(?P<unit>\w{2,8})\](?:\s+\d{1,20}\s+\d{1,20}\s+(?P<sum>\d{1,20}))?"
    )
    _TIMES = re.compile(r"(?:snapshot|start|elapsed)_time\s|[a-z_]{2,40}\s+\d{1,18} samples \[")
    _BYTES: ClassVar = {"read_bytes": "read from", "write_bytes": "written to"}

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._of = ""

    def take(self, text: str, number: int) -> bool:
        """Use a line. Means of operations that came seldom, and those of the metadata server's own kind, are left out."""
        if (head := self.BEGINS.match(text)) is not None:
            self._of = head["name"]
            return True
        row = self._ROW.match(text)
        if row is None or row["sum"] is None:
            return self._TIMES.match(text) is not None
        at = number, f"{self._of}: {' '.join(text.split())}"
        calls, total = int(row["n"]), int(row["sum"])
        if row["unit"] == "bytes" and row["name"] in self._BYTES:
            self.number("lctl", f"{self._BYTES[row['name']]} {self._of}", total, "B", at)
        elif row["unit"] in ("usec", "usecs") and calls >= _LEAST_CALLS:
            self.number("lctl", f"mean {row['name']} of {self._of}", total / calls / 1000, "ms", at)
        return True


class NfsIo(Section):
    """`nfsiostat`: of each mount the reads and writes, how long the server took for one, and how many were sent again."""

    BEGINS = re.compile(r"\S{1,250} mounted on (/\S{0,250}):\s*$")
    _OPERATION = re.compile(r"\s{0,4}(?P<name>read|write):\s{2,40}(?P<titles>ops/s\s.{20,200})$")
    _VALUES = re.compile(r"\s{0,40}[\d.]{1,20}(?:\s+(?:[\d.]{1,20}|\([\d.]{1,8}%\)))*\s*$")
    _MORE = re.compile(r"\s*$|\s{2,20}ops/s\s|op/s\s|\s{0,4}[a-z]{4,12}:\s")
    _TITLE = re.compile(r"avg \w{3,5} \(ms\)|\S+")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._path = ""
        self._name = ""
        self._titles: tuple[str, ...] = ()

    def take(self, text: str, number: int) -> bool:
        """Use a line; the command prints all mounts again and again."""
        if not text:
            return True
        operation = self._operation(text) if "ops/s" in text else None
        if operation is not None:
            self._name, self._titles = operation
            return True
        if self._VALUES.match(text) is not None:
            if self._name:
                self._take_values(text, number)
            self._name = ""
            return True
        if (head := self.BEGINS.match(text)) is not None:
            self._path, self._name = head[1], ""
            return True
        return self._MORE.match(text) is not None

    @classmethod
    @lru_cache(1 << 8)  # printed in front of all values
    def _operation(cls, text: str) -> tuple[str, tuple[str, ...]] | None:
        """The name of an operation and the titles of its values; None for another line."""
        row = cls._OPERATION.match(text)
        return None if row is None else (row["name"], tuple(cls._TITLE.findall(row["titles"])))

    def _take_values(self, text: str, number: int) -> None:
        cells: list[str] = []
        for word in text.split():
            if word[0] == "(" and cells:  # a number, and a share in parentheses
                cells[-1] = word.strip("(%)")
            else:
                cells.append(word)
        values = dict(zip(self._titles, cells, strict=False))
        if len(cells) < len(self._titles):
            return
        at = number, f"{self._path} {self._name}: {text.strip()}"
        try:
            if float(values.get("ops/s", 0)) < _LEAST_OPERATIONS:
                return
            if "avg RTT (ms)" in values:
                self.number("nfsiostat", f"{self._name} of {self._path}", float(values["avg RTT (ms)"]), "ms", at)
            if sent_again := float(values.get("retrans", 0)):
                self.number("nfsiostat", f"{self._name}s sent again of {self._path}", sent_again, "%", at)
        except ValueError:
            return


class MountStats(Section):
    """/proc/self/mountstats: of each NFS mount its bytes, and how long the server took for a read and a write since it was mounted.

    Of an operation: how often it came, transmissions, timeouts, bytes sent and received, and ms in the queue, on the way and in all.
    """

    BEGINS = re.compile(r"device \S{1,250} mounted on (?P<path>\S{1,250}) with fstype nfs4? ")
    _OPERATION = re.compile(r"\s+(?P<name>READ|WRITE): (?P<values>\d{1,18}(?: \d{1,18}){7,8})\s*$")
    _BYTES = re.compile(r"\s+bytes:\s+(?:\d{1,20} ){4}(?P<read>\d{1,20}) (?P<written>\d{1,20})\s")
    _MORE = re.compile(r"\s+\S|\s*$|device \S")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._path: str | None = None  # None behind a mount of another kind

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if text.startswith("device "):
            head = self.BEGINS.match(text)
            self._path = head["path"] if head is not None else None
            return True
        if self._path is None:
            return self._MORE.match(text) is not None
        at = number, f"{self._path}: {' '.join(text.split())}"
        if (counted := self._BYTES.match(text)) is not None:
            self.number("mountstats", f"read from {self._path}", int(counted["read"]), "B", at)
            self.number("mountstats", f"written to {self._path}", int(counted["written"]), "B", at)
        elif (row := self._OPERATION.match(text)) is not None:
            calls, sent, _, _, _, _, way, *_ = (int(value) for value in row["values"].split())
            if calls >= _LEAST_CALLS:
                name = row["name"].lower()
                self.number("nfsiostat", f"{name} of {self._path}", way / calls, "ms", at)
                if sent > calls:
                    self.number(
                        "nfsiostat", f"{name}s sent again of {self._path}", 100 * (sent - calls) / calls, "%", at
                    )
        return self._MORE.match(text) is not None


class Iostat(Section):
    """`iostat -x`: how busy each disk was, and how long its requests took, at most. What was before the command is left out."""

    BEGINS = re.compile(r"Device:?\s{1,40}(?=\S{1,20}\s)(?=.{10,400}%util\s*$)[\w/%\s-]{10,400}$")
    _MORE = re.compile(r"\s*$|avg-cpu:|\s{5,20}[\d.]|Linux |\d\d[/:.-]\d\d")
    _NAMES: ClassVar[dict[str, tuple[str, str]]] = {
        "%util": ("use of", "%"), "r_await": ("read of", "ms"), "w_await": ("write of", "ms"),
    }  # fmt: skip

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._titles: list[str] = []
        self._reports = 0

    def take(self, text: str, number: int) -> bool:
        """Use a line; the command prints all disks again and again, first of all the means since the start of the host."""
        if self.BEGINS.match(text) is not None:
            self._titles = text.split()
            self._reports += 1
            return True
        cells = text.split()
        if len(cells) != len(self._titles):
            return self._MORE.match(text) is not None
        try:
            values = dict(zip(self._titles[1:], (float(cell.replace(",", ".")) for cell in cells[1:]), strict=True))
        except ValueError:
            return False
        if self._reports == 1 or not values.get("%util"):
            return True
        for title, (what, unit) in self._NAMES.items():
            if (value := values.get(title)) and value > 0:
                self.number("iostat", f"{what} {cells[0]}", value, unit, (number, text))
        return True


SECTIONS: tuple[type[Section], ...] = (LfsDf, LustreImports, LustreStates, LustreStats, NfsIo, MountStats, Iostat)
