"""Collective calls are counted in columns where a log is large, and one by one where it is small: the facts are the same."""

import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Collective, Evidence, Process
from nccl_doctor.log import job_log, parallel

HEAD = "node{0:02d}:{1}:{1} [0] NCCL INFO "
FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send", "Recv")


def rows(log: str, *, large: bool) -> tuple[list[Collective], list[Process], list[Evidence]]:
    counts, tail = parallel.scan(io.BytesIO(log.encode()), large=large)
    facts = Facts()
    job_log.add(facts, [("job.log", counts, tail)])
    return facts.rows(Collective), facts.rows(Process), sorted(facts.rows(Evidence), key=lambda row: row.line)


def counted(log: str, *, large: bool) -> object:
    """Facts without the numbers of evidence, which depend on the order in which lines were read."""
    collectives, processes, evidence = rows(log, large=large)
    lines = {row.id: (row.line, row.text) for row in evidence}
    return [
        sorted(((*row[:-1], lines[row.ref]) for row in collectives), key=repr),
        sorted(((*row[:-1], lines[row.ref]) for row in processes), key=repr),
        sorted((row.line, row.text) for row in evidence),
    ]


def calls(lines: int, stamped: bool = False) -> str:
    chance = random.Random(lines)
    written = []
    for number in range(lines):
        rank = number % 16
        stamp = f"2026-05-07T12:{number // 60 % 60:02d}:{number % 60:02d}.123Z " if stamped else ""
        buffer = f"0x7f{chance.getrandbits(40):x}"
        function = FUNCTIONS[number // 16 % len(FUNCTIONS)]
        other = "(nil)" if function in ("Send", "Recv") else buffer
        written.append(
            f"{stamp}{HEAD.format(rank // 8, 4000 + rank)}{function}: opCount {number // 16:x} sendbuff {buffer} recvbuff {other}"
            f" count {1 << number % 3 * 8} datatype 7 op 0 root 0 comm 0x55{rank:02x}0 [nranks=16] stream 0x66\n"
        )
    return "".join(written)


@pytest.mark.parametrize("stamped", [False, True])
def test_columns_and_single_lines_give_the_same_facts(stamped: bool) -> None:
    log = calls(3_000, stamped)
    assert counted(log, large=False) == counted(log, large=True)
    assert 16 * len(FUNCTIONS) <= len(rows(log, large=True)[0])


def test_the_range_of_operations_is_known() -> None:
    collectives = [row for row in rows(calls(3_000), large=True)[0] if row.function == "AllReduce" and row.pid == 4003]
    assert (0, 186) == (min(row.first_op for row in collectives), max(row.last_op for row in collectives))
    assert 32 == sum(row.n for row in collectives)


ODD = (
    "AllReduce: opCount zz sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
    "AllReduce: opCount 1a sendbuff 0x 1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
    "AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x2 acc 0x3 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
    "AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x2 count x datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
    "AllReduce: opCount fffffffffffffff sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
    "AllReduce: opCount ffffffffffffffffff sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
    "AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stre",
    "AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6  ",
    "Grüße: opCount 1a sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x4 [nranks=2] stream 0x6",
)


@given(st.lists(st.tuples(st.sampled_from(ODD), st.integers(0, 120)), min_size=1, max_size=30))
def test_odd_and_torn_calls_are_counted_as_single_lines_are(picked: list[tuple[str, int]]) -> None:
    torn = [HEAD.format(1, 4001) + text[: cut if cut < len(text) and cut % 3 == 0 else None] for text, cut in picked]
    log = calls(200) + "\n".join(torn) + "\n" + calls(40)
    assert counted(log, large=False) == counted(log, large=True)
