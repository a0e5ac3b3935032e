"""The nodes of PBS and TORQUE: `pbsnodes -a`, a paragraph a node, and `pbsnodes -l`."""

import re
from collections.abc import Iterator, Mapping, Sequence

from nccl_doctor.formats.listings.meaning import Thing

_NAME = re.compile(r"(?P<name>[A-Za-z][\w.-]{0,120}(?:\[\d{1,6}\])?)\s*$")
_FIELD = re.compile(r"\s{4,8}(?P<key>[A-Za-z][\w.]{1,60}) = (?P<value>\S.{0,4000}?)\s*$")
_LISTED = re.compile(
    r"(?P<name>[A-Za-z][\w.-]{0,120})\s{2,60}(?P<state>(?:down|offline|unknown|state-unknown)(?:,[a-z-]{3,20}){0,4})\s*$"
)
_OF_NODES = frozenset({"Mom", "ntype", "np", "pcpus", "power_state"})
_COUNTS = {
    "CPUs": ("resources_available.ncpus", "np", "pcpus"), "CPUs in use": ("resources_assigned.ncpus",),
    "GPUs": ("resources_available.ngpus", "gpus"), "GPUs in use": ("resources_assigned.ngpus",),
}  # fmt: skip


def nodes_in(lines: Sequence[tuple[int, str]]) -> Iterator[Thing]:
    """The nodes that some lines, which have their numbers, list.

    Source: `pbsnodes` of OpenPBS 23 and TORQUE 6::

        gpu01
             Mom = gpu01.example.org
             state = down,offline
             resources_available.ngpus = 8
             comment = node down: communication closed
        gpu02                down,offline                  pbsnodes -l
    """
    fields: dict[str, str] = {}
    node, place = "", (0, "")
    for number, text in (*lines, (0, "-")):
        if node and (found := _FIELD.match(text)) is not None:
            fields[found["key"]] = found["value"]
            place = (number, text) if found["key"] == "state" else place
        elif text.strip():
            if "state" in fields and not _OF_NODES.isdisjoint(fields):
                yield _node(node, fields, place)
            fields = {}
            found = _NAME.match(text)
            node = found["name"] if found is not None else ""
            if (listed := _LISTED.match(text)) is not None:
                yield Thing(number, text, listed["name"], False, (listed["state"],), (), (), "bad")


def _node(node: str, fields: Mapping[str, str], place: tuple[int, str]) -> Thing:
    number, text = place
    why = fields.get("comment", fields.get("note", ""))
    state = fields["state"] + f" ({why})" * bool(why)
    numbers = []
    for title, keys in _COUNTS.items():
        value = next((fields[key] for key in keys if key in fields), "")
        if value.isdecimal() and len(value) < 10:
            numbers.append((title, float(value), ""))
    is_out = not {"down", "offline", "unknown", "stale"}.isdisjoint(re.split(r"[,-]", fields["state"]))
    return Thing(
        number, f"{node}: {text.strip()}", node, False, (state,), tuple(numbers), (), "bad" if is_out else "well"
    )
