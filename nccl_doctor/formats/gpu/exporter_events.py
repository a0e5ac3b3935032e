"""Metrics of DCGM's exporter that count events or tell of a link: Xids, reasons for lower clocks, health, NVLink, PCIe.

Their labels say what is counted, unlike those of a sample, whose name does.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest, LinkCounter
from nccl_doctor.formats.gpu.sample_totals import Gpu, Place

_EVENTS = {
    "power_cap": 0x4, "hw_slowdown": 0x8, "sw_thermal": 0x20, "hw_thermal": 0x40, "hw_power_brake": 0x80,
}  # fmt: skip
"""Label clock_event -> bit of NVML's mask; those that are no fault are left out."""
_THERMAL = ("sw_thermal", "hw_thermal")
_LINKS = {
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink", "nvlink-crc"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("nvlink", "nvlink-crc-data"),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink", "nvlink-replay"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("nvlink", "nvlink-recovery"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie", "pcie-replay"),
}
_XIDS = ("DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL", "nvidia_smi_xid_errors_total")
_OUTCOMES = {0: "pass", 10: "warn", 20: "fail"}
_MOST = 100_000


class Event(NamedTuple):
    """What a series of events is: a column of the samples, or a row of its own."""

    column: str  # of the samples; empty for the others
    bit: int = 0  # of the mask that a value above 0 sets
    kind: str = ""  # of a link
    name: str = ""  # of a link counter, or of a test
    said: str = ""  # what a test says
    transitions: bool = False  # counts how often a reason began since the exporter did, not how long it was active


def event_of(metric: str, labels: Mapping[str, Any]) -> Event | None:
    """What a metric with these labels is; None for one that is not read.

    Source: dcgm-exporter 3.3 to 4.5 `xid_collector.go`, `clock_events_collector.go`, `*_total_collector.go`, `gpu_health_collector.go`;
    nvidia_gpu_exporter (utkuozdemir) for its own Xids::

        DCGM_EXP_XID_ERRORS_COUNT{gpu="3",UUID="GPU-…",Hostname="node01",window_size_in_ms="300000",xid="79"} 1
        DCGM_EXP_CLOCK_EVENTS_COUNT{gpu="3",UUID="GPU-…",Hostname="node01",clock_event="hw_thermal",window_size_in_ms="300000"} 41
        DCGM_EXP_GPU_HEALTH_STATUS{gpu="3",UUID="GPU-…",health_error_code="DCGM_FR_NVLINK_DOWN",health_watch="NVLINK"} 20
    """
    if (link := _LINKS.get(metric)) is not None:
        return Event("", kind=link[0], name=link[1])
    if metric in _XIDS:
        xid = str(labels.get("xid", ""))
        return Event(f"counter:xid-{int(xid)}") if xid.isdecimal() and 0 < int(xid[:9]) < 1000 else None
    reason = str(labels.get("clock_event"))
    if metric == "DCGM_EXP_CLOCK_EVENTS_COUNT":
        return Event("mask", bit=_EVENTS[reason]) if reason in _EVENTS else None
    if metric == "DCGM_EXP_CLOCK_EVENTS_TOTAL":
        return Event("counter:thermal-events", transitions=True) if reason in _THERMAL else None
    if metric == "DCGM_EXP_GPU_HEALTH_STATUS" and (watch := labels.get("health_watch")):
        return Event("", name=str(watch)[:80], said=str(labels.get("health_error_code", ""))[:120])
    return None


class EventRows:
    """Counters of links and results of health checks, the highest value of each series."""

    def __init__(self) -> None:
        self._found: dict[tuple[str | None, int | None, Event], tuple[float, Place]] = {}

    def add(self, gpu: Gpu, event: Event, value: float, place: Place) -> None:
        """Take a value of a series that is no column of the samples."""
        key = gpu.host, gpu.number, event
        known = self._found.get(key)
        if (known is None and len(self._found) < _MOST) or (known is not None and value > known[0]):
            self._found[key] = value, place

    def rows(self, facts: Facts, file: str) -> Iterator[Any]:
        """The rows of the fact base."""
        for (host, number, event), (value, (line, text)) in self._found.items():
            shown = f"GPU {number}" if number is not None else "GPU"
            if event.kind and value < 1 << 62:
                yield LinkCounter(
                    host=host, file=file, source="dcgm-exporter", kind=event.kind, link=shown, name=event.name, value=int(value),
                    ref=facts.evidence(file, line, text),
                )  # fmt: skip
            elif not event.kind and value in _OUTCOMES:
                yield ActiveTest(
                    host=host, tool="dcgm", test=f"{event.name} (health watch)", device=str(number), outcome=_OUTCOMES[int(value)],
                    value=None, unit=None, text=event.said or None, ref=facts.evidence(file, line, text),
                )  # fmt: skip
