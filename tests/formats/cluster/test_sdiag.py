"""What `sdiag` tells of Slurm's controller."""

import io

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
