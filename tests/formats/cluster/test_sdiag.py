"""What `sdiag` tells of Slurm's controller."""

import io
import json
from pathlib import Path

from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber
from nccl_doctor.formats.cluster import sdiag

REPORT = (FIXTURES / "batch" / "sdiag.txt").read_text()


def numbers(text: str) -> dict[str, float]:
    facts = Facts()
    sdiag.read_format(io.BytesIO(text.encode()), "sdiag.txt", facts)
    return {row.name: row.value for row in facts.rows(HostNumber)}


def test_queues_cycles_and_who_asks_most() -> None:
    told = numbers(REPORT)
    assert (211, 402, 0) == tuple(told[name] for name in ("jobs waiting", "jobs running", "messages for slurmdbd"))
    assert (41.231, 1231.231) == (told["mean scheduling cycle"], told["mean backfill cycle"])
    assert 747.139876 == told["requests of ali"]
    report, _, _ = analyze.analyze([str(FIXTURES / "batch" / "sdiag.txt")])
    assert [] == report.findings


def test_of_several_reports_the_highest_counts() -> None:
    later = REPORT.replace("DBD Agent queue size: 0", "DBD Agent queue size: 32733")
    assert 32_733 == numbers(REPORT + later + REPORT)["messages for slurmdbd"]


def test_damage_is_survived() -> None:
    assert {} == numbers("sdiag output at \n" + "x: " * 3000 + "\nJobs running: " + "9" * 400 + "\n")
    assert numbers(REPORT[: len(REPORT) // 2])


def test_the_same_in_json(tmp_path: Path) -> None:
    told = {
        "parts_packed": 1, "server_thread_count": 3, "agent_queue_size": 0, "dbd_agent_queue_size": 20, "jobs_pending": 7,
        "jobs_running": 4, "schedule_cycle_mean": 41000, "schedule_queue_length": 9,
        "rpcs_by_user": [{"user": "mira", "total_time": 2500000}],
    }  # fmt: skip
    path = tmp_path / "diag.json"
    path.write_text(json.dumps({"statistics": told, "errors": []}, indent=2))
    facts, _ = analyze.read_facts([str(path)])
    assert {
        "jobs waiting": 7, "jobs running": 4, "mean scheduling cycle": 41, "jobs in the queue": 9, "requests of mira": 2.5,
        "messages for slurmdbd": 20, "messages for nodes": 0, "threads": 3,
    } == {row.name: row.value for row in facts.rows(HostNumber)}  # fmt: skip


def test_broken_json_is_said() -> None:
    facts = Facts()
    reading = sdiag.read_format(io.BytesIO(b'{"statistics": {"server_thread_count": 3,'), "diag.json", facts)
    assert ("is no complete JSON", []) == (reading.note, list(facts.rows(HostNumber)))
