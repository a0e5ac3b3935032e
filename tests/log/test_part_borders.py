"""Logs that are read in parts: a border between two parts may lie inside of a record of several lines."""

import io
from pathlib import Path

import pytest
from helpers.scanning import plain
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.analyze import read_text
from nccl_doctor.facts.tables import Process
from nccl_doctor.log import parallel
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.parallel import even_cuts

RECORDS = {
    "mpich": """\
[1,3]<stderr>:Abort(1615503) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:
[1,3]<stderr>:MPIR_Init_thread(138)........:
[1,3]<stderr>:MPID_Init(1183)..............: channel initialization failed
[1,3]<stderr>:create_endpoint(2473)........: OFI EP enable failed (ofi_init.c:2473:create_endpoint:Cannot allocate memory)
""",
    "open-mpi": """\
WARNING: Open MPI failed to TCP connect to a peer MPI process.  This
should not happen.

Your Open MPI job may now hang or fail.

  Local host: n7
  PID:        812
  Message:    connect() to 10.9.8.7:1024 failed
  Error:      Connection refused (111)
""",
    "efa": """\
Libfabric EFA provider has encountered an internal error:

Libfabric error: (-12) Cannot allocate memory
EFA internal error: (4112) Failure to post internal receive buffers
Your application will now abort().
""",
    "last-error": """\
[rank5]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error, NCCL version 2.21.5
[rank5]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
[rank5]: Last error:
[rank5]: NET/OFI Unable to insert remote address into address vector for device 1. RC: Invalid argument
""",
    "ranks": """\
n7:42:98 [0] NCCL INFO ncclCommInitRank comm 0x7a12257c8780 rank 0 nranks 4 cudaDev 0 busId 100000 commId 0xaa9bece4 - Init START
n7:43:99 [1] NCCL INFO ncclCommInitRank comm 0x397e3800 rank 1 nranks 4 cudaDev 1 busId 200000 commId 0xaa9bece4 - Init START
n7:42:98 [0] NCCL INFO ncclCommInitRank comm 0x7a12257c8780 rank 2 nranks 4 cudaDev 0 busId 100000 commId 0xaa9bece4 - Init START
""",
}


@pytest.mark.parametrize("name", sorted(RECORDS))
@pytest.mark.parametrize("before", [0, 9_000])
def test_a_border_inside_of_a_record_changes_nothing(name: str, before: int, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    data = (f"step {before}: what a loop prints\n" * (before // 30) + RECORDS[name]).encode()
    path.write_bytes(data)
    begin = len(data) - len(RECORDS[name])
    borders = [at + 1 for at in range(begin, len(data) - 1) if data[at] == ord("\n")]
    whole = plain(parallel.read_part(path, 0, len(data)))

    assert len(whole["events"]) > 0
    for border in borders:
        parts = LogCounts()
        parts.merge(parallel.read_part(path, 0, border).packed())
        parts.merge(parallel.read_part(path, border, len(data) - border).packed())
        assert whole == plain(parts), border


def test_a_record_of_another_writer_behind_the_border_is_read(tmp_path: Path) -> None:
    """Only what belongs to the record before is passed over."""
    path = tmp_path / "job.log"
    first, second = RECORDS["efa"], RECORDS["open-mpi"]
    path.write_text(first + second, "utf-8")

    part = parallel.read_part(path, len(first), len(second))

    assert [(1, 1)] == [(event.first, event.n) for event in part.events.values()]


def test_the_rank_of_a_thread_in_two_communicators_of_one_size_is_the_first() -> None:
    facts = read_text(RECORDS["ranks"])

    assert {42: 0, 43: 1} == {row.pid: row.rank for row in facts.rows(Process)}


NCCL_LINE = b"node01:101:140 [0] NCCL INFO Channel 00/24 :    0   1   2   3\n"
TEXT_LINE = b"[rank3]: RuntimeError: a failure that each rank tells in its own way\n"


@given(st.lists(st.sampled_from([NCCL_LINE, TEXT_LINE]), min_size=1, max_size=40), st.integers(2, 16))
def test_parts_of_a_log_begin_behind_each_other(blocks: list[bytes], count: int) -> None:
    text = b"".join(200 * block for block in blocks)
    cuts = even_cuts(io.BytesIO(text), len(text), count)
    assert count - 1 == len(cuts)
    assert sorted(cuts) == cuts
    assert 0 < cuts[0]
    assert cuts[-1] < len(text)


def test_lines_that_take_longer_get_smaller_parts() -> None:
    """The text of a failure stands at the end of a log."""
    even, late = 6_000 * NCCL_LINE, 4_500 * NCCL_LINE + 1_300 * TEXT_LINE
    assert even_cuts(io.BytesIO(even), len(even), 2) == [pytest.approx(len(even) / 2, rel=0.02)]
    assert even_cuts(io.BytesIO(late), len(late), 2)[0] > 4_500 * len(NCCL_LINE)
