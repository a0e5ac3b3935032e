"""The report of jobstats about a job of Slurm: how long it ran, and how busy its processors and each of its GPUs were."""

import re
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob
from nccl_doctor.facts.tables.gpu import GpuUse
from nccl_doctor.formats.cluster.slurm_accounting import parse_state
from nccl_doctor.formats.cluster.slurm_ends import End, end_rows
from nccl_doctor.formats.cluster.slurm_jobs import parse_clock
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_TITLE = "Slurm Job Statistics"
_FIELD = re.compile(r"\s{1,20}([A-Z][\w /]{3,20}): {1,4}(\S.{0,120}?)\s*$")
_PART = re.compile(r"\s{1,8}([CG]PU) (utilization|memory usage) per node\b")
_GPU = re.compile(
    r"\s{2,16}([\w.-]{1,253}) \(GPU (\d{1,3})\): (?:(?P<util>\d{1,3}(?:\.\d{1,3})?)%"
    r"|(?P<used>\d{1,6}(?:\.\d{1,3})?[KMGTP]?B)/(?P<total>\d{1,6}(?:\.\d{1,3})?[KMGTP]?B) \()"
)
_CPU = re.compile(
    r"\s{2,16}(?:[\w.-]{1,253}|Total used/runtime): [\d:-]{4,20}/[\d:-]{4,20}(?:,| \()\s?efficiency=(\d{1,3}(?:\.\d{1,3})?)%"
)
_MEMORY = re.compile(
    r"\s{2,16}(?:[\w.-]{1,253}|Total used/allocated): (\d{1,6}(?:\.\d{1,3})?[KMGTP]?B)/(\d{1,6}(?:\.\d{1,3})?[KMGTP]?B) \("
)
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([KMGTP]?)B")
_MIB = {"": 1 / (1 << 20), "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MOST = 10_000  # reports, and GPUs of each


class _Report:
    """The report of one job."""

    def __init__(self, number: int, text: str) -> None:
        self.place = number, text
        self.fields: dict[str, str] = {}
        self.part = ""
        self.efficiency: float | None = None  # of the processors, that of all nodes where it is told
        self.memory: tuple[float, float] | None = None  # MiB used and asked for, likewise
        self.gpus: dict[tuple[str, int], dict[str, float]] = {}
        self.places: dict[tuple[str, int], tuple[int, str]] = {}

    def take(self, text: str, number: int) -> bool:
        """Whether a line says something of the job."""
        if (part := _PART.match(text)) is not None:
            self.part = f"{part[1]} {part[2]}"
            return True
        if self.part.startswith("GPU") and (gpu := _GPU.match(text)) is not None:
            key = gpu[1], int(gpu[2])
            if key in self.gpus or len(self.gpus) < _MOST:
                own = self.gpus.setdefault(key, {})
                self.places.setdefault(key, (number, text.strip()))
                if gpu["util"]:
                    own["util"] = float(gpu["util"])
                else:
                    own["used"], own["total"] = _mib(gpu["used"]), _mib(gpu["total"])
            return True
        if self.part == "CPU utilization" and (cpu := _CPU.match(text)) is not None:
            self.efficiency = float(cpu[1]) / 100
            return True
        if self.part == "CPU memory usage" and (memory := _MEMORY.match(text)) is not None:
            self.memory = _mib(memory[1]), _mib(memory[2])
            return True
        field = _FIELD.match(text) if not self.part else None
        if field is not None:
            self.fields.setdefault(field[1], field[2])
            if field[1] == "State":
                self.place = number, f"Job ID: {self.fields.get('Job ID', '')} {text.strip()}"
        return field is not None

    def write(self, facts: Facts, file: str) -> None:
        """Add its rows."""
        get = self.fields.get
        job, state = get("Job ID"), parse_state(get("State", ""))
        if job is None or not state:
            return
        length = parse_clock(get("Run Time", "").partition(" (")[0])
        used, asked = self.memory or (None, None)
        ref = facts.evidence(file, *self.place)
        values: dict[str, Any] = dict.fromkeys(AccountedJob._fields) | {
            "scheduler": "slurm", "job": job[:80], "name": get("Job Name"), "state": state, "elapsed_s": length,
            "nodes": _whole(get("Nodes", "")), "cpus": _whole(get("CPU Cores", "")), "max_rss": used,
            "cpu_efficiency": self.efficiency, "memory_efficiency": used / asked if used is not None and asked else None, "ref": ref,
        }  # fmt: skip
        facts.add([AccountedJob(**values)])
        facts.add(end_rows(facts, file, End(job[:80], state, "", None, None, None, *self.place, "jobstats")))
        unknown: dict[str, Any] = dict.fromkeys(GpuUse._fields)
        facts.add(
            GpuUse(**{
                **unknown, "host": host, "gpu": gpu, "source": "jobstats", "file": file, "samples": 1, "seconds": length,
                "util_mean": own.get("util"), "memory_max": own.get("used"), "memory_total": own.get("total"),
                "ref": facts.evidence(file, *self.places[host, gpu]),
            })
            for (host, gpu), own in self.gpus.items()
        )  # fmt: skip


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every report of a file.

    Source: output_formatters.py of PrincetonUniversity/jobstats::

               Run Time: 18:41:56
        GPU utilization per node
            node01 (GPU 0): 65.7%
    """
    report: _Report | None = None
    number = used = reports = 0
    note = None
    for number, _, text in plain_lines(stream):
        if text.strip() == _TITLE:
            if report is not None:
                report.write(facts, name)
            report = _Report(number, text.strip()) if reports < _MOST else None
            note = None if report is not None else f"holds more than {_MOST:,} reports; the others were left out"
            reports += 1
            used += 1
        elif report is not None:
            used += report.take(text, number)
    if report is not None:
        report.write(facts, name)
    facts.mark_covered("accounted_job", "gpu_use")
    return Reading(number, used, note)


def _mib(text: str) -> float:
    size = _SIZE.fullmatch(text)
    return float(size[1]) * _MIB[size[2]] if size is not None else 0.0


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None
