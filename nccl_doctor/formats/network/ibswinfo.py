"""What `ibswinfo` prints of InfiniBand switches: power supplies, fans, temperatures."""

import re
from functools import partial

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, SwitchPart
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_RULER = re.compile(r"={40,60}\s*$")
_FIELD = re.compile(r"(?P<title>[A-Za-z ][\w #/().:-]{1,40}?)\s{0,30}\|(?: (?P<value>\S.{0,120})?)?$")
_SUPPLY = re.compile(r"PSU(\d{1,2}) status")
_FAN = re.compile(r"fan#(\d{1,2}) \(rpm\)")
_OPTIC = re.compile(r"(?:QSFP|module)#(\d{1,3}) \(C\)")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,3})?")
_MOST = 20_000  # parts and numbers


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every switch of a file.

    Source: `ibswinfo.sh`, 0.5 to 0.8::

        PSU1 status        | ERROR
             DC power      | ERROR
        temperature (C)    | 61
        fan#9 (rpm)        | 0
    """
    facts.mark_covered("switch_part", "host_number")
    rows: list[SwitchPart | HostNumber] = []
    fans: list[tuple[int, SwitchPart]] = []  # of the switch, and how fast they turn
    switch, ruler, supply = "", 0, ""
    lines = used = 0

    def end() -> None:
        """Fans that stand still where others of the switch turn."""
        if any(speed > 0 for speed, _ in fans):
            rows.extend(part for speed, part in fans if speed == 0)
        fans.clear()

    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, text in enumerate(texts, first):
            if _RULER.match(text) is not None:
                ruler += 1
                if ruler % 2:
                    end()
                    switch = supply = ""
                used += 1
                continue
            if ruler % 2:
                said = text.strip().removeprefix("Current node description:").strip()
                switch = said[:80] if said and not said.startswith("Device: ") else switch
                used += bool(said)
                continue
            field = _FIELD.match(text)
            if field is None or not ruler or len(rows) >= _MOST:
                continue
            used += 1
            title, value = field["title"].strip(), (field["value"] or "").strip()
            shown = f"{switch}: {' '.join(text.split())}"
            ref = partial(facts.evidence, name, number, shown)
            if (found := _SUPPLY.match(title)) is not None:
                supply = f"PSU{found[1]}"
            if not value:  # the switch does not tell it
                continue
            if found is not None:
                rows.append(SwitchPart(switch, name, supply, value, ref()))
            elif title in ("DC power", "fan status"):
                own = field["title"].startswith(" ")
                rows.append(
                    SwitchPart(
                        switch, name, f"{supply} {title.removesuffix(' status')}" if own else "fans", value, ref()
                    )
                )
            elif (found := _FAN.match(title)) is not None and value.isdecimal() and len(value) < 7:
                fans.append((int(value), SwitchPart(switch, name, f"fan#{found[1]}", f"{value} rpm", ref())))
            elif _NUMBER.fullmatch(value) is None:
                continue
            elif title == "power (W)":
                rows.append(
                    HostNumber(None, name, "ibswinfo", f"power of {supply} of {switch}", float(value), "W", ref())
                )
            elif title == "temperature (C)":
                rows.append(HostNumber(None, name, "ibswinfo", f"temperature of {switch}", float(value), "°C", ref()))
            elif (found := _OPTIC.match(title)) is not None:
                rows.append(
                    HostNumber(None, name, "ibswinfo", f"module {found[1]} of {switch}", float(value), "°C", ref())
                )
    end()
    facts.add(rows)
    note = f"shows more than {_MOST:,} parts; the others were left out" if len(rows) >= _MOST else None
    return Reading(lines, used if rows else 0, note)
