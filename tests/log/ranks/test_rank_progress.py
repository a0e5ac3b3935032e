"""What the last part of a log says of the progress of ranks and hosts."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.log.ranks import rank_progress
from nccl_doctor.log.ranks.rank_map import RankMap

LINES = ("link of the first port is up", "its speed is full", "link of the second port is up", "both are good")


def rows_of(text: str) -> list[tuple[str, str, int]]:
    counted = rank_progress.collect(text.encode())
    found = rank_progress.rows(Facts(), "job.log", counted, text.count("\n"), RankMap([], []), None)
    return [(row.label, row.template, row.times) for row in found]


@pytest.mark.parametrize(("hosts", "kept"), [(64, 4), (65, 2)])
def test_of_many_hosts_the_first_and_the_last_line_are_kept(hosts: int, kept: int) -> None:
    """A capture of a cluster is a table of a few facts, not of all its lines."""
    text = "".join(f"node{host:04d}: {line}\n" for host in range(hosts) for line in LINES)
    rows = rows_of(text)
    assert hosts * kept == len(rows)
    assert {f"node{host:04d}" for host in range(hosts)} == {label for label, _, _ in rows}
    assert {LINES[0], LINES[-1]} <= {template for _, template, _ in rows}


def test_what_many_hosts_print_again_and_again_is_kept() -> None:
    text = "".join(
        f"node{host:04d}: {line}\n"
        for host in range(70)
        for line in (LINES[0], "step 1 of 9", "step 2 of 9", LINES[1], LINES[3])
    )
    assert {("step # of #", 2)} == {(template, times) for _, template, times in rows_of(text) if "step" in template}


def test_all_lines_of_ranks_are_kept() -> None:
    text = "".join(f"[rank{rank}]: {line}\n" for rank in range(100) for line in LINES)
    assert 100 == sum(template == LINES[1] for _, template, _ in rows_of(text))


@pytest.mark.parametrize("size", range(1, 90))
def test_a_line_that_the_part_cuts_names_nobody(size: int) -> None:
    """The end of `node0001: step 7` is a line of `e0001`."""
    text = "".join(f"node{host:04d}: step {host}\r\n" for host in range(9))
    with mock.patch.object(rank_progress, "TAIL", size):
        assert {f"node{host:04d}" for host in range(9)} >= {label for label, _, _ in rows_of(text)}


def test_what_a_progress_bar_drew_last_is_seen_where_the_part_cuts_its_line() -> None:
    text = "node01: step 1 of 9\r" * 9 + "node01: step 2 of 9\nnode01: done, all is well\n"
    with mock.patch.object(rank_progress, "TAIL", 100):
        assert {"step # of #", "done, all is well"} == {template for _, template, _ in rows_of(text)}


@pytest.mark.parametrize(
    "line",
    [
        "node0001: step 12 took 3.5 s",
        "2026-05-07T12:00:01.123456Z node0001: step 12 took 3.5 s",
        "[pod/train-worker-0/main] step 12 took 3.5 s",
        "[rank3]: step 12 took 3.5 s",
        "3: step 12 took 3.5 s",
    ],
)
def test_lines_of_a_writer_count_together(line: str) -> None:
    """Whether they are parsed or found by their bytes."""
    lines = [line.replace("12", f"{step}") for step in range(10, 30)]
    assert [20] == [times for label, _, times in rows_of("\n".join(lines) + "\n") if label]


@pytest.mark.parametrize(
    "line",
    [
        "master_process = rank == 0  # it logs",
        "        self, params, rank=0, world_size=1",
        "    def __init__(self, rank=0, world_size=1):",
    ],
)
def test_a_program_that_a_log_shows_is_no_rank(line: str) -> None:
    assert not [label for label, _, _ in rows_of(f"{line}\n{line}\n") if label]


TEXTS = st.sampled_from(
    (
        "link {n} is up", "GUID 0x{n}a2c90300001", "GPU {n}: {n}f3c1e02-8c1d-4c36-9f0e-5a1b2c3d4e5f",
        "rank {n} waits", "[rank{n}]: step {n}", "{n}",
        "12:0{n}:00 ok done", "mlx5_{n}: state: 4", "  indented {n} text", "caf\N{LATIN SMALL LETTER E WITH ACUTE} {n}",
    )
)  # fmt: skip
HOSTS = st.sampled_from(("node1: ", "node22: ", "gpu0: ", "gpu-3: ", "web01.example.org: ", "7: ", "", "n1 [rank 3] "))


@given(st.lists(st.tuples(HOSTS, st.builds(str.format, TEXTS, n=st.integers(0, 12))), max_size=40))
def test_lines_counted_by_their_host_count_as_others(lines: list[tuple[str, str]]) -> None:
    text = "".join(f"{host}{line}\n" for host, line in lines)
    found = rows_of(text)
    with mock.patch.object(rank_progress._Lines, "_remember_host"):
        assert rows_of(text) == found


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("Caused by:\n    0: cannot reach the store\n    1: nobody answers\n", 0),
        ("stack backtrace:\n   0: work::start\n   1: work::main\n", 0),
        ("  8: step 1 of 9\n  9: step 1 of 9\n 10: step 1 of 9\n100: step 1 of 9\n", 4),
        ("0: step 1 of 9\n1: step 1 of 9\n", 2),
        ("[rank0]: step 1 of 9\nCaused by:\n    0: nobody answers\n", 1),
        ("     0: step 1 of 9\n131071: step 1 of 9\n", 2),
    ],
)
def test_numbers_padded_wider_than_the_largest_are_no_tasks(text: str, ranks: int) -> None:
    """Rust numbers the frames of a stack and the causes of an error as srun its tasks, in columns of a fixed width."""
    progress = rank_progress.of_programs(text.encode(), rank_progress.collect(text.encode()))
    assert ranks == len({count.rank for count in progress.seen.values() if count.rank is not None})
