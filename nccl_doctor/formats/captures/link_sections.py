"""Parts of what commands about a host print of its links: members of a bond, ports of InfiniBand cards and switches, traffic.

The reader is `host_commands`; `host_sections` says what a part is.
"""

import re
from typing import Any, ClassVar

from nccl_doctor.facts.tables import BondMember, IbPort
from nccl_doctor.formats.captures.host_sections import Add, Section

_NAMES = 10_000  # interfaces that are remembered


class Bond(Section):
    """/proc/net/bonding/NAME: the mode, and a part for each member."""

    BEGINS = re.compile(r"Ethernet Channel Bonding Driver: v")
    _FIELD = re.compile(r"\s{0,16}([A-Z][\w /()-]{1,60}?)\s{0,4}: ?(.{0,200})$")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._mode: str | None = None
        self._member: dict[str, str] = {}
        self._at = (0, "")

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        field = self._FIELD.match(text)
        if field is None:
            return not text.strip() or text.startswith(
                ("802.3ad info", "Active Aggregator Info", "details ", " ", "\t")
            )
        title, value = field[1], field[2].strip()
        if title == "Bonding Mode":
            self._mode = value
        elif title in ("Slave Interface", "Member Interface"):
            self._member, self._at = {"name": value}, (number, text)
        elif self._member and not text.startswith((" ", "\t")):
            self._member.setdefault(title, value)
            if title == "MII Status":
                self._at = (number, f"{self._at[1].strip()}, {text.strip()}")
            if title == "Aggregator ID" or (title == "Slave queue ID" and "802.3ad" not in (self._mode or "")):
                self._write()
        return True

    def _write(self) -> None:
        speed = re.match(r"(\d{1,7}) Mbps", self._member.get("Speed", ""))
        aggregator = self._member.get("Aggregator ID", "")
        row = BondMember(
            None, "bond", self._mode, self._member["name"], self._member.get("MII Status"),
            int(speed[1]) if speed else None, int(aggregator) if re.fullmatch(r"\d{1,8}", aggregator) else None, 0,
        )  # fmt: skip
        self.add(row, *self._at)


def _port(hca: str, port: int, state: str, physical: str | None, layer: str | None = None) -> IbPort:
    unknown: dict[str, Any] = dict.fromkeys(IbPort._fields)
    known = {"file": "", "hca": hca, "port": port, "state": state, "physical": physical, "link_layer": layer, "ref": 0}
    return IbPort(**{**unknown, **known})


class PortInfo(Section):
    """`ibportstate LID PORT`, `smpquery portinfo`: `LinkState:.......................Down`."""

    BEGINS = re.compile(r"# Port info: Lid \d|(?:CA|Switch) PortInfo:|PortInfo:\s*$")
    _HEAD = re.compile(r"# Port info: Lid (\d{1,6}) .{0,80}?port (\d{1,3})\b")
    _ROW = re.compile(r"([A-Z]\w{2,40}):\.{2,60}(.{0,120}?)\s*$")

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._of: tuple[str, int] | None = None
        self._state = ""

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        if (head := self._HEAD.match(text)) is not None:
            self._of, self._state = (f"lid {head[1]}", int(head[2])), ""
            return True
        row = self._ROW.match(text)
        if row is None:
            return self.BEGINS.match(text) is not None
        if row[1] == "LinkState":
            self._state = {"Init": "Initializing", "Initialize": "Initializing"}.get(row[2], row[2])
        elif row[1] == "PhysLinkState" and self._of is not None and self._state:
            self.add(_port(*self._of, self._state, row[2] or None), number, f"LinkState {self._state}, {text.strip()}")
        return True


class PortFiles(Section):
    """`grep '' /sys/class/infiniband/*/ports/*/*`: `/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE`."""

    BEGINS = re.compile(r"/sys/class/infiniband/[\w-]{2,40}/ports/\d{1,3}/\w{2,30}:")
    _ROW = re.compile(
        r"/sys/class/infiniband/(?P<hca>[\w-]{2,40})/ports/(?P<port>\d{1,3})/state:\s?\d: (?P<state>[A-Z]\w{2,20})"
    )
    _STATES: ClassVar = {"INIT": "Initializing", "ACTIVE_DEFER": "Active_defer"}

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        row = self._ROW.match(text)
        if row is not None:
            state = self._STATES.get(row["state"], row["state"].capitalize())
            self.add(_port(row["hca"], int(row["port"]), state, None), number, text)
        return self.BEGINS.match(text) is not None


class Traffic(Section):
    """`sar -n DEV` and `sar -n EDEV`: what each network interface carried, and lost; of all intervals the highest."""

    BEGINS = re.compile(
        r"Linux \S{1,80} \((?P<host>\S{1,253})\)\s.{0,80}\(\d{1,5} CPU\)\s*$"
        r"|(?:[\d:]{8}\s?)?(?:[AP]M|[A-Z]\S{3,20}:)?\s{0,20}IFACE\s+rx(?:pck|err)/s\s"
    )
    _ROW = re.compile(
        r"(?:[\d:]{8}\s?)?(?:[AP]M|[A-Z]\S{3,20}:)?\s{0,20}(?P<name>[\w.@-]{1,40})(?P<cells>(?:\s+\d{1,15}[.,]\d{1,3}){6,12})\s*$"
    )
    _ENDS: ClassVar = ("lo", "IFACE")
    _LOSSES: ClassVar = {"err": "errors", "drop": "drops"}

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._host: str | None = None
        self._titles: list[str] = []
        self._words = 0  # of the line of titles, with the time in front of them
        self._names: set[str] = set()  # interfaces of which there was a row

    def take(self, text: str, number: int) -> bool:
        """Use a line."""
        words = text.split()
        titles = len(self._titles)
        if len(words) == self._words and titles and words[-titles - 1] in self._names:  # as the rows before
            name, cells = words[-titles - 1], words[-titles:]
        elif (head := self.BEGINS.match(text)) is not None:
            if head["host"] and head["host"] != self._host:
                self._host = head["host"]
                self._highest.clear()
            self._titles, self._words = text.partition("IFACE")[2].split(), len(words)
            return True
        elif self._titles and (row := self._ROW.match(text)) is not None:
            name, cells = row["name"], row["cells"].split()
            if name in self._ENDS or len(cells) != len(self._titles):
                return True
            if len(self._names) < _NAMES:
                self._names.add(name)
        else:
            return not words
        return self._take_cells(name, cells, (number, text))

    def _take_cells(self, name: str, cells: list[str], at: tuple[int, str]) -> bool:
        values = dict(zip(self._titles, cells, strict=True))
        try:
            if "rxkB/s" in values:
                carried = 1024 * max(_decimal(values["rxkB/s"]), _decimal(values.get("txkB/s", "0")))
                self._keep(f"traffic of {name}", carried, "B/s", at)
                self._keep(f"use of {name}", _decimal(values.get("%ifutil", "0")), "%", at)
            elif "rxerr/s" in values:
                for what in ("err", "drop"):
                    lost = _decimal(values.get(f"rx{what}/s", "0")) + _decimal(values.get(f"tx{what}/s", "0"))
                    self._keep(f"{self._LOSSES[what]} of {name}", lost, "/s", at)
        except ValueError:
            return False
        return True

    def _keep(self, name: str, value: float, unit: str, at: tuple[int, str]) -> None:
        if value:  # most interfaces of a node are not in use
            self.number("sar", name, value, unit, at, self._host)


def _decimal(text: str) -> float:
    """A number as `sar` prints it in the language of the user. Raises ValueError for another word."""
    return float(text.replace(",", "."))


SECTIONS: tuple[type[Section], ...] = (Bond, PortInfo, PortFiles, Traffic)
