"""Whose line it is, and how often it was said."""

from io import BytesIO
from pathlib import Path
from unittest import mock

from helpers.scanning import edges, life, read

from nccl_doctor.app import analyze
from nccl_doctor.log import counts
from nccl_doctor.log.scanner import Scanner
from tests.helpers.same_report import differences

# Who is who


def test_threads_of_one_process_that_drive_a_gpu_each_are_ranks_of_their_own() -> None:
    lines = [life(rank, 4, pid=700, dev=rank).replace(":750 ", f":{750 + rank} ") for rank in range(4)]
    lines += [
        f"node01:700:{750 + rank} [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> 0[0] via P2P/IPC"
        for rank in (1, 2, 3)
    ]
    facts = analyze.read_text("\n".join(lines))
    assert [(1, 1), (2, 2), (3, 3)] == facts.query("SELECT rank, own FROM connection ORDER BY 1")


def test_one_thread_that_drives_all_gpus_is_told_apart_by_the_device() -> None:
    lines = [life(rank, 4, pid=700, dev=rank) for rank in range(4)]
    lines += [f"node01:700:750 [{rank}] misc/socket.cc:484 NCCL WARN odd thing {rank}" for rank in range(4)]
    facts = analyze.read_text("\n".join(lines))
    assert [(n, f"odd thing {n}") for n in range(4)] == facts.query("SELECT rank, text FROM message ORDER BY rank")


def test_the_largest_communicator_gives_the_rank() -> None:
    lines = []
    for rank in range(4):
        lines += [life(rank, 4), life(rank % 2, 2, pid=100 + rank, dev=rank)]
    facts = analyze.read_text("\n".join(lines))
    assert [(0,), (1,), (2,), (3,)] == facts.query("SELECT rank FROM rank ORDER BY rank")


def test_equal_host_names_on_two_nodes_stay_two_processes_by_pid() -> None:
    facts = analyze.read_text("\n".join(life(rank, 2, "localhost", dev=0) for rank in range(2)))
    assert [(100, 0), (101, 1)] == facts.query("SELECT pid, rank FROM process ORDER BY pid")


def test_a_file_for_each_rank_is_one_job(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        (folder / "nccl.log").write_text(life(rank, 4, f"node0{rank // 2}", dev=rank % 2) + "\n")
    report, facts, problems = analyze.analyze([str(tmp_path)])
    assert [] == problems
    assert (2, 4) == (report.job["hosts"], report.job["ranks"])
    assert 4 == len(facts.query("SELECT DISTINCT file FROM evidence"))


def test_the_clock_of_trace_lines_is_not_of_their_writer() -> None:
    lines = [f"node01:77:90 [0] {n}.{n:06d} init.cc:{20 + n % 2} NCCL TRACE step {n} of the plan" for n in range(40)]
    lines.insert(20, "node01:77:90 [0] 7.000123 init.cc:20 NCCL TRACE NCCL_IB_HCA set by envi")
    lines.insert(21, "ronment to mlx5_0")
    counts_ = Scanner(large=True).read(BytesIO("\n".join(lines).encode()))
    assert 41 == counts_.nccl_lines
    heads = {(head.host, head.pid, head.tid, head.dev, head.source, head.line) for head in counts_.headers}
    assert {("node01", 77, 90, 0, "init.cc", 20), ("node01", 77, 90, 0, "init.cc", 21)} == heads


def test_what_ray_folds_counts_as_often_as_it_says() -> None:
    ray = "(Worker pid=77, ip=10.1.0.4) "
    warn = "node01:77:90 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.1.0.5<40000> failed : Connection refused"
    folded = f"{ray}{warn}\n{ray}{warn} [repeated 14x across cluster]\n"
    facts = analyze.read_text(folded)
    assert [(15,)] == facts.query("SELECT sum(n) FROM message WHERE level = 'WARN'")


def test_time_stamps_in_front_do_not_make_new_writers() -> None:
    lines = [
        f"2026-05-07T12:00:{n:02d}.5Z node01:100:150 [0] NCCL INFO Channel {n:02d}/0 : 0[0] -> 1[1] via P2P/IPC"
        for n in range(20)
    ]
    part = read("\n".join(lines).encode())
    assert 1 == len(part.headers)
    assert (20, 1, 20) == (part.spans[0].n, part.spans[0].first, part.spans[0].last)
    assert [(1 << 20) - 1] == [mask for _, _, mask, *_ in edges(part)]
    assert part.spans[0].stamp is not None
    assert 19.5 == part.spans[0].stamp % 60


# What must not fill the memory


def test_collectives_are_counted_by_kind() -> None:
    line = (
        "node01:100:150 [0] NCCL INFO AllReduce: opCount {op:x} sendbuff 0x7f{op:04x} recvbuff 0x7e{op:04x} count {count}"
        " datatype 7 op 0 root 0 comm 0x55 [nranks=2] stream 0x66\n"
    )
    text = "".join(line.format(op=op, count=1024 * (1 + op % 2)) for op in range(300))
    assert 2 == len(read(text.encode()).events)
    facts = analyze.read_text(text)
    kinds = facts.query("SELECT elements, first_op, last_op, n FROM collective ORDER BY elements")
    assert [(1024, 0, 298, 150), (2048, 1, 299, 150)] == kinds
    (text,) = (
        place.text
        for place in facts.evidence_rows([facts.query("SELECT ref FROM collective WHERE elements = 2048")[0][0]])
    )
    assert "opCount 1 sendbuff 0x7f0001" in text


def test_a_flood_of_different_warnings_is_bounded_and_counted() -> None:
    line = "node01:{pid}:150 [0] NCCL WARN odd thing number {n}\n"
    data = "".join(line.format(pid=100 + n % 2, n=n) for n in range(1_000)).encode()
    with mock.patch.object(counts, "_MAX_OBJECTS", 100):
        part = read(data)
    assert 100 == len(part.events)
    assert 1_000 == sum(event.n for event in part.events.values())
    assert 1_000 == max(event.last for event in part.events.values())


def test_a_flood_that_is_counted_in_columns_is_bounded_and_counted() -> None:
    said = (
        "misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.1.0.{n}<{port}> failed : Connection refused\n"
    )
    line = "node01:{pid}:150 [0] " + said
    data = "".join(line.format(pid=100 + n % 3, n=n % 250, port=40_000 + n) for n in range(1_200)).encode()
    with mock.patch.multiple(counts, MAX_EVENTS=100, _MAX_READ=200):
        part = Scanner(large=True).read(BytesIO(data))
        part.finish()
    assert 106 >= len(part.columns)
    assert 1_200 == sum(part.columns.n) == part.understood
    assert 1_200 == max(part.columns.last)
    writers = {part.headers[number].pid for number in part.columns.header}
    assert {100, 101, 102} == writers


def test_a_flood_is_cut_alike_in_any_number_of_parts(tmp_path: Path) -> None:
    line = (
        "node{host:02d}:10{host}:150 [0] misc/socket.cc:484 NCCL WARN socketStartConnect:"
        " Connect to 10.1.{n}.5<{port}> failed : Connection refused\n"
    )
    log = tmp_path / "job.log"
    log.write_text("".join(line.format(host=n % 7, n=n % 250, port=40_000 + n) for n in range(1_500)))
    with mock.patch.multiple(counts, MAX_EVENTS=100, _MAX_READ=200, _MAX_OBJECTS=200):
        assert [] == differences([log])
