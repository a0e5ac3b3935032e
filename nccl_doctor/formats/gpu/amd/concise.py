"""The table that `rocm-smi` without options prints, a row a GPU. Its titles differ between releases, the order of its values does not.

Device  Node  IDs              Temp        Power     Partitions          SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
0       2     0x74a1,   28851  52.0°C      690.0W    NPS1, SPX, 0        2100Mhz  1300Mhz  0%   auto  750.0W  71%    100%
"""

import re

from nccl_doctor.formats.gpu.amd.part import Fields

_HEAD = re.compile(r"(?:GPU|Device) {1,20}.{0,120}\b(?:Temp|SCLK)\b.{0,120}(?:\bVRAM%|\bOD) {1,10}GPU%\s*$")
_ROW = re.compile(
    r"(?P<gpu>\d{1,4}) {1,40}(?:.{0,80}?(?<=\s)(?P<temperature>\d{1,3}(?:\.\d{1,3})?)(?:°C|[cC])\s)?"
    r"(?:.{0,40}?(?<=\s)(?P<power>\d{1,4}(?:\.\d{1,3})?)W\s)?.{0,80}?(?<=\s)(?P<clock>\d{1,5})M[Hh]z\s.{0,80}?"
    r"(?:(?<=\s)(?P<limit>\d{1,4}(?:\.\d{1,3})?)W\s{1,20})?\d{1,3}%\s{1,20}(?P<util>\d{1,3})%\s*$"
)
_PATHS = {
    "temperature": "hotspot_temperature", "power": "power_usage", "clock": "gfx_clk", "limit": "max_power", "util": "gpu use (%)",
}  # fmt: skip
"""Group of a row -> what `amd-smi monitor` or `rocm-smi -a` calls it."""


def is_head(line: str) -> bool:
    """Whether a line has the titles of the table."""
    return _HEAD.match(line) is not None


def parse_row(line: str, number: int) -> tuple[int, Fields] | None:
    """The GPU of a row and its values; None for another line."""
    row = _ROW.match(line)
    if row is None:
        return None
    return int(row["gpu"]), {
        path: (row[group], number, line.strip()) for group, path in _PATHS.items() if row[group] is not None
    }
