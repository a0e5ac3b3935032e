"""Cells in which nvidia-smi says that it could not read a GPU: `ERR!`, `[Unknown Error]`, `[GPU requires reset]`, `GPU is lost`.

`N/A`, `[N/A]` and `[Not Supported]` are no such cells: the GPU does not have what was asked for.
"""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import NodeGpuError

REFUSALS = ("ERR!", "Unknown Error", "GPU requires reset", "GPU is lost")
REFUSED = re.compile("|".join(REFUSALS))
_CODES = {"GPU is lost": ("gpu-lost", 15), "GPU requires reset": ("reset-required", 16)}  # name and number of NVML
_UNREADABLE = "unreadable", 999  # one reading failed: less than that NVML as a whole cannot use the GPU
_HARMLESS = ("fan", "fan_speed", "fan.speed")  # a fan that does not tell its speed stops no job


class Refusal(NamedTuple):
    """One such cell."""

    what: str  # that was asked for, in nvidia-smi's words
    text: str
    line: tuple[int, str]


def is_refused(text: str) -> bool:
    """Whether a text may hold such a cell: several times faster than `REFUSED`."""
    return "ERR!" in text or "Unknown Error" in text or "GPU requires reset" in text or "GPU is lost" in text


def refusal(what: str, cell: str, line: tuple[int, str]) -> Refusal | None:
    """The refusal of a cell; None where it holds a value, or where only a fan is silent."""
    found = REFUSED.search(cell)
    return Refusal(what, found[0], line) if found is not None and what not in _HARMLESS else None


def error_row(
    facts: Facts, name: str, host: str | None, gpu: int, pci: str | None, cells: list[Refusal]
) -> NodeGpuError:
    """One row for all cells of a GPU: of what the tool says the most telling, and which readings are missing."""
    first = next((cell for cell in cells if cell.text in _CODES), cells[0])
    problem, code = _CODES.get(first.text, _UNREADABLE)
    readings = ", ".join(dict.fromkeys(cell.what for cell in cells[:20]))
    ref = facts.evidence(name, *first.line)
    return NodeGpuError(host, gpu, pci, "nvidia-smi", code, problem, f"{first.text}: {readings}", ref)
