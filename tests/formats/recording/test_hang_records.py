"""What two looks at a rank say of it."""

from typing import Any

import pytest

from nccl_doctor.formats.recording.hang_records import parse_ranks

STACK = (
    "Process 11: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\nThread 11 (active)\n    train (train.py:45)\n"
)


def look(number: int, cpu: float, **rank: Any) -> dict[str, Any]:
    one = {"rank": 0, "pid": 11, "state": "running", "cpu": cpu, "switches": 67, "text": STACK, "place": "a", **rank}
    when = f"2026-05-07T12:00:{5 * number:02}.000+00:00"
    return {"kind": "hang", "hostname": "n", "query_time": when, "job": "j", "look": number, "world": 4, "ranks": [one]}


@pytest.mark.parametrize("doing", ["collective", None])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_rank_that_polls_in_a_collective_waits_whatever_it_costs(share: float, doing: str | None) -> None:
    """MPI asks its network without a pause, in C: only the source line says that it is a collective."""
    ((state, _),) = parse_ranks(look(2, 1 + 5 * share, doing=doing), look(1, 1.0, doing=doing))
    assert (doing or "other", int(doing is None and share > 0.2)) == (state.doing, state.moved)


@pytest.mark.parametrize("number", [10**400, float("inf"), float("nan"), True, "5"])
def test_a_time_that_is_no_number_is_unknown(number: Any) -> None:
    ((state, _),) = parse_ranks(look(2, number, since=number, quiet=number), look(1, 1.0))
    assert (None, None) == (state.since, state.busy)


@pytest.mark.parametrize("pid", [[1], {"a": 1}, None, "7", 1.5])
def test_a_process_number_that_is_none_is_passed_over(pid: Any) -> None:
    look = {"query_time": "2026-01-01T00:00:00", "ranks": [{"pid": pid}, {"pid": 7, "cpu": 1.0}]}
    assert [7] == [state.pid for state, _ in parse_ranks(look, look)]
