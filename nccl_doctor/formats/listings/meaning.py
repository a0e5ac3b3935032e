"""What the columns of a listed table say: the name of a thing, its state, numbers with their units, counters of errors."""

import re
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.formats.listings.titled import Table

_LARGEST = 1e18
_NUMBER = re.compile(r"[-+]?\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,6})?|[-+]?\d{1,18}(?:\.\d{0,12})?(?:[eE][-+]?\d{1,3})?")
_AMOUNT = re.compile(rf"(?P<value>{_NUMBER.pattern})(?: ?(?P<unit>%|°?[A-Za-z][A-Za-z/]{{0,7}}|degrees C))?")
_UNIT_IN_TITLE = re.compile(r"[(\[] ?([A-Za-z°%][A-Za-z/%]{0,8}) ?[)\]]")
_STATE = re.compile(r"[A-Za-z][\w /-]{0,40}[*!~#]?")
_SPELT = {
    "volts": "V", "volt": "V", "amps": "A", "amp": "A", "watts": "W", "watt": "W", "celsius": "°C", "c": "°C", "degrees c": "°C",
    "pct": "%", "percent": "%", "rpm": "RPM", "dbm": "dBm", "db": "dB", "v": "V", "mv": "mV", "a": "A", "ma": "mA", "w": "W", "mw": "mW",
    "kw": "kW", "mhz": "MHz", "ghz": "GHz", "%": "%", "°c": "°C",
}  # fmt: skip
_DEVICE_UNITS = frozenset({"V", "mV", "A", "mA", "W", "mW", "°C", "RPM", "dBm", "dB", "MHz", "GHz"})
"""Of parts of machines; rates and times are those of benchmarks as well."""
_RATES = frozenset({"kb/s", "mb/s", "gb/s", "b/s", "kib/s", "mib/s", "gib/s", "kbps", "mbps", "gbps", "bps"})
_OTHERS = frozenset({"%", "ms", "us", "s", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB"})
_TITLED_UNITS = {"waittime": "s", "waittimesecs": "s"}
_STATES = frozenset(
    {
        "state", "status", "health", "oper", "operstatus", "operstate", "availability", "linkstate", "portstate", "physstate",
        "reachability", "consistency", "linkstatus", "opstate", "raiddevicestate", "stat",
    }
)  # fmt: skip
_ADMIN = frozenset({"admin", "adminstatus", "adminstate"})
_UNIT_TITLES = frozenset({"unit", "units"})
_VALUES = ("avg", "average", "mean", "median", "value", "current", "reading")  # the best first
_NAMES = (
    "nsdname", "entityname", "poolname", "diskname", "iface", "interface", "port", "portrx", "porttx", "psu", "name", "device", "disk",
    "nodename", "drive", "target", "host", "hostname", "node", "pool", "slot", "module", "parameter", "sensor", "threadname", "jobid",
    "neurondevice", "powersupply", "fan", "cpu",
)  # fmt: skip
_PORTS = frozenset({"iface", "interface", "port", "portrx", "porttx"})
_PORT_NAME = re.compile(
    r"(?:Ethernet|Eth|Et|eth|ib|ibs|swp|Gi|Te|Twe|Fo|Hu|GigabitEthernet|Po|Port-Channel|PortChannel|hsn|bond|Vlan|mlx\d_|docker|br|virbr)"
    r"[\d/.:]{1,12}\w{0,8}|en[spox]\w{1,14}|lo|mgmt\d?"
)
BAD = frozenset(
    {
        "down", "failed", "fail", "failure", "faulted", "faulty", "fault", "unavail", "unavailable", "offline", "error", "err", "critical",
        "dead", "unhealthy", "broken", "bad", "unreachable", "notready", "notok", "notrunning", "lost", "unusable",
        "removed", "errdisabled",
    }
)  # fmt: skip
POOR = frozenset(
    {
        "degraded", "warning", "warn", "suspended", "recovering", "rebuilding", "resyncing", "drained", "draining", "drain", "needsresync",
        "marginal", "impaired",
    }
)  # fmt: skip
_COUNTERS = {
    "rxerr": "rx_errors", "rxerrors": "rx_errors", "inerrors": "rx_errors", "txerr": "tx_errors", "txerrors": "tx_errors",
    "rxdrp": "rx_dropped", "rxdrop": "rx_dropped", "txdrp": "tx_dropped", "txdrop": "tx_dropped", "rxovr": "rx_fifo_errors",
    "txovr": "tx_fifo_errors", "outerrors": "tx_errors", "indiscards": "rx_discards", "outdiscards": "tx_discards", "crc": "rx_crc_errors",
    "fcserr": "rx_crc_errors", "rxfcserr": "rx_crc_errors", "fecuncorr": "effective_errors", "fecsymbolerr": "rx_symbol_errors",
    "wreddrppkts": "tx_dropped", "aligner": "rx_frame_errors",
}  # fmt: skip
"""Titles of SONiC, net-tools, Cisco and Arista, as the kernel calls these counters."""
_PAUSE = re.compile(r"pfc([0-7])")


class Thing(NamedTuple):
    """A row of a table: one thing."""

    number: int
    text: str
    name: str
    is_port: bool
    states: tuple[str, ...]
    numbers: tuple[tuple[str, float, str], ...]  # title, value, unit
    counters: tuple[tuple[str, int], ...]  # of errors
    level: str | None = None  # of its states, where these are no words of `level_of`


class _Columns(NamedTuple):
    """Which column of a table is what."""

    names: tuple[int, ...]
    is_ports: bool
    states: tuple[int, ...]
    admin: int | None
    numbers: dict[int, tuple[str, str]]  # title, unit; an empty one stands in the cells
    counters: dict[int, str]
    unit: int | None  # of the numbers of a row
    value: int | None


def things_of(table: Table, *, whatever: bool = False) -> Iterator[Thing]:
    """The things of a table; none of a table that tells no states, counters or readings of parts, unless it is taken whatever it tells."""
    columns = _columns(table, {*_STATES, "event"} if whatever else _STATES)
    told = columns.states or columns.counters or columns.value is not None
    of_parts = whatever or any(
        (unit or _common_unit(table, at)) in _DEVICE_UNITS
        or (title[:1] == "%" and columns.names)
        or table.titles[at].endswith("MEMORY")
        for at, (title, unit) in columns.numbers.items()
    )
    if not (told or of_parts):
        return
    for number, text, cells in table.rows:
        name = " ".join(filter(None, dict.fromkeys(cells[at] for at in columns.names)))
        if whatever and not name:
            name = table.above
        if not name.strip("- "):
            if not name or text.strip("- ") == "" or not columns.numbers:
                continue
            name = "all"
        off = columns.admin is not None and cells[columns.admin].lower() == "down"
        states = () if off else tuple(cells[at] for at in columns.states if _STATE.fullmatch(cells[at]))
        yield Thing(
            number, text, name, columns.is_ports, states, tuple(_numbers(cells, columns)),
            tuple((title, int(value)) for at, title in columns.counters.items() if (value := parse_number(cells[at])) is not None),
        )  # fmt: skip


def _numbers(cells: Sequence[str], columns: _Columns) -> Iterator[tuple[str, float, str]]:
    if columns.value is not None and columns.unit is not None:
        value = parse_number(cells[columns.value])
        if value is not None and cells[columns.unit]:
            unit = cells[columns.unit]
            yield "", value, "" if unit == "N/A" else _SPELT.get(unit.lower(), unit)
        return
    for at, (title, unit) in columns.numbers.items():
        found = parse_amount(cells[at])
        if found is not None and (unit or found[1]):
            yield title, found[0], unit or found[1]


def _columns(table: Table, state_titles: Set[str]) -> _Columns:
    titles = [re.sub(r"\W", "", title).lower().replace("_", "") for title in table.titles]
    counters: dict[int, str] = {}
    numbers: dict[int, tuple[str, str]] = {}
    way = "tx" if "porttx" in titles else "rx"
    for at, title in enumerate(titles):
        pause = _PAUSE.fullmatch(title)
        if (counter := _COUNTERS.get(title)) or pause is not None:
            counters[at] = counter or f"{way}_prio{pause[1] if pause else 0}_pause"
        elif title not in state_titles and _holds_numbers(table, at):
            plain = _UNIT_IN_TITLE.sub("", table.titles[at]).strip() or table.titles[at]
            numbers[at] = plain, unit_of_title(table.titles[at])
    names = _names(table, titles, {*numbers, *counters})
    is_ports = bool(names) and (
        titles[names[0]] in _PORTS or all(_PORT_NAME.fullmatch(cells[names[0]]) for *_, cells in table.rows)
    )
    unit = next((at for at, title in enumerate(titles) if title in _UNIT_TITLES), None)
    value = next((titles.index(title) for title in _VALUES if title in titles), None) if unit is not None else None
    return _Columns(
        names, is_ports, tuple(at for at, title in enumerate(titles) if title in state_titles and at not in names),
        next((at for at, title in enumerate(titles) if title in _ADMIN), None), numbers, counters if is_ports else {}, unit, value,
    )  # fmt: skip


def _names(table: Table, titles: Sequence[str], numeric: set[int]) -> tuple[int, ...]:
    """The columns that tell rows apart: the first with such a title or that is no number, and the next one where it repeats."""
    texts = [at for at in range(len(titles)) if at not in numeric and titles[at] not in _STATES]
    first = next((titles.index(title) for title in _NAMES if title in titles), texts[0] if texts else None)
    if first is None:
        return ()
    if len({cells[first] for *_, cells in table.rows}) == len(table.rows) or not (
        others := [at for at in texts if at > first and titles[at] not in _ADMIN]
    ):
        return (first,)
    return first, others[0]


def _holds_numbers(table: Table, at: int) -> bool:
    """Whether most cells of a column are numbers that need no other name."""
    found = [cells[at] for *_, cells in table.rows if cells[at] not in ("", "-", "N/A", "--")]
    return bool(found) and 2 * sum(parse_amount(cell) is not None for cell in found) > len(found)


def _common_unit(table: Table, at: int) -> str:
    """The unit in the cells of a column; empty where they have none."""
    return next((found[1] for *_, cells in table.rows if (found := parse_amount(cells[at])) is not None), "")


@lru_cache(1 << 10)
def unit_of_title(title: str) -> str:
    """The unit that a title names: `Power (W)`, `%usr`, `freeBlocksPct`; empty for another one."""
    found = _UNIT_IN_TITLE.search(title)
    if found is not None:
        return _known_unit(found[1])
    plain = re.sub(r"\W", "", title).lower()
    if title[:1] == "%" or title.endswith(("Pct", "%")):
        return "%"
    return "MHz" if title.endswith("_MHz") else "W" if title.endswith("Watt") else _TITLED_UNITS.get(plain, "")


def _known_unit(unit: str) -> str:
    """A unit as it is written here; empty for a word that is none."""
    spelt = _SPELT.get(unit.lower())
    return spelt or (unit if unit.lower() in _RATES or unit in _OTHERS else "")


def parse_number(text: str) -> float | None:
    """A number, also with commas between thousands; None for another word."""
    found = _NUMBER.fullmatch(text)
    value = float(found[0].replace(",", "")) if found is not None else None
    return value if value is not None and abs(value) < _LARGEST else None


def parse_amount(text: str) -> tuple[float, str] | None:
    """A number and its unit, which is empty where there is none; None for other words."""
    found = _AMOUNT.fullmatch(text)
    if found is None or (value := parse_number(found["value"])) is None:
        return None
    unit = _known_unit(found["unit"] or "")
    return None if found["unit"] and not unit else (value, unit)


def level_of(state: str) -> str:
    """`bad`, `poor` or `well`: what the words of a state say. One of several words in it is enough."""
    words = {re.sub(r"\W", "", word).lower() for word in re.split(r"[ ,_/]", state)}
    if state.lower().startswith(("not ", "no ")):
        words.add(re.sub(r"\W", "", state).lower())
    return "bad" if words & BAD else "poor" if words & POOR else "well"
