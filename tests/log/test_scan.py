"""Reading logs of any shape: torn, glued, wrapped, folded, interleaved; the same facts whatever the block or the way."""

import json
from unittest import mock

import pytest
from helpers.scaling import traced_lines
from helpers.scanning import edges, life, plain, read

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.inputs import prefixes
from nccl_doctor.log import scanner
from nccl_doctor.log.counts import LogCounts


def texts(part: LogCounts) -> list[tuple[str, str]]:
    return [(key.level, key.body) for key in part.events]


def hosts(facts: Facts) -> list[str]:
    return [name for (name,) in facts.query("SELECT name FROM host ORDER BY name")]


# Torn and glued records


def test_two_writers_on_one_line_are_two_records() -> None:
    part = read(f"{life(0, 2)}{life(1, 2)}\n".encode())
    assert 2 == part.nccl_lines == part.understood
    assert [100, 101] == [head.pid for head in part.headers]


def test_a_record_behind_an_address_leaves_the_address_to_the_first() -> None:
    warning = "node01:100:150 [0] include/socket.h:197 NCCL WARN Net : No interface found in the same subnet as 10.1.0.5<27030>"
    part = read(f"{warning}node01:100:150 [0] NCCL INFO init.cc:970 -> 2\n".encode())
    assert ["node01"] == [*{head.host for head in part.headers}]
    assert any(body.endswith("10.1.0.5<27030>") for _, body in texts(part))


def test_many_records_on_one_line_are_as_many_records() -> None:
    line = "".join(life(rank, 5) for rank in range(5))
    assert 5 == read(line.encode()).nccl_lines


def test_a_record_behind_prose_that_names_nccl_is_found() -> None:
    part = read(f"the NCCL team says hello {life(1, 2)}\n".encode())
    assert 1 == part.nccl_lines
    assert 101 == part.headers[0].pid


def test_a_record_in_the_middle_of_python_output_keeps_its_host() -> None:
    facts = analyze.read_text(f"{life(0, 2)}\nloss 2.31 step{life(1, 2)}\n{life(1, 2, tail=' ')}\n")
    assert ["node01"] == hosts(facts)
    assert [0, 1] == [rank for (rank,) in facts.query("SELECT rank FROM rank ORDER BY rank")]


def test_a_cell_of_a_results_table_before_a_head_is_no_part_of_the_host() -> None:
    cells = "    1048576        262144     float     sum      -1"
    facts = analyze.read_text(f"{life(0, 2)}\n{life(1, 2)}\n{cells}{life(1, 2)}\n")
    assert ["node01"] == hosts(facts)


def test_a_channel_line_with_a_second_record_behind_it_is_both() -> None:
    channel = "node01:100:150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
    part = read(f"{channel}\n{channel}{life(1, 2)}\n{channel.replace('00/0', '01/0')}\n".encode())
    assert (4, 4) == (part.nccl_lines, part.understood)
    assert [("0[0] -> 1[1] via P2P/IPC", 0b11)] == [edge[1:3] for edge in edges(part)]


def test_a_process_that_begins_with_channel_lines_has_its_first_and_last_line() -> None:
    lines = [f"node01:100:150 [0] NCCL INFO {text}" for text in ("Connected all rings", "Connected all rings")]
    channel = "node01:200:250 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC"
    lines += [channel, channel.replace("00/0", "01/0"), "node01:200:250 [1] NCCL INFO Connected all rings"]
    part = read("\n".join([*lines, *["node01:200:250 [1] NCCL INFO Connected all rings"] * 3]).encode())
    assert {100: (2, 1, 2), 200: (6, 3, 8)} == {
        head.pid: (span.n, span.first, span.last) for head, span in zip(part.headers, part.spans, strict=True)
    }


def test_a_torn_channel_line_is_no_edge() -> None:
    part = read(b"node01:100:150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via\n")
    assert [] == edges(part)


@pytest.mark.parametrize("columns", [79, 119])
def test_lines_wrapped_at_the_width_of_a_terminal_are_put_together(columns: int) -> None:
    whole = life(3, 16) + "\nnode01:103:153 [3] NCCL INFO Using network IB"
    wrapped = "\n".join(
        line[start : start + columns] for line in whole.split("\n") for start in range(0, len(line), columns)
    )
    part = read(wrapped.encode())
    assert 2 == part.nccl_lines == part.understood


def test_lines_of_one_length_are_not_joined() -> None:
    lines = [
        f"node01:10{rank}:15{rank} [{rank}] NCCL INFO Connected all rings, use ring PXN 0 GDR {n}"
        for rank in range(4)
        for n in (0, 1)
    ]
    text = "".join(f"{line}\n" for line in lines)
    assert 8 == read(text.encode()).nccl_lines
    assert 8 == read(text.replace("\n", "\nepoch 3 is done\n").encode()).nccl_lines


ROOT = """Root Cause (first observed failure):
[0]:
  time      : 2026-05-07_12:00:00
  host      : node02
  rank      : 9 (local_rank: 1)
  exitcode  : -9 (pid: 4242)
"""


def test_lines_of_other_writers_between_those_of_a_record_are_passed_over() -> None:
    rows = ROOT.splitlines()
    mixed = "".join(f"[1,{0}]<stdout>:{row}\n[1,1]<stdout>:step {n} of rank 1\n" for n, row in enumerate(rows))
    ends = analyze.read_text(mixed).query("SELECT host, rank, exitcode FROM process_end WHERE rank IS NOT NULL")
    assert ("node02", 9, -9) in ends
    assert ends == analyze.read_text(ROOT).query("SELECT host, rank, exitcode FROM process_end WHERE rank IS NOT NULL")


def test_a_record_of_several_lines_counts_once_though_its_words_come_twice() -> None:
    text = (
        "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
        "     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)\n"
        "     Active: failed (Result: exit-code) since Tue 2026-05-05 12:00:00 UTC; 2 days ago\n"
    )
    assert [1] == [event.n for event in read(text.encode()).events.values()]
    assert 2 == sum(event.n for event in read((text + text).encode()).events.values())


def test_equal_errors_of_many_ranks_are_one_message_whatever_follows_them() -> None:
    line = "[rank{0}]: RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.21.5\n"
    part = read("".join(line.format(rank) + f"step {rank}\n" for rank in range(4)).encode())
    assert 1 == len({key.body for key in part.events if "NCCL error in" in key.body})


def test_what_a_killed_rank_had_not_flushed_is_no_fact() -> None:
    facts = analyze.read_text(f"{life(0, 2)}\nnode01:101:151 [1] NCCL INFO ncclCommInitRank comm 0x55 ra")
    assert [(0,)] == facts.query("SELECT rank FROM communicator")
    for cut in range(1, len(life(1, 2))):
        analyze.read_text(f"{life(0, 2)}\n{life(1, 2)[:cut]}")


@pytest.mark.parametrize(
    ("ring", "cut"),
    [
        (" ".join(f"{rank:3}" for rank in range(20)), 1),
        (" ".join(f"{rank}" for rank in range(20)) + " ...", 1),
        (" ".join(f"{rank:3}" for rank in range(16)), 0),
    ],
)
def test_a_ring_of_which_only_the_first_ranks_are_printed_is_known_to_be_cut(ring: str, cut: int) -> None:
    facts = analyze.read_text(f"node01:100:150 [0] NCCL INFO Channel 00/02 : {ring}\n")
    assert [(cut,)] == facts.query("SELECT cut FROM ring")


# Line ends, bars and bytes


def test_a_progress_bar_before_a_record_is_wiped() -> None:
    facts = analyze.read_text(f"\r 10%|#| 1/9\r 20%|##| 2/9\r{life(0, 1)}\n")
    assert ["node01"] == hosts(facts)


def test_a_progress_bar_alone_is_one_line_without_facts() -> None:
    part = read(b"".join(b"\r%3d%%|####| %d/100 [00:01<00:09]" % (n, n) for n in range(100)) + b"\n")
    assert (1, 0, 0) == (part.lines, part.nccl_lines, len(part.events))


def test_a_record_on_each_side_of_a_carriage_return_counts() -> None:
    part = read(f"{life(0, 2)}\r{life(1, 2)}\n".encode())
    assert 2 == part.nccl_lines


@pytest.mark.parametrize("dense", [0, 1 << 30])
def test_windows_line_ends_change_nothing(dense: int) -> None:
    text = "\n".join(life(rank, 4) for rank in range(4)) + "\nsrun: error: node01: task 3: Killed\n"
    unix, windows = (plain(read(data.encode(), dense=dense)) for data in (text, text.replace("\n", "\r\n")))
    for key in ("spans", "events", "edges", "unknown"):
        assert unix[key] == windows[key]


def test_bytes_that_are_no_text_disturb_only_themselves() -> None:
    data = (
        b"\xff\xfe\x00\x80 loss\n" + life(0, 1).encode() + b"\n\x00\x00node01:1:2 [0] NCCL INFO Using network IB\n\xc3"
    )
    part = read(data)
    assert (2, 2) == (part.nccl_lines, part.understood)


def test_a_line_without_end_is_read_in_pieces() -> None:
    with mock.patch.object(scanner, "LONGEST", 4_000):
        part = read(b"x" * 50_000 + b"\n" + life(0, 1).encode(), block=1_000, ahead=100)
    assert 1 == part.nccl_lines


GLUED = {
    "records": b"node01:101:140 [0] NCCL WARN Call to connect failed : %d ",
    "records behind bars": b"node01:101:140 [0] NCCL WARN Call to connect failed : %d\r",
    "prose about NCCL": b"see NCCL 2.%d and NCCL INFO of it ",
    "errors of others": b"RuntimeError: CUDA error: out of memory, %d times\r",
    "letters": b"x%d" + b"x" * 60,
}


@pytest.mark.parametrize("shape", GLUED)
def test_a_file_without_a_line_end_takes_as_long_as_it_is(shape: str) -> None:
    """Glued records once took 8 s for a megabyte, and 300 MB without a line end 200 s. Counts lines of Python, not seconds."""
    ran = []
    for count in (250, 500, 2000):  # the first one fills caches
        data = b"".join(GLUED[shape] % number for number in range(count))
        with traced_lines("/nccl_doctor/") as lines:
            part = read(data)
        ran.append(lines["line"])
    if shape.startswith("records"):
        assert count == part.nccl_lines
    assert ran[2] < 6 * ran[1] + 5_000


def test_an_empty_log_holds_nothing() -> None:
    part = read(b"")
    assert (0, 0, 0) == (part.lines, part.bytes, part.nccl_lines)


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_line_counts_with_and_without_its_end(end: str) -> None:
    part = read(f"{life(0, 2)}\n{life(1, 2)}{end}".encode())
    assert (2, 2) == (part.lines, part.nccl_lines)


@pytest.mark.parametrize("mark", ["> ", "│ ", "║ ", "**", ">> "])
def test_quote_marks_and_frames_are_no_part_of_the_host(mark: str) -> None:
    facts = analyze.read_text("".join(f"{mark}{life(rank, 2)}\n" for rank in range(2)))
    assert ["node01"] == hosts(facts)


# Heads


@pytest.mark.parametrize("host", ["1234567", "gpu-a-01", "10.1.0.4", "node01.example.org", "a--b", "localhost", "0"])
def test_any_host_name_is_taken_as_it_is(host: str) -> None:
    facts = analyze.read_text("".join(f"{life(rank, 2, host)}\n" for rank in range(2)))
    assert [host] == hosts(facts)


def test_a_device_index_that_is_garbage_does_not_decide_the_rank() -> None:
    text = f"{life(0, 2)}\n{life(1, 2)}\nnode01:101:151 [-1291845632] misc/socket.cc:484 NCCL WARN Connect to 10.1.0.5<4> failed\n"
    facts = analyze.read_text(text)
    assert [(1,)] == facts.query("SELECT DISTINCT rank FROM message WHERE level = 'WARN'")


def test_lines_that_lost_their_head_are_still_read() -> None:
    part = read(
        b"[0] NCCL INFO Using network Socket\n NCCL WARN Call to ibv_create_qp failed\nx NCCL WARN Connect to 10.1.0.4<5> failed\n"
    )
    assert 3 == part.nccl_lines


@pytest.mark.parametrize(
    ("line", "host", "pid", "rank", "source"),
    [
        ("NCCL WARN Connect to 10.1.0.5<4> failed : Connection refused", None, None, None, None),
        ("[rank1]: NCCL WARN odd thing", None, None, 1, None),
        ("[1,3]<stdout>:NCCL WARN odd thing", None, None, 3, None),
        ("::16674:17023 [0] NCCL WARN odd thing", None, 16674, None, None),
        (":16674:17023 [0] init.cc:12 NCCL WARN odd thing", None, 16674, None, "init.cc"),
        ("transport/nvls.cc:165 NCCL WARN Cuda failure 1 'invalid argument'", None, None, None, "transport/nvls.cc"),
        ("[0] misc/socket.cc:71 NCCL WARN odd thing", None, None, None, "misc/socket.cc"),
        ("misc/ibvwrap.c:71 (wrap_ibv_open) NCCL WARN odd thing", None, None, None, "misc/ibvwrap.c"),
        ("_ibvwrap.cc: NCCL WARN odd thing", None, None, None, "ibvwrap.cc"),
        ("node01:XXXXXX [5] init.cc:262 NCCL WARN odd thing", "node01", None, None, "init.cc"),
        ("node01:xx:xx [5] NCCL WARN odd thing", "node01", None, None, None),
        ("node01:101 NCCL DIAG odd thing", "node01", 101, None, None),
        ("node01:101:140 NCCL DIAG odd thing", "node01", 101, None, None),
        ("step 3 loss 2.1[1,2]<stdout>:node01:101:140 [0] NCCL WARN odd thing", "node01", 101, 2, None),
        ("[1,0]<stdout>:step 3[1,2]<stderr>:node01:101:140 [0] NCCL WARN odd thing", "node01", 101, 2, None),
        ("step 3[prterun-node01-77@1,2]<stdout>: [0] NCCL WARN odd thing", None, None, 2, None),
    ],
)
def test_what_remains_of_a_head_is_read(
    line: str, host: str | None, pid: int | None, rank: int | None, source: str | None
) -> None:
    (head,) = read(f"{line}\n".encode()).headers
    assert (host, pid, rank, source) == (head.host, head.pid, head.label.rank, head.source)


def test_a_chunk_of_another_rank_glued_behind_a_record_keeps_its_label() -> None:
    line = "[1,0]<stdout>:node01:100:150 [0] NCCL INFO Using network IB[1,1]<stdout>:node01:101:151 [1] NCCL INFO Using network IB\n"
    part = read(line.encode())
    assert [(0, 100), (1, 101)] == [(head.label.rank, head.pid) for head in part.headers]
    assert (2, 2) == (part.nccl_lines, part.understood)


def test_two_source_lines_with_the_same_words_are_two_warnings() -> None:
    warn = "node01:100:150 [0] enqueue.cc:{} NCCL WARN Cuda failure 'named symbol not found'\n"
    facts = analyze.read_text(warn.format(58) + warn.format(47) + warn.format(58))
    shown = facts.query("SELECT m.n, m.source, e.text FROM message m JOIN evidence e ON e.id = m.ref ORDER BY m.ref")
    assert [(2, "enqueue.cc"), (1, "enqueue.cc")] == [row[:2] for row in shown]
    assert ["enqueue.cc:58", "enqueue.cc:47"] == [row[2].split()[2] for row in shown]


def test_attention_lines_are_kept_like_warnings() -> None:
    line = "[2026-05-07 12:00:00] node01:101:140 [0] init.cc:2053 (ncclCommInit) NCCL {} odd thing {}"
    text = "".join(line.format(level, n) + "\n" for n, level in enumerate(["ATTN", "WARN", "ATTN"]))
    facts = analyze.read_text(text)
    assert [("ATTN", "odd thing 0"), ("WARN", "odd thing 1"), ("ATTN", "odd thing 2")] == facts.query(
        "SELECT level, text FROM message ORDER BY text"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[0]eth0:10.1.0.4<0> [1]ib0:10.2.0.4<0>", [("eth0", "10.1.0.4"), ("ib0", "10.2.0.4")]),
        ("[0]eth0:10.1.0.4&lt;0&gt;", [("eth0", "10.1.0.4")]),
        ("[0]eth0:10.1.0.4 [1]ib0:10.2.0.4", [("eth0", "10.1.0.4"), ("ib0", "10.2.0.4")]),
        ("[0]ib0.<ip>", [("ib0", "")]),
        ("[0]eth0.30:<IP address><0> [1]ib0:xx.xx.x.4<0>", [("eth0.30", ""), ("ib0", "xx.xx.x.4")]),
        ("[0]eth0:fe80::1:4%eth0", [("eth0", "fe80::1:4%eth0")]),
    ],
)
def test_interfaces_are_read_where_the_address_was_hidden(text: str, found: list[tuple[str, str]]) -> None:
    facts = analyze.read_text(f"node01:1:2 [0] NCCL INFO NET/Socket : Using {text}\n")
    assert found == facts.query("SELECT name, address FROM interface ORDER BY position, name")


def test_prose_about_nccl_is_no_record() -> None:
    assert (
        0
        == read(
            b'we use NCCL for this\nexport NCCL DEBUG\nThe NCCL INFOrmation\nPYNCCL INFO x\n"NCCL WARN x\n'
        ).nccl_lines
    )


@pytest.mark.parametrize("text", ["a -> b <c> & d", 'said "x"', "tab\tand \\u003e", "no end", "ü"])
def test_a_block_of_docker_records_is_opened_as_its_lines_are(text: str) -> None:
    record = {"log": f"{life(3, 8)} {text}\n", "stream": "stdout", "time": "2026-05-07T12:00:00.5Z"}
    escaped = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    for lines in (escaped, escaped.replace(">", "\\u003e").replace("<", "\\u003c").replace("&", "\\u0026")):
        opened = scanner._opened(f"{lines}\n".encode()).decode()
        assert prefixes.opened(opened.rstrip("\n")) == prefixes.opened(lines)
