"""Nodes and queue of Slurm as JSON: `squeue --json`, `scontrol show job --json`, `sinfo --json`, `scontrol show node --json`."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import QueuedJob, SchedulerNode
from nccl_doctor.formats.cluster.slurm_values import Elements, gpus, inner, number, state, text
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.json_depth import TooDeep
from nccl_doctor.inputs.json_items import BrokenJson
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_HEAD = 1 << 16  # bytes within which the array is named
_MOST = 100_000  # nodes or jobs of one file
_ARRAYS = re.compile(rb"\"(sinfo|jobs|nodes)\"\s{0,20}:\s{0,20}\[")
_ENDED = (
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every node, or every job that has not ended.

    Source: `openapi/v0.0.36` to `v0.0.38` of Slurm 20.11 to 22.05, and `data_parser/v0.0.39` and newer of 23.02 and newer::

        {"nodes": [{"name": "node07", "state": "idle", "state_flags": ["DRAIN"], "reason": "Xid 79", …}]}
        {"jobs": [{"job_id": 13, "job_state": ["PENDING"], "state_reason": "Resources", "node_count": {"set": true, "number": 4}, …}]}
        {"sinfo": [{"node": {"state": ["DOWN"]}, "nodes": {"nodes": ["node07"]}, "reason": {"description": "Not responding"}, …}]}
    """
    head = read_head(stream, _HEAD)
    found = _ARRAYS.search(head)
    array = found[1].decode() if found is not None else "jobs" if b'"job_state"' in head else "nodes"
    elements = Elements(Joined(head, stream), array)
    rows: list[SchedulerNode | QueuedJob] = []
    parsers: dict[str, Callable[[dict[str, Any]], Iterator[tuple[SchedulerNode | QueuedJob, str]]]]
    parsers = {"jobs": _job, "nodes": _node, "sinfo": _group}
    parse = parsers[array]
    used = 0
    note = None
    try:
        for line, element in elements if found is not None else elements.only():
            used += 1
            rows += (row._replace(file=name, ref=facts.evidence(name, line, shown)) for row, shown in parse(element))
            if len(rows) >= _MOST:
                note = f"holds more than {_MOST:,} entries; the others were left out"
                break
    except (BrokenJson, TooDeep) as error:
        note = f"{error}; {used:,} entries before that were read"
    facts.add(rows)
    facts.mark_covered("queued_job" if array == "jobs" else "scheduler_node")
    return Reading(elements.lines, used, note)


def _job(job: dict[str, Any]) -> Iterator[tuple[QueuedJob, str]]:
    current = state(job.get("job_state")).upper()
    identity = number(job.get("job_id"))
    if identity is None or not current or current in _ENDED:
        return
    array, task = number(job.get("array_job_id")), number(job.get("array_task_id"))
    tasks = text(job.get("array_task_string"))
    which = (
        f"{array}_{task}" if array and task is not None else f"{array}_[{tasks}]" if array and tasks else str(identity)
    )
    reason, description = text(job.get("state_reason")), text(job.get("state_description"))
    if description is not None and description.replace("_", " ").startswith((reason or "").replace("_", " ")):
        reason = description
    reason = None if reason in (None, "None") else str(reason).replace("_", " ")
    name = text(job.get("name"))
    shown = " ".join(filter(None, (which, name, current, reason)))
    yield QueuedJob(which, "", name, current, reason, number(job.get("node_count")), 0), shown


def _node(node: dict[str, Any]) -> Iterator[tuple[SchedulerNode, str]]:
    host = text(node.get("name"))
    if host is None:
        return
    load = number(node.get("cpu_load"))
    memory, free = number(node.get("real_memory")), number(node.get("free_mem", node.get("free_memory")))
    used = gpus(text(node.get("gres_used")) or text(node.get("tres_used")) or "")
    yield from _row(
        host, [*_words(node.get("state")), *_words(node.get("state_flags"))], text(node.get("reason")),
        cpus=number(node.get("cpus")), cpus_used=number(node.get("alloc_cpus")), memory=None if memory is None else float(memory),
        memory_free=None if free is None else float(free), load=None if load is None else load / 100,
        gpus=gpus(text(node.get("gres")) or text(node.get("tres")) or ""), gpus_used=used,
    )  # fmt: skip


def _group(group: dict[str, Any]) -> Iterator[tuple[SchedulerNode, str]]:
    """Nodes of one partition that are alike."""
    listed = inner(group, "nodes").get("nodes")
    reason = text(inner(group, "reason").get("description"))
    for host in listed[:_MOST] if isinstance(listed, list) else ():
        if isinstance(host, str) and host:
            total = gpus(text(inner(group, "gres").get("total")) or "")
            yield from _row(host[:253], _words(inner(group, "node").get("state")), reason, gpus=total)


def _row(host: str, states: list[str], reason: str | None, **more: Any) -> Iterator[tuple[SchedulerNode, str]]:
    told = "+".join(dict.fromkeys(states))
    if told:
        known: dict[str, Any] = dict.fromkeys(
            ("cpus", "cpus_used", "memory", "memory_free", "load", "gpus", "gpus_used")
        )
        yield (
            SchedulerNode(host=host, file="", state=told, reason=reason, **{**known, **more}, ref=0),
            " ".join(filter(None, (host, told, reason))),
        )


def _words(value: object) -> list[str]:
    """The parts of a state, in capitals: of `["IDLE", "DRAIN"]` or `"idle"`."""
    found = value if isinstance(value, list) else [value]
    return [word.strip().upper()[:40] for word in found if isinstance(word, str) and word.strip()]
