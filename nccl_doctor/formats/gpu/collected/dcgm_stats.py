"""What DCGM kept of a job: `dcgmi stats -j JOB -v`, one table of each GPU with means over the job and the reasons of lower clocks."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuThrottle, GpuUse
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(rb"\| GPU ID: \d|\|-----  Execution Stats ")
_GPU = re.compile(r"\| GPU ID: (\d{1,4}) ")
_CELL = re.compile(
    r"\| (?:Due to|  {1,8})? ?-? ?([A-Z][\w. ]{1,40}?)(?: \((sec|%|Watts|bytes|MHz)\))? {1,40}\| ([^|]{1,80})\|"
)
_MEAN = re.compile(r"Avg: (\d{1,15}(?:\.\d{1,6})?)(?:, Max: (\d{1,15}(?:\.\d{1,6})?))?")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,6})?")
_REASONS = {"Power": "power-cap", "Thermal": "sw-thermal"}
_KEEP = 60
_MOST = 10_000


class _Job:
    """The table of one GPU."""

    def __init__(self, host: str | None, gpu: int, number: int, text: str) -> None:
        self.host = host
        self.gpu = gpu
        self.place = number, text
        self.values: dict[str, tuple[float, float | None]] = {}  # title -> value or mean, largest
        self.slowed: list[tuple[str, float, int, str]] = []  # reason, share, its line


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the table of each GPU.

    Source: DCGM 2 to 4 `dcgmi/ProcessStats.cpp`::

        | SM Clock (MHz)                     | Avg: 1120, Max: 1980, Min: 345          |
        |        - Thermal (%)               | 71.4                                    |
    """
    facts.mark_covered("gpu_use", "gpu_throttle")
    sections = Sections(stream, _HEADS, _KEEP)
    open_: dict[str | None, _Job] = {}
    jobs: list[_Job] = []
    used = 0
    note = None
    for number, label, text in sections:
        if (gpu := _GPU.search(text)) is not None:
            if len(jobs) >= _MOST:
                note = f"holds more than {_MOST:,} tables; the others were left out"
                break
            open_[label.host] = _Job(label.host, int(gpu[1]), number, text.strip())
            jobs.append(open_[label.host])
        elif label.host in open_ and (cell := _CELL.match(text)) is not None:
            _take(open_[label.host], cell, number)
        else:
            continue
        used += 1
        sections.used()
    for job in jobs:
        _write(facts, name, job)
    return Reading(sections.lines, used, note)


def _take(job: _Job, cell: re.Match[str], number: int) -> None:
    title, value = cell[1].strip(), cell[3].strip()
    if (mean := _MEAN.match(value)) is not None:
        job.values[title] = float(mean[1]), float(mean[2]) if mean[2] else None
    elif _NUMBER.fullmatch(value) is not None:
        if title in _REASONS and cell[2] == "%":
            if 0 < (share := float(value)) <= 100:
                job.slowed.append((_REASONS[title], share / 100, number, cell[0].strip()))
        else:
            job.values[title] = float(value), None


def _write(facts: Facts, file: str, job: _Job) -> None:
    def mean(title: str) -> float | None:
        return job.values[title][0] if title in job.values else None

    clock, memory = job.values.get("SM Clock"), job.values.get("Max GPU Memory Used")
    if not job.values:
        return
    shown = "; ".join(f"{title} {value:g}" for title, (value, _) in list(job.values.items())[:12])
    ref = facts.evidence(file, job.place[0], f"GPU {job.gpu}: {shown}")
    facts.add(
        [
            GpuUse(
                host=job.host, gpu=job.gpu, uuid=None, model=None, source="dcgm-stats", file=file, samples=1, first=None,
                seconds=mean("Total Execution Time"), busy_share=None, idle_share=None, util_mean=mean("SM Utilization"),
                util_median=None, dips=None, dip_share=None, high_share=None, spin_share=None, power_median=mean("Power Usage"),
                power_limit=None, clock_median=clock[0] if clock else None, clock_max=None, temperature_max=None,
                memory_max=memory[0] / (1 << 20) if memory else None, memory_total=None, sm_active=None, width_min=None,
                width_max=None, ref=ref,
            )
        ]
    )  # fmt: skip
    facts.add(
        GpuThrottle(job.host, job.gpu, reason, 1, share, facts.evidence(file, number, f"GPU {job.gpu}: {text}"))
        for reason, share, number, text in job.slowed
    )
