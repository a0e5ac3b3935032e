"""Lists of parts without titles: sensors of boards, and fields `name : value` below the name of an array of disks.

Fan1             | 30h | ok  |  7.1 | 5040 RPM            ipmitool sdr elist
Inlet Temp       | 25 degrees C      | ok                 ipmitool sdr
CPU1 Temp        | 45.000     | degrees C  | ok    |      ipmitool sensor
temp1:        +85.0°C  (high = +80.0°C, crit = +95.0°C)   sensors
  temp1_input: 85.000                                     sensors -u
           State : clean, degraded, recovering            mdadm --detail
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nccl_doctor.formats.listings.meaning import Thing, parse_amount, parse_number

_SENSOR_STATES = {"ok": "ok", "nc": "non-critical", "cr": "critical", "nr": "non-recoverable", "lcr": "critical", "lnr": "non-recoverable",
                  "lnc": "non-critical", "ucr": "critical", "unr": "non-recoverable", "unc": "non-critical"}  # fmt: skip
"""Of ipmitool; what is not read (`ns`, `na`) has no state."""
_SENSOR = re.compile(r"(?P<name>[^|]{1,40}?)\s{0,40}\|(?P<cells>[^\n]{3,200})$")
_READING = re.compile(r"-?\d{1,9}(?:\.\d{1,4})? (?:degrees C|RPM|Watts|Volts|Amps|percent)\b|-?\d{1,9}(?:\.\d{1,4})?")
_WORDS = {"degrees C": "°C", "RPM": "RPM", "Watts": "W", "Volts": "V", "Amps": "A", "percent": "%"}
_CHIP = re.compile(r"[A-Za-z][\w.]{1,40}-(?:isa|pci|acpi|virtual|i2c|hid|mdio|scsi|hwmon)-[0-9a-f-]{1,12}$")
_CHIP_LINE = re.compile(
    r"(?P<name>[A-Za-z][^:\n]{0,40}):\s{1,20}(?P<value>[+-]?\d{1,7}(?:\.\d{1,3})?) ?(?P<unit>°?C|m?[VWA]|k?W|RPM)(?P<rest>\s[^\n]{0,200})?$"
)
_LIMIT = re.compile(r"crit = ([+-]?\d{1,7}(?:\.\d{1,3})?)")
_RAW = re.compile(
    r"\s{2}(?P<kind>temp|fan|in|power|curr)\d{1,3}_(?P<what>input|average|crit): (?P<value>-?\d{1,9}(?:\.\d{1,4})?)$"
)
_RAW_UNITS = {"temp": "°C", "fan": "RPM", "in": "V", "power": "W", "curr": "A"}
_RAW_NAME = re.compile(r"(?P<name>[A-Za-z][^:\n]{0,40}):\s*$")
_ARRAY = re.compile(r"(/dev/md\S{1,80}):\s*$")
_STATE = re.compile(r"\s{2,40}State : (?P<state>[a-zA-Z][\w ,-]{1,80}?)\s*$")
_MEMBER = re.compile(
    r"\s+(?:-|\d{1,5})(?:\s+(?:-|\d{1,5})){3}\s+(?P<state>[a-z][a-z -]{2,60}?)\s{2,10}(?P<name>/dev/\S{1,80})\s*$"
)
_POWER = re.compile(
    r"\s{0,8}(?P<name>Instantaneous|Minimum|Maximum|Average) power (?:reading(?: over sample period)?|during sampling period):"
    r"\s+(?P<value>\d{1,7}) Watts"
)

_PINGED = re.compile(r"--- (?P<name>\S{1,253}) ping statistics ---\s*$")
_LOSS = re.compile(
    r"\d{1,9} packets transmitted, \d{1,9} (?:packets )?received,(?: \+\d{1,9} \w{1,12},){0,3} (?P<loss>\d{1,3}(?:\.\d{1,6})?)% packet loss"
)
_ROUND_TRIP = re.compile(
    r"(?:rtt|round-trip) min/avg/max(?:/\w{3,6})? = \d{1,9}(?:\.\d{1,6})?/(?P<mean>\d{1,9}(?:\.\d{1,6})?)/(?P<most>\d{1,9}(?:\.\d{1,6})?)"
    r"[/ \d.]{0,24} ms"
)
_ECHO = re.compile(r"\d{1,6} bytes from \S{1,253}.{0,60} time=\d")
_LOST = 1.0  # % of the packets of `ping`, from which on they are a fault


class Found(NamedTuple):
    """A part, and the command that lists it."""

    source: str
    thing: Thing


def parts_in(lines: Sequence[tuple[int, str]]) -> Iterator[Found]:
    """The parts that some lines, which have their numbers, list."""
    chip = sensor = array = pinged = ""
    limit: float | None = None
    for number, text in lines:
        if not text.strip():
            chip = ""
        elif (found := _SENSOR.match(text)) is not None:
            if (thing := _board_sensor(number, text, found["name"], found["cells"].split("|"))) is not None:
                yield Found("ipmitool", thing)
        elif _CHIP.match(text) is not None:
            chip = text.strip()
        elif (found := _ARRAY.match(text)) is not None:
            array = found[1]
        elif array and (found := _STATE.match(text)) is not None:
            yield Found("mdadm", _thing(number, text, array, states=(found["state"],)))
        elif array and (found := _MEMBER.match(text)) is not None:
            yield Found("mdadm", _thing(number, text, found["name"], states=(found["state"],)))
        elif _ECHO.match(text) is not None:
            yield Found("ping", _thing(number, text, ""))
        elif (found := _PINGED.match(text)) is not None:
            pinged = found["name"]
        elif pinged and (found := _LOSS.match(text)) is not None:
            loss = float(found["loss"])
            states = ("losing packets",) if loss >= _LOST else ()
            yield Found(
                "ping", _thing(number, text, pinged, (("packet loss", loss, "%"),), states, "bad" if states else None)
            )
        elif pinged and (found := _ROUND_TRIP.match(text)) is not None:
            trips = (("round trip", float(found["mean"]), "ms"), ("longest round trip", float(found["most"]), "ms"))
            yield Found("ping", _thing(number, text, pinged, trips))
        elif (found := _POWER.match(text)) is not None:
            yield Found("ipmitool dcmi", _thing(number, text, "power", ((found["name"], float(found["value"]), "W"),)))
        elif chip and (found := _CHIP_LINE.match(text)) is not None:
            yield Found("sensors", _chip_line(number, text, f"{chip} {found['name']}", found))
        elif chip and (found := _RAW.match(text)) is not None:
            value = float(found["value"])
            if found["what"] != "crit":
                yield Found(
                    "sensors",
                    _thing(number, text, f"{chip} {sensor}".strip(), (("", value, _RAW_UNITS[found["kind"]]),)),
                )
                limit = value if found["kind"] == "temp" else None
            elif limit is not None and 0 < value <= limit:
                yield Found(
                    "sensors",
                    _thing(number, text, f"{chip} {sensor}".strip(), states=("above its critical limit",), level="bad"),
                )
        elif chip and (found := _RAW_NAME.match(text)) is not None:
            sensor = found["name"]


def _thing(
    number: int,
    text: str,
    name: str,
    numbers: tuple[tuple[str, float, str], ...] = (),
    states: tuple[str, ...] = (),
    level: str | None = None,
) -> Thing:
    return Thing(number, text, name, False, states, numbers, (), level)


def _board_sensor(number: int, text: str, name: str, cells: Sequence[str]) -> Thing | None:
    """A row of `ipmitool sdr`, `sdr elist` or `sensor`; None for another row between bars."""
    told = [cell.strip() for cell in cells]
    state = next((_SENSOR_STATES[cell] for cell in told if cell in _SENSOR_STATES), None)
    if state is None or len(told) not in (2, 4, 9):
        return None
    reading = told[-1] if len(told) == 4 else told[0] if len(told) == 2 else f"{told[0]} {told[1]}"
    found = _READING.match(reading)
    value, _, unit = found[0].partition(" ") if found is not None else ("", "", "")
    known = parse_number(value)
    numbers = (("", known, _WORDS[unit]),) if known is not None and unit in _WORDS else ()
    return _thing(
        number,
        text,
        name.strip(),
        numbers,
        (state,),
        "well" if state == "ok" else "poor" if state == "non-critical" else "bad",
    )


def _chip_line(number: int, text: str, name: str, found: re.Match[str]) -> Thing:
    """A line of `sensors`. One above its critical limit counts; that the chip raises an alarm alone is often an unused input."""
    rest = found["rest"] or ""
    amount = parse_amount(f"{found['value'].lstrip('+')} {found['unit'].replace('°', '')}")
    assert amount is not None
    limit = _LIMIT.search(rest)
    is_hot = limit is not None and found["unit"].endswith("C") and 0 < float(limit[1]) <= amount[0]
    states = ("above its critical limit",) if is_hot else ()
    return _thing(number, text, name, (("", *amount),), states, "bad" if is_hot else None)
