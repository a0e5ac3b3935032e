"""Jobs in Slurm's accounting as JSON: `sacct --json`."""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.cluster import slurm_jobs
from nccl_doctor.formats.cluster.slurm_jobs import Accounted
from nccl_doctor.formats.cluster.slurm_values import Elements, inner, number, state, text
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.json_depth import TooDeep
from nccl_doctor.inputs.json_items import BrokenJson
from nccl_doctor.inputs.streams import Readable

_MOST = 50_000  # jobs of one file
_MIB = 1 << 20


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every job and its steps.

    Source: `openapi/dbv0.0.36` to `dbv0.0.38` of Slurm 20.11 to 22.05, and `data_parser/v0.0.39` and newer of 23.02 and newer,
    which put a number into an object and a state into a list::

        {"jobs": [{"job_id": 13, "state": {"current": "FAILED"}, "exit_code": {"status": "ERROR", "return_code": 3}, "steps": […]}]}
        {"jobs": [{"job_id": 13, "state": {"current": ["FAILED"]}, "exit_code": {"return_code": {"set": true, "number": 3}}, …}]}
    """
    facts.mark_covered("accounted_job", "message", "process_end")
    elements = Elements(stream, "jobs")
    found: list[Accounted] = []
    jobs = 0
    note = None
    try:
        for line, job in elements:
            if isinstance(job.get("job_id"), int):
                jobs += 1
                found += _accounted(job, line)
            if jobs >= _MOST:
                note = f"only the first {_MOST} jobs were read"
                break
    except (BrokenJson, TooDeep) as error:
        note = f"{error}; {jobs} jobs before that were read"
    facts.add(slurm_jobs.rows(facts, name, found))
    return Reading(elements.lines, jobs, note)


def _accounted(job: dict[str, Any], line: int) -> Iterator[Accounted]:
    array = inner(job, "array")
    task = number(array.get("task_id"))
    parent = number(array.get("job_id"))
    name = f"{parent}_{task}" if parent and task is not None else str(job["job_id"])
    exit_code = _exit_code(job, "exit_code")
    if exit_code == "0:0" and state(inner(job, "state").get("current")) == "FAILED":
        exit_code = _exit_code(job, "derived_exit_code")  # 22.05 shows a status of 0 for jobs that failed
    found = job.get("steps")
    steps = [_step(step, name, line) for step in (found if isinstance(found, list) else []) if isinstance(step, dict)]
    used = [step.used_cpu for step in steps if step.used_cpu is not None]
    yield _one(job, name, line, exit_code)._replace(
        state=state(inner(job, "state").get("current")), node_list=text(job.get("nodes")) or "",
        reason=text(inner(job, "state").get("reason")), nodes=_allocated(inner(job, "tres").get("allocated"), "node"),
        cpus=_allocated(inner(job, "tres").get("allocated"), "cpu"), used_cpu=sum(used) if used else None,
    )  # fmt: skip
    yield from steps


def _step(step: dict[str, Any], job: str, line: int) -> Accounted:
    identity = str(inner(step, "step").get("id", ""))[:40].rpartition(".")[2]
    use = inner(inner(step, "tres"), "requested")
    least, mean, most = (_use(use.get(key)) for key in ("min", "average", "max"))
    name = text(inner(step, "step").get("name"))
    one = _one({**step, "name": name}, f"{job}.{identity}", line, _exit_code(step, "exit_code"))
    seconds = {key: number(of.get("cpu", {}).get("count")) for key, of in (("least", least), ("mean", mean))}
    memory = number(most.get("mem", {}).get("count"))
    return one._replace(
        state=state(step.get("state")), nodes=number(inner(step, "nodes").get("count")),
        cpus=_allocated(inner(step, "tres").get("allocated"), "cpu"), max_rss=None if memory is None else memory / _MIB,
        tasks=number(inner(step, "tasks").get("count")),
        mean_cpu=None if seconds["mean"] is None else seconds["mean"] / 1000,
        least_cpu=None if seconds["least"] is None else seconds["least"] / 1000,
        least_task=number(least.get("cpu", {}).get("task")), least_host=text(least.get("cpu", {}).get("node")),
    )  # fmt: skip


def _one(of: dict[str, Any], job: str, line: int, exit_code: str) -> Accounted:
    """What jobs and steps have alike."""
    times = inner(of, "time")
    total = inner(times, "total")
    seconds, micro = number(total.get("seconds")), number(total.get("microseconds"))
    used = None if seconds is None else seconds + (micro or 0) / 1e6
    end = number(times.get("end"))
    name = text(of.get("name"))
    told = of.get("state")
    shown = state(told.get("current") if isinstance(told, dict) else told)
    return Accounted(
        job=job, line=line, text=" ".join(filter(None, (job, name, shown, exit_code))), reporter="sacct",
        exit_code=exit_code, name=name, end=float(end) if end else None, elapsed=number(times.get("elapsed")),
        used_cpu=used or None,
    )  # fmt: skip


def _exit_code(of: dict[str, Any], key: str) -> str:
    """`STATUS:SIGNAL` as the table has it."""
    ended = inner(of, key)
    if not ended:
        return ""
    signal = inner(ended, "signal")
    by = number(signal.get("signal_id", signal.get("id")))
    return f"{number(ended.get('return_code')) or 0}:{by or 0}"


def _allocated(resources: object, kind: str) -> int | None:
    return number(_use(resources).get(kind, {}).get("count"))


def _use(resources: object) -> dict[str, dict[str, Any]]:
    """Trackable resources by type: cpu in ms and mem in bytes where they were used."""
    found = resources if isinstance(resources, list) else []
    return {str(one.get("type")): one for one in reversed(found) if isinstance(one, dict)}
