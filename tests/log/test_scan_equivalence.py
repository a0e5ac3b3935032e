"""Reading gives the same facts whatever the way: block sizes, dense or sparse, with and without hyperscan, one process or several."""

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from helpers.examples import examples
from helpers.scanning import life, plain, read
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.common.text_keys import Numbers
from nccl_doctor.inputs.prefilter import Prefilter
from nccl_doctor.log import parallel, scanner
from nccl_doctor.log.groups import grouped_counts
from nccl_doctor.log.groups.line_groups import EDGE, BlockLines, GroupCounts
from nccl_doctor.log.ranks import rank_progress
from nccl_doctor.log.scanner import Scanner


@contextmanager
def no_hyperscan() -> Iterator[None]:
    with mock.patch.dict("sys.modules", {"hyperscan": None}):
        yield


# The same facts whatever the way


PIECES = [
    life(0, 8),
    life(1, 8),
    life(2, 8, "node02"),
    "node01:100:150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "node01:100:150 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "node01:101:151 [1] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA",
    "node01:101:151 [1] NCCL INFO Connected all rings",
    "node01:100:150 [0] NCCL INFO Using network IB",
    "[rank1]: node01:101:151 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.0.5<40000> with"
    " status=12 opcode=0 len=0 vendor err 129 (Send)",
    "node01:100:150 [0] NCCL WARN odd thing 17",
    "node01:100:150 [0] misc/socket.cc:58 NCCL WARN Connect to 10.1.0.5<4> failed : Connection refused",
    "node01:100:150 [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x7 recvbuff 0x8 count 4 datatype 7 op 0 root 0 comm 0x55"
    " [nranks=8] stream 0x6",
    "2026-05-07T12:00:01.5Z node01:100:150 [0] NCCL INFO Channel 03/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "RuntimeError: CUDA error: out of memory",
    "[rank0]: RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.21.5",
    "[ 12.5] NVRM: Xid (PCI:0000:1b:00): 79, pid=100, GPU has fallen off the bus.",
    "slurmstepd: error: *** STEP 1.0 ON node01 CANCELLED AT 2026-05-07T12:00:00 DUE TO TIME LIMIT ***",
    "srun: error: node01: task 3: Killed",
    "[rank0]: step 12 loss 2.31 lr 0.0001",
    "(Worker pid=100, ip=10.1.0.4) step 3 [repeated 3x across cluster]",
    " 12%|#3   | 12/100",
    "\x1b[32mnode01:100:150 [0] NCCL INFO Using network IB\x1b[0m",
    "│ node01:100:150 [0] NCCL INFO Using network IB │",
    " NCCL ",
    " NCCL INFO ",
    "[0] NCCL INFO",
    "x" * 130,
    "é\x00\u200b",
    "",
]
JOINTS = ["\n", "\n", "\n", "\n", "\n", "\r\n", "\r", "", " "]
LOGS = st.lists(st.tuples(st.sampled_from(PIECES), st.integers(0, 200), st.sampled_from(JOINTS)), max_size=60).map(
    lambda parts: "".join((piece[:cut] if cut < 40 else piece) + joint for piece, cut, joint in parts)
)


@examples(60)
@given(LOGS, st.integers(1, 3_000))
def test_any_block_gives_what_one_block_gives(text: str, block: int) -> None:
    data = text.encode()
    whole = plain(read(data, ahead=2_500))
    assert whole == plain(read(data, block=block, ahead=2_500))


@examples(60)
@given(LOGS)
def test_dense_and_sparse_logs_are_read_alike(text: str) -> None:
    data = text.encode()
    assert plain(read(data, dense=0)) == plain(read(data, dense=1 << 40))


TIMES = st.builds(
    "{}-{:02d}{}07{}12:00:{:02d}{}{}".format,
    st.sampled_from(["2026", "2026", "1999", "20x6"]),
    st.integers(4, 14),
    st.sampled_from("---/"),
    st.sampled_from("TTT _-"),
    st.integers(0, 61),
    st.sampled_from(["", ".5", ".51", ",123", ".123456789", ".1234567891", "."]),
    st.sampled_from(["Z ", "Z ", " ", "+02:00 ", ""]),
)
CHANNEL_LINES = st.builds(
    "{}{}NCCL INFO Channel {}{}{}{}{}".format,
    st.one_of(
        st.sampled_from(["", "", "", "0: ", "[1,3]<stdout>:", "{", "Channel 1 ", "Ch", "NCCL INFO "]),
        TIMES,
        st.builds("[pod/worker-1/main] {}".format, TIMES),
        st.builds("{}{}".format, TIMES, TIMES),
    ),
    st.sampled_from(["node01:100:150 [0] ", "node01:100:150 [0] ", "node02:7:8 [11]  ", "n:1:2 [0]", "1:2 ", ""]),
    st.sampled_from(["00", "01", "07/0", "63/1", "64", "99/0", "100", "100/0", "7", "0a", "/0", ""]),
    st.sampled_from([" : ", " : ", " : ", ": ", " :", ""]),
    st.sampled_from(
        [
            "0[0] -> 1[1]",
            "0[1b000] -> 12[1c000] [send]",
            "0[0] -> 1[1]\r",
            "1[1] -> é0[0]",
            "0",
            "Ch -> 1[1]",
            "12 -> 3",
            "07[0] -> 1[1]",
            "7[0] -> 01[1]",
            "1234567890[0] -> 1[1]",
            "7[x] -> 1[1]",
            "7[0] ->1[1]",
            "7[0] ->x1",
        ]
    ),
    st.sampled_from(
        [" via P2P/CUMEM/read", " via P2P/IPC", " via NET/IB/0/GDRDMA", " via NET/IB/0(3)/GDRDMA/Shared", " via", ""]
    ),
    st.sampled_from(["", "", "", "\r", " ", "[0m", " 12% Ch", "node01:100:150 [0] NCCL INFO Using network IB"]),
)


@contextmanager
def line_by_line() -> Iterator[None]:
    """Nothing is counted by numpy, as in small logs."""
    with mock.patch.object(scanner, "LARGE", 1 << 40):
        yield


@examples(200)
@given(
    st.lists(st.one_of(CHANNEL_LINES, st.sampled_from(PIECES)), max_size=40),
    st.lists(st.integers(0, 39)),
    st.integers(1, 4_000),
)
def test_lines_counted_together_give_what_single_ones_give(lines: list[str], again: list[int], block: int) -> None:
    data = "\n".join([*lines, *(lines[n % len(lines)] for n in again if lines)]).encode("utf-8", "surrogatepass")
    with mock.patch.object(scanner, "LARGE", 0), mock.patch.object(grouped_counts, "MAX_GROUPS", len(again)):
        together = plain(read(data, block=block, dense=1 << 40))
    with line_by_line():
        assert plain(read(data, block=block, dense=1 << 40)) == together


TIMED_LINES = st.builds(
    "{}{}{} [0] NCCL INFO {}".format,
    st.one_of(TIMES, st.just("")),
    st.sampled_from(["", "[pod/worker-1/main] ", "2026-05-07 11:00:59,5 "]),
    st.sampled_from(["node01:100:150", "node02:7:8"]),
    st.sampled_from(
        ["Channel 05/0 : 0[0] -> 1[1] via P2P/IPC", "Channel 06/0 : 0[0] -> 1[1] via P2P/IPC", "Connected all rings"]
    ),
)


@examples(200)
@given(st.lists(TIMED_LINES, max_size=60), st.integers(1, 8_000))
def test_lines_counted_together_keep_their_times(lines: list[str], block: int) -> None:
    data = "\n".join([*lines, "end"]).encode()
    with mock.patch.object(scanner, "LARGE", 0):
        together = plain(read(data, block=block, dense=1 << 40))
    with line_by_line():
        assert plain(read(data, block=block, dense=1 << 40)) == together


def test_lines_that_differ_in_their_time_are_one_group() -> None:
    lines = [
        b"2026-05-07T12:00:%02d.%dZ [pod/w] 2026-05-07 12:00:%02d node01:100:150 [0] NCCL INFO Connected all rings\n"
        % (second, second * 7, second)
        for second in range(20, 40)
    ]
    block = b"".join([b"begin\n", *lines, b"end\n"])
    assert [20] == BlockLines(block, len(block)).groups.n.tolist()


def test_lines_that_differ_in_their_channel_are_one_group() -> None:
    head, edge = b"node01:100:150 [0] NCCL INFO ", b" : 0[0] -> 1[1] via P2P/CUMEM/read\n"
    lines = [head + b"Channel %02d/0" % channel + edge for channel in (5, 0, 63)]
    block = b"".join([b"begin\n", *lines, head + b"Connected all rings\n", b"end\n"])
    found = BlockLines(block + head, len(block))
    asked: list[Any] = []

    def targets(new: Numbers) -> tuple[Numbers, Numbers]:
        first = found.first_lines(new)
        levels, texts = found.messages(first)
        asked.extend(zip(levels, texts.split("\n"), strict=True))
        is_edge = first.kind == EDGE
        return np.where(is_edge, 7, np.iinfo(np.int64).min), np.full(len(new), 3)

    tally = GroupCounts()
    for offset in (10, 20):
        known = tally.add(found.groups, offset, targets)
        assert [0, 4, 5] == found.others(known).tolist()
    assert b"begin\n" + head + b"Connected all rings\nend\n" == found.joined(found.others(known))
    assert [("INFO", "0[0] -> 1[1] via P2P/CUMEM/read"), *[("INFO", "Connected all rings")] * 2] == asked
    assert [[7], [3], [1 | 1 << 5 | 1 << 63], [6], [11], [23], [0], [0]] == [one.tolist() for one in tally.columns()]


@examples(100)
@given(st.text("NC\n\rab", max_size=60))
def test_lines_are_found(text: str) -> None:
    found = BlockLines(text.encode() + b"NC\nNC", len(text.encode()))
    assert text.removesuffix("\n").split("\n") == found.joined(np.arange(len(found.stops))).decode().split("\n")[:-1]


@examples(30)
@given(LOGS)
def test_nothing_changes_without_hyperscan(text: str) -> None:
    data = text.encode()
    expected = plain(read(data))
    with no_hyperscan():
        assert expected == plain(read(data))


@examples(30)
@given(LOGS)
def test_numpy_counts_the_same_lines(text: str) -> None:
    data = text.encode()
    expected = plain(read(data))
    with mock.patch.object(scanner, "MANY_BYTES", 0):
        assert expected == plain(read(data))


@examples(40)
@given(LOGS, st.integers(1, 300), st.integers(1, 3_000), st.integers(1, 8))
def test_the_end_of_a_log_is_kept_whatever_is_read_at_once(text: str, block: int, size: int, parts: int) -> None:
    data = text.encode()
    with (
        mock.patch.object(scanner, "BLOCK", block),
        mock.patch.object(parallel, "PARTS", parts),
        mock.patch.object(rank_progress, "TAIL", size),
    ):
        _, end = parallel.scan(io.BytesIO(data))
        expected = rank_progress.collect(data)
    found, wanted = ({key: (one.n, one.last, one.text) for key, one in of.seen.items()} for of in (end, expected))
    assert (wanted, expected.lines) == (found, end.lines)


def test_lines_of_nccl_say_nothing_of_progress() -> None:
    steps = "".join(
        f"[rank{rank}]: step {number}\nnode01:1:2 [0] NCCL INFO step 7\n" for number in range(9) for rank in (0, 1)
    )
    assert [9, 9] == [one.n for one in rank_progress.collect(steps.encode()).seen.values()]
    assert [33, 35] == [one.last for one in rank_progress.collect(steps.encode()).seen.values()]


@examples(40)
@given(LOGS)
def test_no_text_makes_reading_fail(text: str) -> None:
    facts = analyze.read_text(text)
    assert 1 == len(facts.query("SELECT * FROM job"))


@examples(40)
@given(st.text(max_size=300))
def test_no_characters_make_reading_fail(text: str) -> None:
    facts = analyze.read_text(f"node01:1:2 [0] NCCL WARN {text}\n{text} NCCL INFO {text}\n{text}")
    assert 1 == len(facts.query("SELECT * FROM job"))


@examples(30)
@given(LOGS, st.floats(0, 1))
def test_stretches_merge_to_the_whole(text: str, share: float) -> None:
    data = text.encode()
    cut = data.rfind(b"\n", 0, int(len(data) * share)) + 1
    stream = io.BytesIO(data)
    first = Scanner().read(stream, cut)
    stream.seek(cut)
    first.merge(pickle.loads(pickle.dumps(Scanner().read(stream).packed())))
    assert plain(read(data)) == plain(first)


def _facts(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    facts, problems = analyze.read_facts([str(path)])
    assert [] == problems
    return {name: sorted(facts.query(f"SELECT * FROM {name}"), key=str) for name in facts.counts()}


def test_several_processes_give_the_facts_of_one(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "\n".join(PIECES[n * 7 % len(PIECES)].replace("node01", f"node{n % 9:02d}") for n in range(3_000)) + "\n"
    )
    one = _facts(path)
    with mock.patch.object(parallel, "PARALLEL", 1_000), mock.patch.object(parallel, "processors", return_value=3):
        two = _facts(path)
    for name in one:
        if name != "evidence":
            assert one[name] == two[name], name


def test_a_last_line_without_an_end_is_one_for_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("\n".join([*PIECES[:3], "x" * 9_000]))
    one = parallel.scan_file(path)[0]
    with mock.patch.object(parallel, "PARALLEL", 1_000), mock.patch.object(parallel, "processors", return_value=3):
        two = parallel.scan_file(path)[0]
    assert (one.lines, one.bytes) == (two.lines, two.bytes)


def test_the_gate_tells_marks_from_places() -> None:
    for context in (no_hyperscan(), mock.patch.dict("sys.modules", {})):
        with context:
            places, marks = Prefilter([b"Xid", b"Xi"], [b"head,er", b"none"]).scan(b"a Xid b head,er Xid head,er")
        assert [(3, 0), (4, 1), (17, 0), (18, 1)] == places
        assert {b"head,er"} == marks


def test_a_folder_of_many_logs_read_by_several_processes_gives_the_facts_of_one(tmp_path: Path) -> None:
    for number in range(40):
        lines = [PIECES[(n + number) % len(PIECES)].replace("node01", f"node{number:02d}") for n in range(40)]
        (tmp_path / f"nccl.node{number:02d}.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "gpu.csv").write_text("timestamp, index, utilization.gpu [%]\n2026/05/07 12:00:00.000, 0, 97 %\n")
    one = _facts(tmp_path)
    with (
        mock.patch.object(parallel, "PARALLEL", 10_000),
        mock.patch.object(parallel, "GROUP", 5_000),
        mock.patch.object(parallel, "processors", return_value=3),
    ):
        several = _facts(tmp_path)
    assert one["process"]
    assert one == several
