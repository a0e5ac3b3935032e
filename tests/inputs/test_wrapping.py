"""Wrapped and split lines: what is taken for one, which rows are joined, where the lines were, and that nothing is lost."""

import io
import json
import textwrap
from pathlib import Path

import pytest
from helpers.scanning import life
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.inputs import exports, wrapping
from nccl_doctor.inputs.exports import partials
from tests.helpers.scaling import traced_lines

HOSTILE = (
    b" " * 200 + b"\n",
    ("x" * 100 + "\n").encode() * 2_000,
    b"node01:1:1 [0] NCCL INFO " * 40_000,
    ("0: " * 30 + "\n").encode() * 1_000,
    b"\xff" * 100 + b"\n" + b"\x00" * 100 + b"\n",
    b"[05/07/26 12:00:00] INFO     " * 5_000,
    b"2026-05-07T12:00:00.123456789Z stdout P " + b"a" * 100_000,
    b'{"log":"' + b"\\\\" * 100_000 + b'","stream":"stdout"}\n',
)


def _lines() -> list[str]:
    devices = " ".join(f"[{n}]mlx5_{n}:1/RoCE" for n in range(8))
    lines = [life(rank, 4) for rank in range(4)]
    lines += [
        f"node01:{100 + rank}:{150 + rank} [{rank}] NCCL INFO NET/IB : Using {devices} [RO]; OOB eth0:10.1.0.4<0>"
        for rank in range(4)
    ]
    lines.append(f"node01:100:150 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /opt/topologies/{'v' * 40}.xml")
    lines.append(
        "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered, which torch reports late"
    )
    return lines


def _read(data: bytes, kind: str) -> list[tuple[int, str]]:
    stream = exports.Exported(io.BytesIO(data), kind)
    texts = stream.read(1 << 30).decode("utf-8", "replace").split("\n")[:-1]
    return [(stream.source_line(number), text) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("words", [False, True])
def test_a_paste_of_80_columns_is_read_with_its_line_numbers(words: bool, end: str) -> None:
    rows: list[str] = []
    places = []
    for line in _lines():
        places.append(len(rows) + 1)
        rows += textwrap.wrap(line, 80) if words else [line[start : start + 80] for start in range(0, len(line), 80)]
    data = end.join([*rows, ""]).encode()
    assert "wrapped" == exports.recognise(data)
    assert list(zip(places, _lines(), strict=True)) == _read(data, "wrapped")
    facts = analyze.read_text(data.decode())
    assert [(32,)] == facts.query("SELECT count(*) FROM net_device")
    assert [("node01",)] == facts.query("SELECT name FROM host")
    ref = "SELECT DISTINCT e.line FROM net_device d JOIN evidence e ON e.id = d.ref WHERE d.pid = 101"
    assert [(places[5],)] == facts.query(ref)


def test_a_traceback_between_wrapped_lines_keeps_its_lines() -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "train.py", line 7, in main',
        "    run()",
        "RuntimeError: no space",
    ]
    lines = [*_lines(), *trace]
    rows = [row for line in lines for row in textwrap.wrap(line, 100, drop_whitespace=False) or [line]]
    assert trace == [text for _, text in _read("\n".join([*rows, ""]).encode(), "wrapped")][-4:]


def test_rows_of_other_writers_come_between_those_of_a_line() -> None:
    bodies = [line.partition("] ")[2] for line in _lines()[:-1]]
    lines = [[f"node01:{100 + rank}:{150 + rank} [{rank}] {body}" for rank in range(4)] for body in bodies]
    rows = [
        f"{rank}: {line[start : start + 80]}"
        for of_all in lines
        for start in range(0, max(map(len, of_all)), 80)
        for rank, line in enumerate(of_all)
        if line[start:]
    ]
    found = [text for _, text in _read("\n".join([*rows, ""]).encode(), "wrapped")]
    assert sorted(f"{rank}: {line}" for of_all in lines for rank, line in enumerate(of_all)) == sorted(found)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=100), max_size=30))
def test_nothing_is_lost_or_made_up(lines: list[str]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    assert "".join("".join(lines).split()) == "".join("".join(text for _, text in _read(data, "wrapped")).split())


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("kind", ["wrapped", "cri-parts", "docker-parts", "fork"])
def test_hostile_lines_end_in_text(data: bytes, kind: str) -> None:
    exports.recognise(data[: 1 << 16])
    stream = exports.Exported(io.BytesIO(data), kind)
    assert len(stream.read(1 << 30)) <= 2 * len(data) + 100


def test_parts_of_two_streams_are_joined_apart() -> None:
    rows = ["Z stdout P one ", "Z stderr P two ", "Z stdout F more", "Z stderr F else"]
    data = "".join(f"2026-05-07T12:00:00.00000000{row}\n" for row in rows).encode()
    assert "cri-parts" == partials.recognise(data)
    assert [1, 2] == [number for number, _ in _read(data, "cri-parts")]
    assert ["one more", "two else"] == [text[-8:] for _, text in _read(data, "cri-parts")]


@pytest.mark.parametrize("runtime", ["cri", "docker"])
def test_a_line_that_was_split_behind_the_head_is_joined(runtime: str, tmp_path: Path) -> None:
    """Bars of tqdm fill 16 KiB and tear the record behind them, long after the start of the file."""
    quiet = [f"step {number}: loss 2.3, all is well so far" for number in range(3_000)]
    bar = "\r".join(f"{number}%|####      | {number}/100" for number in range(500))
    parts = [
        f"{bar}\rnode01:101:140 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nra",
        "nks 1 cudaDev 0 nvmlDev 0 busId 3b000 - Init COMPLETE",
    ]
    if runtime == "cri":
        rows = [f"2026-05-07T12:00:00.123456789Z stdout F {text}" for text in quiet]
        rows += [f"2026-05-07T12:00:01.123456789Z stdout {mark} {part}" for mark, part in zip("PF", parts, strict=True)]
    else:
        texts = [*(f"{text}\n" for text in quiet), parts[0], f"{parts[1]}\n"]
        rows = [
            json.dumps({"log": text, "stream": "stdout", "time": "2026-05-07T12:00:00Z"}, separators=(",", ":"))
            for text in texts
        ]
    path = tmp_path / "job.log"
    path.write_text("\n".join([*rows, ""]), newline="")
    _, facts, problems = analyze.analyze([str(path)])
    assert [] == problems
    ((rank, phase, line),) = facts.query(
        "SELECT c.rank, c.phase, e.line FROM communicator c JOIN evidence e ON e.id = c.ref"
    )
    assert (0, "complete", len(quiet) + 1) == (rank, phase, line)


def test_a_copy_of_a_terminal_that_fills_its_rows() -> None:
    message = (
        "[Rank 6] Watchdog got stuck for 480 seconds without making progress. " + "It may be the lock of Python. " * 12
    )
    line = f"[rank6]:[E0429 13:55:49.384 ProcessGroupNCCL.cpp:1743] {message}"
    rows = [line[at : at + 90] for at in range(0, len(line), 90)]
    copied = "".join(f"{row:<90}\n" for row in rows)
    assert wrapping.recognise(copied.encode()) == wrapping.Wrap(90, words=False)
    assert "Watchdog got stuck for 480 seconds" in _read(copied.encode(), "wrapped")[0][1]


def test_a_line_that_a_terminal_filled_with_blanks_is_not_joined_with_what_follows() -> None:
    said = [
        f"NCCL_{name} set by environment to {name * 9}" for name in ("ALGO", "PROTO", "NET", "BUFFSIZE_OF_ALL_RANKS")
    ]
    rows = []
    for number, text in enumerate(said * 3):
        line = f"node01:{100 + number}:150 [0] NCCL INFO {text}"
        rows += [f"{line[at : at + 70]:<70}" for at in range(0, len(line), 70)]
        rows.append("wandb: Run data is saved locally")
    copied = "".join(f"{row}\n" for row in rows).encode()

    assert wrapping.recognise(copied) is not None
    read = [text for _, text in _read(copied, "wrapped")]
    assert 12 == read.count("wandb: Run data is saved locally")


def test_a_table_of_one_width_is_no_wrapped_log() -> None:
    head = f"{'2026-01-01T12:00:00.000Z gpu  util  power':<70}"
    rows = [head, *(f"|  {n}   |  {90 + n} %  |  {300 + n} W |".ljust(70) for n in range(9))]
    assert wrapping.recognise("\n".join([*rows, ""]).encode()) is None


def test_equal_widths_do_not_make_a_wrapped_log() -> None:
    rows = [f"node01:{100 + n}:150 [0] NCCL INFO {word:<60}"[:90] for n, word in enumerate(("one", "two", "three") * 9)]
    assert wrapping.recognise("\n".join([*rows, ""]).encode()) is None


@pytest.mark.parametrize("words", [False, True])
def test_four_times_the_lines_take_four_times_as_long(words: bool) -> None:
    """Python's lines are counted; no clock decides."""

    def cost(times: int) -> int:
        lines = [line.replace(":1/RoCE", f":{number % 7}/RoCE") for number in range(times) for line in _lines()]
        rows = [
            row
            for line in lines
            for row in (textwrap.wrap(line, 80) if words else [line[at : at + 80] for at in range(0, len(line), 80)])
        ]
        stream = io.BytesIO("\n".join([*rows, ""]).encode())
        with traced_lines("inputs/wrapping") as counted:
            assert len(lines) == sum(1 for _ in wrapping.rows(stream))
        return counted["line"]

    assert cost(80) < 4.5 * cost(20)
