"""What the fields of `amd-smi` and `rocm-smi` are called here: paths and titles in small letters."""

import re

SAMPLED = (
    "util",
    "power",
    "power_limit",
    "memory",
    "memory_total",
    "temperature",
    "clock",
    "clock_max",
    "width",
    "width_max",
)
COLUMNS = {
    # amd-smi metric and static, as text, JSON and CSV
    "gfx_activity": "util", "socket_power": "power", "average_socket_power": "power", "current_socket_power": "power",
    "max_power": "power_limit", "socket_power_limit": "power_limit", "power_cap": "power_limit", "used_vram": "memory",
    "total_vram": "memory_total", "hotspot": "temperature", "hotspot_temperature": "temperature", "gfx_0_clk": "clock",
    "clock/gfx_0/clk": "clock", "gfx_0_max_clk": "clock_max", "clock/gfx_0/max_clk": "clock_max", "pcie/width": "width", "width": "width",
    "max_pcie_width": "width_max", "pcie/max_width": "width_max", "bus/max_pcie_width": "width_max",
    "total_uncorrectable_count": "uncorrected", "total_correctable_count": "corrected", "replay_count": "replays",
    "nak_received_count": "naks", "market_name": "model", "bdf": "pci", "uuid": "unique_id",
    # amd-smi monitor
    "power_usage": "power", "gpu_t": "temperature", "gpu_temp": "temperature", "gfx_clk": "clock", "gfx_clock": "clock",
    "gfx%": "util", "gfx_util": "util", "gfx": "util",
    "double_ecc": "uncorrected", "single_ecc": "corrected", "double_bit_ecc": "uncorrected", "single_bit_ecc": "corrected",
    "pcie_replay": "replays", "vram_used": "memory", "power": "power",
    # rocm-smi
    "gpu use (%)": "util", "average graphics package power (w)": "power", "current socket graphics package power (w)": "power",
    "max graphics package power (w)": "power_limit", "vram total used memory (b)": "memory", "vram total memory (b)": "memory_total",
    "temperature (sensor junction) (c)": "temperature", "sclk clock speed": "clock", "sclk clock speed:": "clock", "card series": "model",
    "device name": "model", "pci bus": "pci", "unique id": "unique_id", "pcie replay count": "replays", "pci replay count": "replays",
    "xgmi error count": "xgmi",
}  # fmt: skip
"""A path, or its last part, -> column. Where two are the same, the first in the file counts."""

BLOCK = re.compile(r"ecc_blocks/(\w{1,20})/uncorrectable_count$")
COUNTERS = {"replays": ("pcie", "pcie-replay"), "xgmi": ("xgmi", "xgmi-errors")}
"""Column -> kind of the link and name of its counter; of xGMI errors rocm-smi tells none, one (1) or several (2) since it looked last."""

REASONS_AMD = {
    "prochot_violation_status": 0x8, "ppt_violation_status": 0x4, "socket_thermal_violation_status": 0x40,
    "vr_thermal_violation_status": 0x40, "hbm_thermal_violation_status": 0x40,
}  # fmt: skip
"""Violations of a limit -> the bits of NVML's clock event reasons that mean the same."""

VIOLATIONS = {"pviol": 0x4, "phot_tviol": 0x8, "tviol": 0x40, "vr_tviol": 0x40, "hbm_tviol": 0x40}
"""Columns of `amd-smi monitor --violation`, in % of the time -> the same bits."""
VIOLATED = 5.0
"""% of the time from which a violation counts: limits are touched for a moment at any load."""
