"""Parts of what commands about a host print of its links: members of a bond, ports of InfiniBand cards and switches, traffic.

The reader is `host_commands`; `host_sections` says what a part is.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from nccl_doctor.facts.tables import BondMember, IbPort
from nccl_doctor.formats.captures.host_sections import Add, Section

_NAMES = 10_000  # interfaces that are remembered
_CLOCK = 8  # characters of the time in front of a row
_IDLE = 1 << 9  # rows of interfaces that carried nothing that are remembered below the same titles
_LONGEST = 500  # characters of such a row
_Combined = Callable[[list[float]], float]
_Measure = tuple[
    str, str, _Combined, int, tuple[str, ...]
]  # its name, its unit, and how many times what of which columns it is


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

    def __init__(self, add: Add) -> None:
        super().__init__(add)
        self._host: str | None = None
        self._titles: list[str] = []
        self._measures = _measures(())
        self._words = 0  # of the line of titles, with the time in front of them
        self._names: set[str] = set()  # interfaces of which there was a row
        self._all_tops: dict[tuple[str, ...], dict[str, list[float]]] = {}  # by what tables measure
        self._tops: dict[str, list[float]] = {}  # interface -> the highest of each measure
        self._idle: dict[str, str] = {}  # row behind its time -> its interface, which carried nothing

    def take_all(self, texts: Sequence[str], at: int, first: int) -> int:
        """Use lines; most interfaces of most nodes are idle, and their rows differ in the time only."""
        for place in range(at, len(texts)):
            text = texts[place]
            name = self._idle.get(text[_CLOCK:])
            if (name in self._names or name in self._ENDS) and _begins_with_time(text):
                continue
            if not self.take(text, first + place):
                return place
        return len(texts)

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
                self._all_tops.clear()
            self._titles, self._words = text.partition("IFACE")[2].split(), len(words)
            self._measures = _measures(tuple(self._titles))
            self._idle = _idle_rows(tuple(self._titles), self._words)
            self._tops = self._all_tops.setdefault(tuple(measure[0] for measure in self._measures), {})
            return True
        elif self._titles and (row := self._ROW.match(text)) is not None:
            name, cells = row["name"], row["cells"].split()
            if name in self._ENDS or len(cells) != len(self._titles):
                if name in self._ENDS and words[-titles - 1 : -titles] == [name]:
                    self._remember(name, text)
                return True
            if len(self._names) < _NAMES:
                self._names.add(name)
        else:
            return not words
        return self._take_cells(name, cells, (number, text))

    def _take_cells(self, name: str, cells: list[str], at: tuple[int, str]) -> bool:
        numbers = _numbers(cells)
        if numbers is None:
            return False
        highest = self._tops.get(name)
        if highest is None:
            highest = [0.0] * len(self._measures)  # most interfaces of a node are not in use
            if len(self._tops) < _NAMES:
                self._tops[name] = highest
        for place, (what, unit, combined, factor, columns) in enumerate(self._measures):
            value = numbers[columns[0]] if len(columns) == 1 else combined([numbers[column] for column in columns])
            if value > highest[place]:
                highest[place] = value
                self.number("sar", f"{what} of {name}", factor * value, unit, at, self._host)
        if not any(numbers):
            self._remember(name, at[1])
        return True

    def _remember(self, name: str, row: str) -> None:
        """Note that a row of an interface adds nothing, whatever time it begins with."""
        is_short = len(self._idle) < _IDLE and len(row) <= _LONGEST
        if is_short and _begins_with_time(row) and not row.startswith(name):
            self._idle[row[_CLOCK:]] = name


def _begins_with_time(row: str) -> bool:
    """Whether a row begins with a time, or with digits that are as wide."""
    return row[:_CLOCK].replace(":", "").isdecimal()


def _numbers(cells: list[str]) -> list[float] | None:
    """Numbers as `sar` prints them in the language of the user; None where one is another word."""
    try:
        return list(map(float, cells))
    except ValueError:
        pass
    try:
        return [float(cell.replace(",", ".")) for cell in cells]
    except ValueError:
        return None


_MEASURES: tuple[_Measure, ...] = (
    ("traffic", "B/s", max, 1024, ("rxkB/s", "txkB/s")),
    ("use", "%", sum, 1, ("%ifutil",)),
    ("errors", "/s", sum, 1, ("rxerr/s", "txerr/s")),
    ("drops", "/s", sum, 1, ("rxdrop/s", "txdrop/s")),
)


@lru_cache(1 << 8)  # titles are repeated
def _measures(titles: tuple[str, ...]) -> list[tuple[str, str, _Combined, int, list[int]]]:
    """What a table with these titles tells of an interface, and in which columns."""
    place = {title: at for at, title in enumerate(titles)}
    return [
        (what, unit, combined, factor, [place[title] for title in listed if title in place])
        for what, unit, combined, factor, listed in _MEASURES
        if any(title in place for title in listed)
    ]


@lru_cache(1 << 6)
def _idle_rows(_titles: tuple[str, ...], _words: int) -> dict[str, str]:
    """The rows without traffic below these titles, so many words wide, that any node has printed."""
    return {}


SECTIONS: tuple[type[Section], ...] = (Bond, PortInfo, PortFiles, Traffic)
