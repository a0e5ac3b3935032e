"""Who holds up a hang: opCount, Horovod's lists and the table that brings all sources together; hosts and moments."""

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.common.timestamps import Moment, moment, year_of
from nccl_doctor.derive.host_names import bus_id
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts import tables
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Hang, HorovodStall, OpCensus

TIMEOUT = (
    "[rank{0}]:[E513 03:35:20.399015003 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600067 milliseconds "
    "before timing out."
)
HEAD = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder "
    "of ranks for more than 60 seconds. "
)


def init(rank: int, of: int = 4, comm: str = "0xb9b42cb8fce289f2") -> str:
    return (
        f"node01:{100 + rank}:{140 + rank} [{rank}] NCCL INFO comm 0x55b{rank} rank {rank} nranks {of} cudaDev {rank} "
        f"nvmlDev {rank} busId {4 + rank}f000 commId {comm} - Init COMPLETE"
    )


def call(rank: int, op: int, function: str = "AllReduce", comm: str = "0x55b", of: int = 4) -> str:
    return (
        f"node01:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {function}: opCount {op:x} sendbuff 0x7f00 recvbuff 0x7f00 count 1048576 "
        f"datatype 7 op 0 root 0 comm {comm}{rank} [nranks={of}] stream 0x66"
    )


def facts_of(*lines: str) -> Facts:
    return analyze.read_text("\n".join(lines) + "\n")


def report_of(*lines: str) -> Report:
    return analyze.report_of(facts_of(*lines))


def names(report: Report) -> list[str]:
    return [finding.name for finding in report.findings]


def states(facts: Facts, source: str) -> dict[int | None, str]:
    return {row.rank: row.state for row in facts.rows(Hang) if row.source == source}


def calls(last: dict[int, int], start: int = 1) -> list[str]:
    return [call(rank, op) for rank, end in last.items() for op in range(start, end + 1)]


def test_the_census_counts_each_rank_of_a_communicator() -> None:
    facts = facts_of(*map(init, range(4)), *calls({0: 12, 1: 12, 2: 9, 3: 12}))
    found = {row.rank: row for row in facts.rows(OpCensus)}
    assert {0: 12, 1: 12, 2: 9, 3: 12} == {rank: row.last_op for rank, row in found.items()}
    assert {12} == {row.most for row in found.values()}
    assert {"0xb9b42cb8fce289f2"} == {row.comm for row in found.values()}
    assert 9 == found[2].calls


def test_a_rank_behind_is_named_where_something_says_that_ranks_wait() -> None:
    facts = facts_of(*map(init, range(4)), *calls({0: 12, 1: 12, 2: 11, 3: 12}), TIMEOUT.format(0))
    assert {0: "waiting", 1: "waiting", 2: "behind", 3: "waiting"} == states(facts, "opcount")
    report = analyze.report_of(facts)
    assert "opcount-behind" == report.findings[0].name
    assert "2" == report.findings[0].ranks
    assert ["SYN110"] == next(f for f in report.findings if f.name == "unknown-collective-timeout").explained_by


@pytest.mark.parametrize(
    "last", [{0: 12, 1: 12, 2: 11, 3: 12}, {0: 900, 1: 896, 2: 880, 3: 899}, {0: 5, 1: 0, 2: 5, 3: 5}]
)
def test_a_log_that_ends_in_the_middle_of_the_run_accuses_nobody(last: dict[int, int]) -> None:
    report = report_of(*map(init, range(4)), *calls(last))
    assert [] == [finding.name for finding in report.findings if finding.severity != "note"]


def test_a_rank_that_enqueued_nothing_is_missing() -> None:
    facts = facts_of(*map(init, range(4)), *calls({0: 5, 1: 5, 3: 5}), TIMEOUT.format(0))
    assert "missing" == states(facts, "opcount")[2]


def test_garbage_is_left_out_and_does_not_move_the_others() -> None:
    lines = [*map(init, range(4)), *calls({0: 5, 1: 5, 3: 5}), call(2, 0x7FFF12345678), TIMEOUT.format(0)]
    facts = facts_of(*lines)
    assert {"0": 0, "1": 0, "2": 1, "3": 0} == {str(row.rank): row.garbage for row in facts.rows(OpCensus)}
    assert {} == states(facts, "opcount")


def test_communicators_are_not_compared_with_each_other() -> None:
    second = [
        init(rank, 2, "0x22").replace("0x55b", "0x66c").replace(f"rank {rank}", f"rank {rank - 2}") for rank in (2, 3)
    ]
    lines = [*map(init, range(4)), *second, *calls(dict.fromkeys(range(4), 12))]
    lines += [call(rank, op, "AllGather", "0x66c", 2) for rank in (2, 3) for op in range(3)]
    facts = facts_of(*lines, TIMEOUT.format(0))
    assert {} == states(facts, "opcount")
    assert 2 == len({row.comm for row in facts.rows(OpCensus)})


def test_sends_that_only_some_ranks_do_are_no_difference() -> None:
    both = calls({0: 5, 1: 5, 2: 5, 3: 5})
    lines = [
        *map(init, range(4)),
        *both,
        *(call(0, op, "Send") for op in range(6, 60)),
        call(0, 60),
        *(call(r, 6) for r in (1, 2, 3)),
    ]
    assert {} == states(facts_of(*lines, TIMEOUT.format(0)), "opcount")


def test_before_commid_ranks_of_one_size_are_compared_only_if_there_is_one_such_communicator() -> None:
    once = [init(rank).replace("commId 0xb9b42cb8fce289f2 ", "") for rank in range(4)]
    late = calls({0: 12, 1: 12, 2: 11, 3: 12})
    assert "behind" == states(facts_of(*once, *late, TIMEOUT.format(0)), "opcount")[2]
    twice = [line.replace("0x55b", "0x77d") for line in once]
    assert {} == states(facts_of(*once, *twice, *late, TIMEOUT.format(0)), "opcount")


@pytest.mark.parametrize(
    ("lines", "missing", "told"),
    [
        (
            (HEAD, "Missing ranks:", "1: [allreduce.0.bias, allreduce.0.weight ...]", "3: [allreduce.0.bias ...]"),
            {1, 3},
            1,
        ),
        ((HEAD, "Stalled ranks:", "2: [DistributedAdam_Allreduce/HorovodAllreduce_g_0]"), {2}, 1),
        ((HEAD + "Stalled ops: allreduce.0.bias [ready ranks: 0, 3]",), {1, 2}, 0),
        (
            (
                HEAD,
                "Stalled ops:HorovodBroadcast_dense_0 [missing ranks: 1, 2]",
                "HorovodBroadcast_dense_1 [missing ranks: 1]",
            ),
            {1, 2},
            1,
        ),
    ],
)
def test_stall_lists_of_all_wordings_name_the_missing_ranks(
    lines: tuple[str, ...], missing: set[int], told: int
) -> None:
    facts = facts_of(*(f"[1,0]<stderr>:{line}" for line in lines))
    rows = [row for row in facts.rows(HorovodStall) if row.state == "missing"]
    assert missing == {row.rank for row in rows}
    assert {told} == {row.told for row in rows}
    assert {1} == {row.report for row in rows}
    assert missing == {rank for rank, state in states(facts, "horovod").items() if state == "missing"}


def test_a_doomed_rank_and_the_number_of_its_report() -> None:
    first = [HEAD, "Missing ranks:", "1: [allreduce.0.bias ...]"]
    facts = facts_of(
        *first, HEAD.replace("60", "61"), "Missing ranks:", "1!: [allreduce.0.bias ...]", "2: [allreduce.0.weight ...]"
    )
    rows = {(row.rank, row.tensor): row for row in facts.rows(HorovodStall) if row.state == "missing"}
    assert (1, 1) == (rows[1, "allreduce.0.bias"].doomed, rows[1, "allreduce.0.bias"].report)
    assert (0, 2) == (rows[2, "allreduce.0.weight"].doomed, rows[2, "allreduce.0.weight"].report)


def test_ranks_that_came_late_in_horovod_hold_up_nothing() -> None:
    facts = facts_of(HEAD, "Missing ranks:", "1: [allreduce.0.bias ...]", "[1,0]<stdout>:step 40 loss 2.2862 7.014s")
    assert {} == states(facts, "horovod")


def test_two_sources_give_one_finding_with_the_others_under_it() -> None:
    waiting = [TIMEOUT.format(rank) for rank in (0, 1, 3)]
    report = report_of(*map(init, range(4)), *calls({0: 12, 1: 12, 2: 11, 3: 12}), *waiting)
    root = report.findings[0]
    assert ("hang-ranks", "2") == (root.name, root.ranks)
    assert "3 ranks wait" in root.message
    assert [root] == [finding for finding in report.findings if not finding.explained_by and finding.severity != "note"]
    assert {"missing-rank-in-collective", "opcount-behind", "unknown-collective-timeout"} <= set(names(report))


def test_sources_that_name_different_ranks_are_not_put_together() -> None:
    waiting = [TIMEOUT.format(rank) for rank in (0, 1, 2)]
    report = report_of(*map(init, range(4)), *calls({0: 12, 1: 12, 2: 11, 3: 12}), *waiting)
    assert "hang-ranks" not in names(report)


def test_what_nothing_is_known_of_is_said() -> None:
    steps = [f"[rank{rank}]: running step {12 if rank != 2 else 11}" for rank in range(6)]
    lines = [*(init(rank, 8) for rank in range(6)), *steps]
    report = report_of(
        *lines, *(call(rank, op, of=8) for rank in range(6) for op in range(12 if rank != 2 else 11)), TIMEOUT.format(0)
    )
    root = next(finding for finding in report.findings if finding.name == "hang-ranks")
    assert "2" == root.ranks
    assert root.message.endswith("5 ranks wait, of 2 nothing is known")


def test_a_ras_report_in_words_says_who_is_behind() -> None:
    facts = facts_of(
        "  15 ranks have launched up to operation 1218",
        "  Rank 5 has launched up to operation 1217 -- GPU 5 managed by process 20431 on node 10.1.0.5",
    )
    assert {5: "behind"} == states(facts, "ras")


def test_steps_that_ranks_print_count_where_ranks_wait() -> None:
    steps = [f"[rank{rank}]: running step {12 if rank not in (7, 9) else 11}" for rank in range(32)]
    assert {} == states(facts_of(*steps), "progress")
    late = {
        rank for rank, state in states(facts_of(*steps, TIMEOUT.format(0)), "progress").items() if state == "behind"
    }
    assert {7, 9} == late


@pytest.mark.parametrize(
    ("text", "clock", "zone"),
    [
        ("[Mon May  6 10:02:11 2024] NVRM: Xid", "local", None),
        ("May  6 10:02:11 node01 kernel: NVRM: Xid", "local", None),
        ("2024-05-06T10:02:11.000000+02:00 node01 kernel: NVRM", "local", 7200),
        ("2024-05-06T10:02:11Z node01 kernel: NVRM", "utc", 0),
        ("2024-05-06T10:02:11+00:00 node01 kernel: NVRM", "utc", 0),
        ("[rank3]:[E506 10:02:11.000000000 ProcessGroupNCCL.cpp:632] x", "local", None),
        ("W0506 10:02:11.000000 140 torch/distributed/run.py] x", "local", None),
        ("[2024-05-06 10:02:11] node01:12:13 [0] NCCL WARN x", "local", None),
        ("[2024-05-06 10:02:11.     0: W /src/horovod/common/stall_inspector.cc:107] x", "local", None),
        ("Root Cause (first observed failure):\n[0]:\n  time      : 2024-05-06_10:02:11\n", "local", None),
        ("2024/05/06 10:02:11.000, 0, NVIDIA H100, 98 %", "local", None),
    ],
)
def test_moments_of_lines(text: str, clock: str, zone: int | None) -> None:
    assert Moment(1714989731.0, clock, zone) == moment(text, 2024)
    assert "10:02:11" == Moment(1714989731.0, clock).words()


@pytest.mark.parametrize(
    "text",
    [
        "[12345.678901] NVRM: Xid",
        "no time here",
        "2024-13-45 10:02:11 x",
        "May  6 10:02:11 node01 kernel: x",
        "10:02:11 x",
    ],
)
def test_lines_without_a_date_have_no_moment(text: str) -> None:
    assert moment(text) is None


def test_the_year_of_a_text() -> None:
    assert (2024, None) == (year_of("[Mon May  6 10:02:11 2024] x"), year_of("[rank3]:[E506 10:02:11.0 x"))


def hosts_of(*names: str) -> list[str]:
    facts = Facts()
    ref = facts.evidence("log", 1, "x")
    facts.add(tables.Process(name, 1, None, None, 1, 1, 1, None, ref) for name in names)
    derive_all(facts)
    return sorted({host for (host,) in facts.query("SELECT host FROM process")})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("node01", "node01.cluster.example"), ["node01"]),
        (("node01.cluster.example", "node02.cluster.example"), ["node01.cluster.example", "node02.cluster.example"]),
        (
            ("node01", "node01.east.example", "node01.west.example"),
            ["node01", "node01.east.example", "node01.west.example"],
        ),
        (("10", "10.1.0.4", "10.1.0.5"), ["10", "10.1.0.4", "10.1.0.5"]),
    ],
)
def test_a_host_has_one_name(given: tuple[str, ...], expected: list[str]) -> None:
    assert expected == hosts_of(*given)


def test_bus_ids_as_nccl_prints_them() -> None:
    assert ["3b000", "3b000", "100000", None] == [
        bus_id(text) for text in ("0000:3b:00", "00000000:3B:00.0", "0001:00:00.0", "GPU-1111")
    ]
