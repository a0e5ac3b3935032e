"""What `mlxlink` (or `mstlink`) says of a port: state, bit error rates and its own advice, as text or JSON, many in one file."""

import json
import re
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter, LinkQuality
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_LARGEST_JSON = 8 << 20
_MOST_PORTS = 50_000
_LINK_HEADS = re.compile(
    rb"Operational Info|Physical Counters and BER Info|Troubleshooting Info|(?:mlxlink|mstlink) .{0,80}?-d "
)
_LINK_CALL = re.compile(r".{0,80}\b(?:mlxlink|mstlink) .{0,80}?-d ([\w./:-]{1,60})(?:.{0,80}? -p (\d{1,4}))?")
_LINK_TITLE = re.compile(r"[=#*-]{2,20} ?((?:mlx\d_|roce|ib|bnxt_re|rocep|ibp)\w{0,20})\b")
_LINK_FIELD = re.compile(r"([A-Z][\w ()\[\]/-]{2,50}?) {0,40}: (.{1,300})$")
_KNOWN_FIELDS = {
    "State", "Physical state", "Speed", "Width", "Raw Physical BER", "Effective Physical BER", "Symbol BER", "Recommendation",
    "Effective Physical Errors", "Symbol Errors", "Link Down Counter", "Link Error Recovery Counter", "Time Since Last Clear [Min]",
    "Raw Physical Errors Per Lane",
    "Temperature [C]", "Voltage [mV]", "Bias Current [mA]", "Rx Power Current [dBm]", "Tx Power Current [dBm]",
}  # fmt: skip
_LINK_COUNTERS = {
    "Effective Physical Errors": "effective_errors", "Symbol Errors": "symbol_error", "Link Down Counter": "link_downed",
    "Link Error Recovery Counter": "link_error_recovery",
}  # fmt: skip


_OF_MODULE = (
    "Rx Power Current [dBm]",
    "Tx Power Current [dBm]",
    "Bias Current [mA]",
    "Voltage [mV]",
    "Temperature [C]",
)
_LANES = "Raw Physical Errors Per Lane"
_UNCORRECTED = 1e-13  # bit error rate after correction from which a lane matters
_ODD = 100  # times the errors of the other lanes
_READ_FIELDS = sorted(_KNOWN_FIELDS - {_LANES})
_DECIMAL = r"-?\d{1,9}(?:\.\d{1,9})?"
_RANGED = re.compile(rf"({_DECIMAL}(?:,{_DECIMAL}){{0,15}}) \[({_DECIMAL})\.\.({_DECIMAL})\]")


class _Line(NamedTuple):
    """A line that names a device or says something of its port."""

    device: str | None
    title: str
    value: str
    text: str


@lru_cache(1 << 12)  # most ports of a fabric say the same
def _parse_line(text: str) -> _Line | None:
    call = _LINK_CALL.match(text) or _LINK_TITLE.match(text)
    if call is not None:
        device = call[1].rpartition("/")[2]
        return _Line(f"{device}/{call[2]}" if call.re is _LINK_CALL and call[2] else device, "", "", text)
    field = _LINK_FIELD.match(text.strip())
    return None if field is None else _Line(None, field[1], field[2].strip(), text.strip())


class _Said(NamedTuple):
    """What a port says, as columns."""

    quality: tuple[Any, ...]  # of `link_quality`, from `state` on without `ref`
    kind: str
    counters: tuple[tuple[str, str, int], ...]  # title, name, value


@lru_cache(1 << 12)  # most ports of a fabric say the same
def _said(*values: str | None) -> _Said:
    """The meaning of the values of `_READ_FIELDS`."""
    fields = {title: value for title, value in zip(_READ_FIELDS, values, strict=True) if value not in ("N/A", "")}
    get = fields.get
    speed = get("Speed") or ""
    width = re.match(r"(\d{1,2})x", get("Width") or "")
    rates = (_number(get(title)) for title in ("Raw Physical BER", "Effective Physical BER", "Symbol BER"))
    module = next((found for title in _OF_MODULE if (found := _outside(title, get(title)))), None)
    counted = ((title, name, get(title) or "") for title, name in _LINK_COUNTERS.items())
    return _Said(
        (
            get("State") or get("Physical state"), speed or None, int(width[1]) if width else None, *rates,
            _number(get("Time Since Last Clear [Min]")), get("Recommendation"), module,
        ),
        "ib" if speed.startswith("IB-") else "ethernet",
        tuple((title, name, int(value)) for title, name, value in counted if value.isdecimal() and len(value) <= 18),
    )  # fmt: skip


class _Port:
    """The fields of one output, each with its line."""

    def __init__(self, host: str | None, link: str) -> None:
        self.host = host
        self.link = link
        self.fields: dict[str, tuple[str, int, str]] = {}

    def rows(self, facts: Facts, name: str) -> list[LinkQuality | LinkCounter]:
        """The rows of a port that ends; it forgets its lines."""
        fields, self.fields = self.fields, {}
        shown = fields.get("Recommendation") or fields.get("Effective Physical BER")
        if shown is None:
            shown = min(fields.values(), key=itemgetter(1))
        ref = facts.evidence(name, *shown[1:])
        said = _said(*[fields[title][0] if title in fields else None for title in _READ_FIELDS])
        quality = LinkQuality._make((self.host, name, self.link, *said.quality, ref))
        if _LANES in fields and quality.module is None and (quality.effective_ber or 0) > _UNCORRECTED:
            quality = quality._replace(module=_odd_lane(fields[_LANES][0]))
        rows: list[LinkQuality | LinkCounter] = [quality]
        for title, counter, value in said.counters:
            at = facts.evidence(name, *fields[title][1:]) if value else ref
            rows.append(LinkCounter(self.host, name, "mlxlink", said.kind, self.link, counter, value, at))
        return rows


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every port of a file.

    Source: mlxlink of MFT 4.14 to 4.33 and mstlink of mstflint (`-d DEVICE -c`, also with `--json`)::

        Effective Physical BER             : 15E-255
        Recommendation                     : No issue was observed
    """
    head = read_head(stream, 1 << 16)
    facts.mark_covered("link_quality", "link_counter")
    if begins_json(head):
        return _json(head, stream, name, facts)
    return _text(head, stream, name, facts)


def _text(head: bytes, stream: Readable, name: str, facts: Facts) -> Reading:
    sections = Sections(Joined(head, stream), _LINK_HEADS)
    open_: dict[str | None, _Port] = {}
    names: dict[str | None, str] = {}
    rows: dict[_Port, list[LinkQuality | LinkCounter]] = {}  # in the order in which the ports begin
    used = 0
    note = None
    for first, label, texts in sections.batches():
        port, last = open_.get(label.host), 0
        for number, text in enumerate(texts, first):
            line = _parse_line(text)
            if line is None:
                continue
            if line.device is not None:
                names[label.host] = line.device
                if port is not None:
                    rows[open_.pop(label.host)] = port.rows(facts, name)
                    port = None
                continue
            last = number
            if line.title not in _KNOWN_FIELDS:
                continue
            used += 1
            if port is None or line.title in port.fields:
                if len(rows) >= _MOST_PORTS:
                    note = f"holds more than {_MOST_PORTS:,} ports; the others were left out"
                    continue
                if port is not None:
                    rows[port] = port.rows(facts, name)
                port = open_[label.host] = _Port(label.host, names.pop(label.host, "") or f"port {len(rows) + 1}")
                rows[port] = []
            port.fields[line.title] = line.value, number, line.text
        if last:
            sections.used(last)
    for port in open_.values():
        rows[port] = port.rows(facts, name)
    facts.add(chain.from_iterable(rows.values()))
    return Reading(sections.lines, used, note)


def _json(head: bytes, stream: Readable, name: str, facts: Facts) -> Reading:
    data = head + read_head(stream, _LARGEST_JSON)
    lines = data.count(b"\n") + 1
    try:
        top: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        return Reading(lines, 0, f"is not complete JSON: {str(error)[:100]}")
    inner = next((top[key] for key in ("mlxlink_output", "result") if isinstance(top.get(key), dict)), top)
    output = inner.get("output", inner)
    port = _Port(None, "port 1")
    text = data.decode("utf-8", "replace").split("\n")
    for section in output.values() if isinstance(output, dict) else ():
        for title, value in section.items() if isinstance(section, dict) else ():
            if title == _LANES and isinstance(value, dict) and isinstance(value.get("values"), list):
                value = ",".join(map(str, value["values"][:16]))
            if title in _KNOWN_FIELDS and isinstance(value, str | int | float):
                mark = f'"{title}"'
                at = next((n for n, line in enumerate(text, 1) if mark in line), 1)
                port.fields[title] = (str(value), at, text[at - 1].strip()[:600])
    used = len(port.fields)
    if used:
        facts.add(port.rows(facts, name))
    return Reading(lines, min(lines, used))


@lru_cache(1 << 12)
def _outside(title: str, text: str | None) -> str | None:
    """`1.2,-8.7 [-7.3..7.0]` -> what of the lanes is outside of the range that the module allows; None where nothing is."""
    match = _RANGED.match(text or "")
    if match is None or float(match[2]) >= float(match[3]):
        return None
    values = match[1].split(",")
    wrong = [
        f"{value} in lane {lane}"
        for lane, value in enumerate(values, 1)
        if not float(match[2]) <= float(value) <= float(match[3])
    ]
    name = title.replace(" Current [dBm]", "").replace(" [", ", ").rstrip("]")
    return (
        f"{name} {', '.join(wrong) if len(values) > 1 else match[1]}, allowed are {match[2]} to {match[3]}"
        if wrong
        else None
    )


def _odd_lane(text: str | None) -> str | None:
    """`99112,88123,771234123,91231` -> the lane with far more errors before correction than the others; None without one."""
    if not re.fullmatch(r"\d{1,18}(?:,\d{1,18}){1,15}", text or ""):
        return None
    counts = [int(count) for count in (text or "").split(",")]
    *others, most = sorted(counts)
    if most < _ODD * max(others[-1], 1):
        return None
    return f"lane {counts.index(most) + 1} of {len(counts)} has {most} raw errors, the others up to {others[-1]}"


@lru_cache(1 << 12)
def _number(text: str | None) -> float | None:
    match = re.match(r"\d{1,12}(?:\.\d{1,9})?(?:[Ee]-?\d{1,3})?", text or "")
    return float(match[0]) if match else None
