"""Breaks text into lines. Apart from the widgets, because one page of plain text needs no toolkit of screens."""

import re
from functools import lru_cache

from rich.cells import cell_len

from nccl_doctor.watch.view.cells import Look

HANGING = re.compile(r" *(?:\S.{0,10}?  +)?")  # leading blanks, or a short label and the blanks after it


@lru_cache(8)
def wrap_text(ascii_only: bool, text: str, width: int) -> list[str]:
    """Returns lines of at most this width, broken at blanks; continuation lines keep the indent of their line."""
    look = Look(ascii_only)
    lines = []
    for raw in text.split("\n"):
        line = look.clean(raw.expandtabs(4))
        hanging = HANGING.match(line)
        indent = " " * min(len(hanging[0]) if hanging else 0, width // 2)
        while cell_len(line) > width:
            fits = width
            while cell_len(line[:fits]) > width:
                fits -= 1
            cut = line.rfind(" ", len(indent) + 1, fits + 1)
            cut = cut if cut > len(indent) else max(fits, len(indent) + 1)
            lines.append(line[:cut].rstrip())
            line = indent + line[cut:].lstrip(" ")
        lines.append(line)
    return lines
