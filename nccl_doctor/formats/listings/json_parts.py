"""Parts of machines in JSON: answers of Redfish (BMC), `smartctl --json`, `nvme smart-log -o json`, `storcli … J`."""

import json
import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.formats.listings.meaning import Thing, level_of

MARKS = (
    b'"@odata.', b'"smartctl"', b'"ReadingCelsius"', b'"nvme_smart_health_information_log"', b'"critical_warning"', b'"Controllers"',
)  # fmt: skip
"""One of which such a document has in its first bytes."""
LARGEST = 16 << 20  # bytes of a document
_PARTS = 50_000  # objects that are looked at
_DEEPEST = 30
_NAMES = ("Name", "DeviceName", "MemberId", "Id", "EID:Slt", "name", "info_name", "model_name", "DevicePath")
_STATES = ("Health", "State", "Status", "state", "health")
_UNITS = {"Cel": "°C", "RPM": "RPM", "Percent": "%", "W": "W", "V": "V", "A": "A", "%": "%"}
"""Of Redfish's `ReadingUnits`."""
_READINGS = (
    (
        re.compile(r"(?i)(?:reading_?celsius|(?:drive|current)? ?temperature(?:_celsius)?|temperaturecelsius)$"),
        "temperature",
        "°C",
    ),
    (re.compile(r"(?i)(?:\w{0,40}watts|power_draw)$"), "power", "W"),
    (re.compile(r"(?i)reading_?volts$"), "voltage", "V"),
    (re.compile(r"(?i)percent(?:age)?_used$"), "used of its life", "%"),
    (re.compile(r"(?i)(?:media_errors|media error count)$"), "media errors", "errors"),
    (re.compile(r"(?i)predictive failure count$"), "predicted failures", "errors"),
)
_TEXT = re.compile(r'"[^"\n]{1,200}"')
_LEADING = re.compile(r"\s{0,4}(-?\d{1,6}(?:\.\d{1,3})?) ?C\b")
_LIMITS = re.compile(r"(?i)threshold|limit|capacity|rated|min|max|allocated")


def parts_of(data: bytes) -> list[Thing] | None:
    """The parts that a document tells of, in its order; None where it is no complete JSON."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    lines = _lines(data.decode("utf-8", "replace"))
    found: list[Thing] = []
    waiting: list[tuple[str, Any, int]] = [("", document, 0)]
    for _ in range(_PARTS):
        if not waiting:
            break
        above, value, depth = waiting.pop()
        if depth > _DEEPEST:
            continue
        if isinstance(value, list):
            waiting += [(above, one, depth + 1) for one in value[::-1]]
        elif isinstance(value, dict):
            name = next((str(value[key]) for key in _NAMES if isinstance(value.get(key), str | int)), above)
            thing = _thing(value, name[:120])
            if thing is not None:
                found.append(thing._replace(number=lines.get(json.dumps(name), 1) if name != above else 1))
            waiting += [
                (key if name == above else name, one, depth + 1)
                for key, one in reversed(value.items())
                if isinstance(one, dict | list) and key != "Status"
            ]
    return found


def _lines(document: str) -> dict[str, int]:
    """The line of each text of a document on which it stands first; a part may have its name behind those of others."""
    lines: dict[str, int] = {}
    counted, number = 0, 1
    for text in _TEXT.finditer(document):
        number += document.count("\n", counted, text.start())
        counted = text.start()
        lines.setdefault(text[0], number)
    return lines


def _thing(record: dict[str, Any], name: str) -> Thing | None:
    states = [*_states(record)]
    numbers = [*_numbers(record)]
    if not (states or numbers):
        return None
    shown = ", ".join([*states, *(f"{title} {value:g} {unit}" for title, value, unit in numbers)])
    level = "bad" if any(level_of(state) == "bad" for state in states) else None
    return Thing(1, f"{name}: {shown}", name or "document", False, tuple(states), tuple(numbers), (), level)


def _states(record: dict[str, Any]) -> Iterator[str]:
    """What the part says of itself; that a command succeeded, and that a sensor is enabled, is no state of a part."""
    told = record.get("Status")
    inner = told if isinstance(told, dict) else record
    for key in _STATES:
        state = inner.get(key)
        if (
            isinstance(state, str)
            and state.replace(" ", "").isalpha()
            and state not in ("Success", "Enabled", "StandbyOffline", "Absent")
        ):
            yield state[:40]
            break
    passed = record.get("smart_status")
    if isinstance(passed, dict) and isinstance(passed.get("passed"), bool):
        yield "passed" if passed["passed"] else "failed"
    if finite(record.get("critical_warning")):
        yield "critical warning"


def _numbers(record: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    reading = finite(record.get("Reading"))
    unit = record.get("ReadingUnits")
    if reading is not None and isinstance(unit, str):
        yield "", reading, _UNITS.get(unit, unit[:20])
    for key, value in record.items():
        form = next(((title, unit) for pattern, title, unit in _READINGS if pattern.match(key)), None)
        if form is None or _LIMITS.search(key):
            continue
        leading = _LEADING.match(value) if isinstance(value, str) else None
        number = float(leading[1]) if leading is not None else finite(value)
        current = value.get("current") if isinstance(value, dict) else None
        number = number if number is not None else finite(current)
        if number is not None:
            yield form[0], number, form[1]
