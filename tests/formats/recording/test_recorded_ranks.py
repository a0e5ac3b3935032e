"""Ranks of a recording: how long they waited for a processor; hosts: segments that were sent again."""

import io
import json
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.recorded import HostUse, RankUse
from nccl_doctor.formats.recording import recorded_files


def read(records: list[dict[str, Any]]) -> Facts:
    facts = Facts()
    lines = [
        json.dumps(
            {**one, "hostname": "node01", "query_time": f"2026-05-28T20:26:{number:02}+00:00"}, separators=(",", ":")
        )
        for number, one in enumerate(records)
    ]
    recorded_files.read_format(io.BytesIO("\n".join(lines).encode()), "process.jsonl", facts)
    return facts


def ranks(second: int) -> dict[str, Any]:
    """All wait while they start; rank 2 waits from second 10 on."""
    waited = {rank: min(second, 9) * 0.5 + (max(second - 9, 0) * 0.8 if rank == 2 else 0.0) for rank in range(4)}
    return {
        "kind": "process",
        "processes": [{"rank": rank, "pid": 100 + rank, "waited": value} for rank, value in waited.items()],
    }


def test_the_worst_span_is_the_one_that_differs_most_from_the_others() -> None:
    facts = read([ranks(second) for second in range(41)])
    found = {one.rank: (one.starved, one.starved_others) for one in facts.rows(RankUse)}
    share, others = found[2]
    assert share is not None
    assert others == 0.0
    assert 0.7 < share <= 0.8
    assert found[0][0] is not None
    assert found[0][0] <= 0.5


def test_unknown_stays_unknown() -> None:
    facts = read([{"kind": "process", "processes": [{"rank": 0, "pid": 100, "waited": "x"}]}] * 20)
    assert [(None, None)] == [(one.starved, one.starved_others) for one in facts.rows(RankUse)]
    alone = read([{"kind": "process", "processes": [{"rank": 0, "pid": 100, "waited": 0.9 * n}]} for n in range(20)])
    assert [(0.9, None)] == [(round(one.starved or 0, 3), one.starved_others) for one in alone.rows(RankUse)]


def test_segments_that_were_sent_again() -> None:
    facts = read([{"kind": "host", "host": {"tcp_sent": 1000 + 100 * n, "tcp_repeated": 5 * n}} for n in range(11)])
    assert [(1000, 50)] == [(one.tcp_sent, one.tcp_repeated) for one in facts.rows(HostUse)]
    reset = read([{"kind": "host", "host": {"tcp_sent": 1000 - n}} for n in range(3)])
    assert [(None, None)] == [(one.tcp_sent, one.tcp_repeated) for one in reset.rows(HostUse)]
