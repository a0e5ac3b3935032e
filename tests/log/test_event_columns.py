"""Events in columns give the rows that events one by one give."""

import io
from collections.abc import Callable
from unittest import mock

from helpers.examples import examples
from helpers.scanning import life
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.log import event_rows, job_log, parallel
from nccl_doctor.log.event_columns import EventColumns, EventRow, Message

SENTENCES = (
    "NCCL INFO cudaDriverVersion 12040",
    "NCCL INFO Bootstrap : Using eth0:10.1.0.4<0>",
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.1.0.4<0>",
    "NCCL INFO NCCL_IB_HCA set by environment to mlx5_0,mlx5_1",
    "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
    "NCCL INFO Using network IB",
    "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.0.5<40000> with status=12 opcode=0 len=0 vendor err 129",
    "misc/socket.cc:58 NCCL WARN Connect to 10.1.0.5<4> failed : Connection refused",
    "NCCL WARN odd thing 17",
)
LINES = st.builds(
    lambda rank, text: f"node{rank // 8:02d}:{100 + rank}:{150 + rank} [{rank % 8}] {text}",
    st.integers(0, 20),
    st.sampled_from(SENTENCES),
)


def facts_of(lines: list[str], *, large: bool) -> dict[str, list[tuple[object, ...]]]:
    text = "\n".join([life(rank, 24, f"node{rank // 8:02d}", rank % 8, 100 + rank) for rank in range(24)] + lines)
    counts, tail = parallel.scan(io.BytesIO(text.encode()), large=large)
    facts = Facts()
    job_log.add(facts, [("job.log", counts, tail)])
    return {name: facts.query(f"SELECT * FROM {name}") for name, rows in facts.counts().items() if rows}


@examples(60)
@given(st.lists(LINES, max_size=120), st.integers(1, 40))
def test_rows_of_a_message_are_those_of_its_events(lines: list[str], together: int) -> None:
    expected = None
    for shared in (1, 1_000_000):
        with mock.patch.object(event_rows, "_SHARED", shared), mock.patch.object(event_rows, "_TOGETHER", together):
            found = facts_of(lines, large=True)
        assert (expected or found) == found
        expected = found
    assert expected == facts_of(lines, large=False)


def columns(*rows: EventRow) -> EventColumns:
    made = EventColumns(
        [Message(3, "INFO", "a Init START"), Message(3, "INFO", "a Init COMPLETE"), Message(-1, "", "x")]
    )
    for row in rows:
        made.append(row)
    return made


def row(message: int, header: int, first: int, last: int, n: int = 1, left: str = "") -> EventRow:
    return EventRow(message, header, n, first, last, None, left)


def test_events_of_one_message_and_header_are_added_up() -> None:
    found = columns(row(1, 0, 9, 12, 2, "late"), row(1, 1, 3, 3), row(1, 0, 4, 5, 1, "early"), row(2, 0, 1, 1))
    found.fold()
    assert {row(1, 0, 4, 12, 3, "early"), row(1, 1, 3, 3), row(2, 0, 1, 1)} == set(found.rows())


def test_a_communicator_that_was_completed_loses_its_start() -> None:
    found = columns(row(0, 0, 1, 1), row(1, 0, 5, 5), row(0, 1, 2, 9), row(1, 1, 6, 6), row(0, 2, 7, 7))
    found.drop_superseded("Init START", "Init COMPLETE")
    assert [row(1, 0, 5, 5), row(0, 1, 2, 9), row(1, 1, 6, 6), row(0, 2, 7, 7)] == list(found.rows())


def test_a_part_of_a_log_is_appended() -> None:
    found, more = columns(row(1, 0, 1, 1)), EventColumns([Message(-1, "", "x"), Message(4, "WARN", "y")])
    more.append(row(1, 0, 2, 3))
    more.append(row(0, 1, 1, 1))
    found.merge(more, [5, 0], 100)
    assert [row(1, 0, 1, 1), row(3, 5, 102, 103), row(2, 0, 101, 101)] == list(found.rows())


def test_records_come_before_texts_and_both_in_the_order_of_their_lines() -> None:
    found = columns(row(2, 0, 1, 1), row(1, 0, 9, 9), row(1, 1, 3, 3), row(2, 1, 2, 2))
    assert [2, 1, 0, 3] == list(found.order())
    slow: Callable[[], object] = found.order
    with mock.patch.dict("sys.modules"):
        import sys

        sys.modules.pop("numpy", None)
        assert [2, 1, 0, 3] == slow()
