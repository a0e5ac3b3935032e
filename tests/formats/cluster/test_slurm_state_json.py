"""Nodes and queue of Slurm as JSON, in the layouts of old and new versions, whole, cut and wrong."""

import io
import json
from typing import Any

import pytest

from nccl_doctor.app.analyze import report_of
from nccl_doctor.derive.summary.cluster import nodes_in
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import QueuedJob, SchedulerNode
from nccl_doctor.formats import registry
from nccl_doctor.formats.cluster import slurm_state_json
from nccl_doctor.formats.declaration import Reading

NEW = {
    "meta": {"plugin": {"type": "openapi/slurmctld", "data_parser": "data_parser/v0.0.41"}},
    "errors": [],
    "warnings": [],
}


def read(content: Any) -> tuple[Facts, Reading]:
    facts = Facts()
    data = content if isinstance(content, bytes) else json.dumps(content, indent=1).encode()
    known = registry.recognise(data)
    assert known is not None
    assert "slurm-state-json" == known.kind
    return facts, slurm_state_json.read_format(io.BytesIO(data), "s.json", facts)


def count(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def test_queue_of_new_versions() -> None:
    jobs = [
        {"accrue_time": count(1), "job_id": 90, "name": "a", "job_state": ["PENDING"], "node_count": count(4),
         "state_reason": "ReqNodeNotAvail", "state_description": "ReqNodeNotAvail,_UnavailableNodes:gpu[3-4]"},
        {"job_id": 95, "array_job_id": count(91), "array_task_id": count(2), "name": "b", "job_state": ["RUNNING"], "state_reason": "None"},
        {"job_id": 92, "array_job_id": count(92), "array_task_id": {"set": False, "number": 0}, "array_task_string": "3-9", "name": "c",
         "job_state": ["PENDING"], "state_reason": "Priority"},
        {"job_id": 93, "name": "d", "job_state": ["COMPLETED"], "state_reason": "None"},
        {"job_id": True, "job_state": ["PENDING"]}, "x",
    ]  # fmt: skip
    facts, reading = read({"jobs": jobs, "last_backfill": count(1), **NEW})
    assert [
        ("90", "a", "PENDING", "ReqNodeNotAvail, UnavailableNodes:gpu[3-4]", 4),
        ("91_2", "b", "RUNNING", None, None),
        ("92_[3-9]", "c", "PENDING", "Priority", None),
    ] == [(row.job, row.name, row.state, row.reason, row.nodes) for row in facts.rows(QueuedJob)]
    assert reading.note is None
    assert ["job-cannot-start"] == [finding.name for finding in report_of(facts).findings]


def test_nodes_of_old_and_new_versions() -> None:
    old = {
        "meta": {"plugin": {"type": "openapi/v0.0.37"}},
        "nodes": [{"architecture": "x86_64", "name": "g1", "state": "idle", "state_flags": ["DRAIN"], "reason": "Xid 79", "cpus": 64,
                   "alloc_cpus": 0, "cpu_load": 150, "real_memory": 1000, "free_memory": 900,
                   "gres": "gpu:a100:8(S:0-1)", "gres_used": "gpu:a100:2"}],
    }  # fmt: skip
    new = {
        "nodes": [
            {
                "architecture": "x86_64",
                "name": "g2",
                "state": ["DOWN", "NOT_RESPONDING"],
                "reason": "",
                "free_mem": count(7),
            }
        ],
        **NEW,
    }
    (one,), (two,) = read(old)[0].rows(SchedulerNode), read(new)[0].rows(SchedulerNode)
    assert ("g1", "IDLE+DRAIN", "Xid 79", 64, 0, 1000.0, 900.0, 1.5, 8, 2) == (
        one.host, one.state, one.reason, one.cpus, one.cpus_used, one.memory, one.memory_free, one.load, one.gpus, one.gpus_used,
    )  # fmt: skip
    assert ("g2", "DOWN+NOT_RESPONDING", None, 7.0, None) == (
        two.host,
        two.state,
        two.reason,
        two.memory_free,
        two.gpus,
    )


def test_groups_of_sinfo() -> None:
    groups = [
        {"port": 0, "node": {"state": ["IDLE", "DRAIN"]}, "nodes": {"total": 2, "nodes": ["g1", "g2"]}, "gres": {"total": "gpu:4"},
         "reason": {"description": "ECC errors on gpu1"}},
        {"port": 0, "node": {"state": ["ALLOCATED"]}, "nodes": {"total": 0, "nodes": []}, "reason": {"description": ""}},
    ]  # fmt: skip
    facts, _ = read({"sinfo": groups, **NEW})
    assert [("g1", "IDLE+DRAIN", "ECC errors on gpu1", 4), ("g2", "IDLE+DRAIN", "ECC errors on gpu1", 4)] == [
        (row.host, row.state, row.reason, row.gpus) for row in facts.rows(SchedulerNode)
    ]
    found = report_of(facts).findings
    assert [("node-out-of-service", "warning", "g[1-2]")] == [(one.name, one.severity, one.hosts) for one in found]


@pytest.mark.parametrize("cut", range(60, 400, 37))
def test_cut_anywhere_tells_what_was_read(cut: int) -> None:
    whole = json.dumps(
        {"nodes": [{"architecture": "x86_64", "name": f"g{n}", "state": ["IDLE"]} for n in range(9)]}
    ).encode()
    facts, reading = read(whole[:cut])
    assert len(facts.rows(SchedulerNode)) == whole[:cut].count(b"}")
    assert reading.note is not None
    assert "before that were read" in reading.note


def test_an_empty_queue_is_recognised() -> None:
    facts, reading = read({"jobs": [], "last_backfill": count(1), **NEW})
    assert ([], 0, None) == (facts.rows(QueuedJob), reading.understood, reading.note)


@pytest.mark.parametrize(
    ("names", "number"), [("g1", 1), ("g[1-3,7],h2", 5), ("g[1-3]r[1-2]", 6), ("", 1), ("g[3-1]", 1)]
)
def test_nodes_in_a_list(names: str, number: int) -> None:
    assert number == nodes_in(names)
