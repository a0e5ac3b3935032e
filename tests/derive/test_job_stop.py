"""Who is suspected when a job stands still."""

from typing import Any

import pytest

from nccl_doctor.derive.hang.job_stop import judge
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import JobStop
from nccl_doctor.facts.tables.stacks import RankState, StuckSocket


def rank(number: int, **changes: Any) -> RankState:
    waits = RankState(
        host="gpu-a", job="81234", rank=number, pid=4000 + number, gpu=None, world=4, look=2, at=112.0, since=100.0,
        state="sleeping", doing="collective", op="all_reduce", site="train (train.py:40)", worker=None, holder=None,
        counter="step", step=30, moved=0, busy=0.0, ref=number + 1,
    )  # fmt: skip
    return waits._replace(**changes)


def judged(*others: RankState, sockets: tuple[StuckSocket, ...] = ()) -> tuple[str, str, str] | None:
    known = {one.rank for one in others}
    found = judge([*others, *(rank(n) for n in range(4) if n not in known)], sockets)
    return (found.state, found.kind, found.reason()) if found is not None else None


ELSEWHERE = {"op": None, "site": "load (data.py:8)"}


@pytest.mark.parametrize(
    ("changes", "state", "kind", "words"),
    [
        ({"doing": "other", **ELSEWHERE}, "stopped", "outside", "is in load (data.py:8)"),
        ({"doing": "dataloader", "worker": "decode (data.py:2)", **ELSEWHERE}, "stopped", "dataloader", "is in decode (data.py:2)"),
        ({"doing": "other", "moved": 1, "busy": 99.0, **ELSEWHERE}, "waiting", "outside", "is busy in load (data.py:8)"),
        ({"doing": "checkpoint", **ELSEWHERE}, "stopped", "checkpoint", "is in load (data.py:8)"),
        ({"doing": "other", "holder": "saver at gzip (a.py:1)", **ELSEWHERE}, "stopped", "gil",
         "is in load (data.py:8) while its thread saver at gzip (a.py:1) holds the interpreter's lock"),
        ({"doing": "other", "state": "disk-sleep", **ELSEWHERE}, "stopped", "kernel", "waits in the kernel (state D) in load (data.py:8)"),
        ({"state": "stopped"}, "stopped", "suspended", "is stopped by a signal (state T)"),
        ({"state": "ended"}, "stopped", "ended", "has ended"),
        ({"op": "all_gather", "site": "train (train.py:44)", "step": 31}, "stopped", "apart",
         "waits in all_gather at train (train.py:44), step 31"),
    ],
)  # fmt: skip
def test_the_rank_that_differs_is_named(changes: dict[str, Any], state: str, kind: str, words: str) -> None:
    said = f"3 of 4 ranks wait in all_reduce; rank 2 (gpu-a, pid 4002) {words}"
    assert (state, kind, said) == judged(rank(2, **changes))


def test_nobody_is_suspected_after_one_look_or_while_most_ranks_move() -> None:
    assert judge([rank(n, look=1, moved=None, doing="other" if n == 2 else "collective") for n in range(4)]) is None
    assert judged(*(rank(n, moved=1) for n in range(3))) is None
    assert judged(*(rank(n, doing="other", moved=1) for n in range(3))) is None
    assert judge([]) is None


def test_two_and_two_are_told_apart_and_nobody_is_accused() -> None:
    found = judged(
        rank(0, op="broadcast", site="train (train.py:9)"), rank(1, op="broadcast", site="train (train.py:9)")
    )
    assert found is not None
    assert ("stopped", "apart") == found[:2]
    assert "ranks 0, 1 wait in broadcast at train (train.py:9), step 30" in found[2]


def test_where_all_are_in_one_call_the_connection_is_named() -> None:
    assert ("stopped", "network") == (judged() or ())[:2]
    socket = StuckSocket("gpu-a", "81234", 1, 4001, "10.0.0.1:29500", "10.0.0.2:41002", 65536, 6, 9)
    found = judged(sockets=(socket,))
    assert found is not None
    assert (
        "10.0.0.2:41002 does not acknowledge 65536 bytes from 10.0.0.1:29500 of rank 1 (6 retransmissions)" in found[2]
    )


def test_ranks_that_nobody_looked_at_are_counted() -> None:
    found = judge([rank(n, world=16) for n in range(8)])
    assert found is not None
    assert ("unseen", "8 of 16 ranks wait in all_reduce; nothing is known of the other 8") == (
        found.kind,
        found.reason(),
    )


def test_a_job_that_is_suspended_as_a_whole() -> None:
    found = judge([rank(n, state="stopped") for n in range(4)])
    assert found is not None
    assert ("stopped", "suspended", 4) == (found.state, found.kind, len(found.suspects))


def test_jobs_are_judged_apart() -> None:
    facts = Facts()
    ref = facts.evidence("hang.jsonl", 1, "x")
    healthy = [rank(n, job="healthy", pid=5000 + n, moved=1, doing="other", ref=ref) for n in range(4)]
    stopped = [rank(n, ref=ref) if n != 2 else rank(2, doing="other", op=None, ref=ref) for n in range(4)]
    facts.add([*healthy, *stopped])
    derive_all(facts)
    assert [("81234", 2, 3)] == [(one.job, one.rank, one.waiting) for one in facts.rows(JobStop)]


def test_a_network_that_loses_everything_leaves_ranks_a_step_apart_and_accuses_nobody() -> None:
    socket = StuckSocket("gpu-a", "81234", 1, 4001, "10.0.0.1:29500", "10.0.0.2:41002", 65536, 6, 9)
    found = judged(rank(0, op="all_gather", step=31), sockets=(socket,))
    assert found is not None
    assert "network" == found[1]
    once = judged(rank(0, op="all_gather", step=31), sockets=(socket._replace(retransmits=1),))
    assert once is not None
    assert "apart" == once[1]
    connects = judged(sockets=(socket._replace(queued=0),))
    assert connects is not None
    assert "10.0.0.2:41002 does not answer when rank 1 connects from 10.0.0.1:29500 (6 repetitions)" in connects[2]
