"""Jobs in the accounting of Grid Engine (SGE, Son of Grid Engine, Univa, Open Cluster Scheduler), as `qacct -j` prints them."""

import json
import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.common.timestamps import asctime_seconds, iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, Message, ProcessEnd
from nccl_doctor.formats.cluster.slurm_ends import signal_name
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_Job = dict[str, tuple[str, int, str]]  # title -> value, number of the line, its text
_MOST_JOBS = 50_000
_READ_FIELDS = {
    "jobnumber", "jobname", "taskid", "exit_status", "failed", "slots", "ru_wallclock", "maxvmem", "hostname", "end_time",
    "category",
}  # fmt: skip
_SIZE_GE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]?)B?$")
_ENFORCED = re.compile(r"enforced (h_rt|s_rt|h_vmem|s_vmem) limit")
_REQUEST = re.compile(r"(?<![\w.])(h_rt|h_vmem)=([\w.:]{1,20})")
_AT_LIMIT = 0.97  # of the time: the accounting begins before the limit counts
_MIB_OF = {"": 2.0**-20, "K": 2.0**-10, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every job of a file.

    Source: source/clients/qacct/qacct.c of Grid Engine; checked with 8.1.9::

        ==============================================================
        qname        all.q
        failed       0
        exit_status  3
    """
    job: _Job = {}
    seen: set[tuple[str, ...]] = set()  # jobs that were printed before
    rows: list[Any] = []
    jobs = lines = used = 0
    for first, _, texts in plain_batches(stream):
        lines += len(texts)
        for number, line in enumerate(texts, first):
            title, _, value = line.partition(" ")
            jobs = jobs or int(title == "qname")  # the line above it is not given where it is part of a log
            if title in _READ_FIELDS:
                if jobs and title not in job and (value := value.strip()):
                    job[title] = value[:300], number, line.strip()
            elif not title.islower():
                if not title.startswith("====="):
                    continue
                rows += _new_rows(facts, name, job, seen)
                jobs, job = jobs + 1, {}
            used += jobs > 0
        facts.add(rows)
        rows.clear()
        if jobs > _MOST_JOBS:
            break
    facts.add(_new_rows(facts, name, job, seen))
    facts.mark_covered("accounted_job", "message", "process_end")
    note = f"holds more than {_MOST_JOBS:,} jobs; the others were left out" if jobs > _MOST_JOBS else None
    return Reading(lines, used, note)


def _new_rows(facts: Facts, file: str, job: _Job, seen: set[tuple[str, ...]]) -> Iterator[Any]:
    """The rows of a job, unless it came with the same values before."""
    fields = (*job, *(value for value, _, _ in job.values()))
    if fields not in seen:
        seen.add(fields)
        yield from _rows(facts, file, job)


def _rows(facts: Facts, file: str, job: _Job) -> Iterator[Any]:
    if "jobnumber" not in job:
        return

    def get(key: str) -> str:
        return job[key][0] if key in job else ""

    status = int(code[0]) if (code := re.match(r"\d{1,5}(?!\S)", get("exit_status"))) is not None else None
    failed = None if get("failed").split(":")[0].strip() in ("", "0") else get("failed")
    shown = job.get("exit_status") if failed is None or status else job.get("failed")
    _, number, text = shown or job["jobnumber"]
    task = get("taskid")
    identity = get("jobnumber") + (f".{task}" if task.isdecimal() else "")
    ref = facts.evidence(file, number, f"jobnumber {identity}: {text}")
    slots, wall, memory = (
        get("slots"),
        re.match(r"\d{1,12}(?:\.\d{0,9})?(?![\d.])", get("ru_wallclock")),
        _SIZE_GE.match(get("maxvmem")),
    )
    yield AccountedJob(
        scheduler="gridengine", job=identity, name=get("jobname") or None, state="FAILED" if failed or status else "COMPLETED",
        elapsed_s=float(wall[0]) if wall is not None else None, waited_s=None, nodes=None,
        cpus=int(slots) if re.fullmatch(r"\d{1,6}", slots) else None,
        max_rss=None if memory is None else float(memory[1]) * _MIB_OF[memory[2]], cpu_efficiency=None, memory_efficiency=None,
        tasks=None, mean_cpu_s=None, least_cpu_s=None, least_task=None, least_host=None, ref=ref,
    )  # fmt: skip
    stamp, host = asctime_seconds(get("end_time")) or iso_seconds(get("end_time")), _host(get("hostname"))
    limit = _limit(get("category"), get("ru_wallclock"), get("maxvmem"), slots, failed) if status and failed else None
    if limit is not None:
        text = f"{text} failed {failed}; {limit[1]}"
        yield Message(
            kind="sge-limit", level=None, host=host, rank=None, pid=None, source=None, text=text,
            fields=json.dumps({"job": identity, "accounted": identity, "resource": limit[0]}), n=1, last_line=number, stamp=stamp,
            ref=facts.evidence(file, number, f"jobnumber {identity}: {text}"),
        )  # fmt: skip
    elif status:
        killed = status - 128 if status > 128 else 0
        yield ProcessEnd(
            host=host, rank=None, local_rank=None, pid=None, exitcode=-killed if killed else status,
            signal=signal_name(killed), reporter="qacct", first=None, job=identity, n=1, stamp=stamp,
            ref=ref,
        )  # fmt: skip


def _host(text: str) -> str | None:
    return text if re.fullmatch(r"[\w.-]{1,200}", text) else None


def _limit(category: str, wall: str, memory: str, slots: str, failed: str) -> tuple[str, str] | None:
    """The limit that a killed job reached, of those it asked for: `h_rt` of the wall clock, `h_vmem` of each slot; and the numbers."""
    asked = dict(_REQUEST.findall(category))
    seconds, used = _seconds(asked.get("h_rt", "")), re.match(r"\d{1,9}(?:\.\d{1,6})?(?=s?$)", wall)
    if seconds and used and float(used[0]) >= _AT_LIMIT * seconds:
        return "h_rt", f"{wall} of h_rt={asked['h_rt']}"
    if (enforced := _ENFORCED.search(failed)) is not None:  # the scheduler says so itself
        return enforced[1], f"{memory if enforced[1].endswith('vmem') else wall} at its end"
    most, size = _SIZE_GE.match(memory), _SIZE_GE.match(asked.get("h_vmem", ""))
    if most and size:
        allowed = float(size[1]) * _MIB_OF[size[2]] * (int(slots) if re.fullmatch(r"\d{1,6}", slots) else 1)
        if float(most[1]) * _MIB_OF[most[2]] >= _AT_LIMIT * allowed > 0:
            return "h_vmem", f"{memory} of h_vmem={asked['h_vmem']} for {slots} slots"
    return None


def _seconds(text: str) -> float | None:
    """`3600` or `1:30:00` -> seconds."""
    parts = text.split(":")
    if len(parts) > 3 or not all(re.fullmatch(r"\d{1,8}", part) for part in parts):
        return None
    return float(sum(int(part) * 60**place for place, part in enumerate(reversed(parts))))
