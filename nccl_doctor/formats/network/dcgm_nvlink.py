"""Error counters of NVLinks as `dcgmi nvlink -e -g N -j` prints them in JSON; `counters` reads the table of the same command."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.network.counter_names import NVLINK
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import line_numbers, read_head

_LARGEST = 16 << 20  # one GPU takes 4 kB
_DCGM_OBJECT = re.compile(r"\s*(?=\{)")
_DCGM_COUNT = re.compile(r"\d{1,18}")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the objects of a file, one a GPU.

    Source: dcgmi/Nvlink.cpp of DCGM 2 to 4::

        {"body": {"Link 0": {"children": {"CRC FLIT Error": {"value": "0"}, "Replay Error": {"value": "12"}}}},
         "header": ["NVLINK Error Counts", "GPU 0"]}
    """
    text = read_head(stream, _LARGEST).decode("utf-8", "replace").removeprefix("\ufeff")
    decoder, at, used, note = json.JSONDecoder(), 0, 0, None
    line_of = line_numbers(text)
    while match := _DCGM_OBJECT.match(text, at):
        start = match.end()
        try:
            report, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            note = f"ends in the middle of the object that starts in line {line_of(start)}"
            break
        rows = list(_counters(report, name, facts, text, start, line_of))
        used += len(rows)
        facts.add(rows)
    facts.mark_covered("link_counter")
    return Reading(text.count("\n") + 1, used, note)


def _counters(
    report: Any, name: str, facts: Facts, text: str, start: int, line_of: Callable[[int], int]
) -> Iterator[LinkCounter]:
    head, body = (report.get(key) if isinstance(report, dict) else None for key in ("header", "body"))
    titles = [title for title in head if isinstance(title, str)] if isinstance(head, list) else []
    gpu = next((title for title in titles if re.fullmatch(r"GPU \d{1,4}", title)), "GPU")
    for link, part in body.items() if isinstance(body, dict) else ():
        cells = part.get("children") if isinstance(part, dict) else None
        for title, cell in cells.items() if isinstance(cells, dict) else ():
            counter = NVLINK.get(f"{title.lower()}s")
            value = str(cell.get("value", "")) if isinstance(cell, dict) else ""
            if counter is not None and re.fullmatch(r"Link \d{1,3}", link) and _DCGM_COUNT.fullmatch(value):
                at = text.find(f'"{title}"', max(text.find(f'"{link}"', start), start))
                line = line_of(max(at, start))
                ref = facts.evidence(name, line, f"{gpu}, {link}: {title} {value}")
                yield LinkCounter(None, name, "dcgmi", "nvlink", f"{gpu} {link.lower()}", counter, int(value), ref)
