"""Dumps the stacks of all ranks on this node twice, so that nobody is accused who is only on the way, and groups equal ones."""

import socket
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from nccl_doctor.app.hang.look import look
from nccl_doctor.derive.hang.stacks import WAITS
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collection
from nccl_doctor.facts.tables.derived.hang import RankDoing
from nccl_doctor.facts.tables.stacks import Stack
from nccl_doctor.formats.recording.hang_records import add_looks, parse_ranks
from nccl_doctor.node.host.job_processes import RankProcess

PAUSE = 3.0  # seconds between the two dumps
SECONDS = 10.0  # for one process
NATIVE_SECONDS = 60.0  # for one process with C and C++ frames: the symbols of large libraries are read first
BROKEN = ("stopped", "zombie", "ended")


class Group(NamedTuple):
    """Ranks of a job whose main threads are at the same place."""

    job: str | None
    doing: str
    members: list[RankDoing]
    frames: list[str]  # innermost first


def dump(
    facts: Facts, ranks: Sequence[RankProcess], *, native: bool = False, seconds: float = SECONDS, pause: float = PAUSE
) -> list[str]:
    """Add the stacks of these processes to the facts. Returns one sentence for each process that failed.

    The second dump follows after `pause` seconds, where the first one shows a rank that waits for others.
    """
    looks = {record["job"]: [record] for record in look(ranks, 1, native=native, seconds=seconds)}
    waiting = {job for job, (record,) in looks.items() if _waits(record)}
    if waiting:
        time.sleep(pause)
        again = [one for one in ranks if one.name in waiting]
        for record in look(again, 2, native=native, seconds=seconds):
            looks[record["job"]].append(record)
    host = socket.gethostname()
    problems = []
    for job, records in looks.items():
        add_looks(facts, f"stacks of job {job}" if job else "stacks", records, [1, 2][: len(records)])
        for one in records[-1]["ranks"]:
            if one.get("problem") is not None and one.get("state") not in BROKEN:
                problems.append(f"rank {one['rank']} (process {one['pid']}): {one['problem']}")
                ref = facts.evidence(f"stack of rank {one['rank']} on {host}", 1, one["problem"])
                facts.add([Collection(host, f"stacks {one['rank']}", "failed", 0.0, one["problem"], ref)])
    facts.mark_covered("stack")
    return problems


def _waits(record: dict[str, Any]) -> bool:
    return any(state.doing in WAITS or state.state in BROKEN for state, _ in parse_ranks(record, None))


def groups(facts: Facts) -> list[Group]:
    """Returns ranks grouped by job and place, the smallest groups of a job first."""
    texts = {
        number: text.partition(": ")[2].split(" < ")
        for number, text in facts.query(
            "SELECT e.id, e.text FROM evidence e WHERE e.id IN (SELECT ref FROM rank_doing)"
        )
    }
    jobs = dict(facts.query("SELECT ref, job FROM stack WHERE main = 1"))
    found: dict[tuple[str | None, str, str | None, str | None], Group] = {}
    for one in facts.rows(RankDoing):
        job = jobs.get(one.ref)
        key = (job, one.doing, _place(one.leaf), one.worker)
        found.setdefault(key, Group(job, one.doing, [], texts.get(one.ref, []))).members.append(one)
    of_job: dict[str | None, list[Group]] = defaultdict(list)
    for group in found.values():
        of_job[group.job].append(group)
    return [
        group for mine in of_job.values()
        for group in sorted(mine, key=lambda group: (len(group.members), group.doing in ("collective", "backward")))
    ]  # fmt: skip


def _place(leaf: str | None) -> str | None:
    """Returns a frame without its line number, because ranks in one loop are at different lines."""
    return leaf.rpartition(":")[0] if leaf and ":" in leaf else leaf


def workers(facts: Facts, pid: int) -> list[Stack]:
    """Returns the child processes of a rank, such as loader workers."""
    return list(map(Stack._make, facts.query("SELECT * FROM stack WHERE parent = ? AND main = 1", (pid,))))
