"""Of runs that are as the others of their file fewer rows are kept, and nothing that is said of them changes."""

import io
import random
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from helpers.places import FIXTURES

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchRun
from nccl_doctor.formats.nccl import nccl_tests, nccl_tests_usual

TITLES = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
SIZES = [8 << at for at in range(28)]


def table(node: int, chance: random.Random, slow: dict[int, float], wrong: int = 0, finished: bool = True) -> str:
    """A run on a node and the next one; `slow` are factors of the time of sizes."""
    hosts = (f"node{node:03d}", f"node{(node + 7) % 90:03d}")
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1",
        *(
            f"#  Rank  {rank} Group  0 Pid   40{rank} on {host} device  {rank} [0x{rank}7] NVIDIA H100"
            for rank, host in enumerate(hosts)
        ),
        TITLES,
    ]
    for size in SIZES:
        cells = ""
        for _ in range(2):
            time = (20 + size / 50_000) * slow.get(size, 1.0) * chance.uniform(0.98, 1.02)
            cells += (
                f" {time:8.2f} {size / time / 1e3:7.2f} {size / time / 1e3:7.2f} {wrong if size == SIZES[3] else 0:6d}"
            )
        lines.append(f"{size:12d} {size // 4:12d}     float     sum      -1{cells}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.5"] * finished
    return "\n".join(lines) + "\n"


def facts_of(text: str, whole: int) -> Facts:
    facts = Facts()
    with mock.patch.object(nccl_tests_usual, "WHOLE", whole):
        nccl_tests.read_format(io.BytesIO(text.encode()), "job.log", facts)
    derive_all(facts)
    return facts


def test_what_is_derived_of_usual_runs_is_that_of_all_rows() -> None:
    chance = random.Random(1)
    odd: dict[int, dict[int, float]] = {
        40: {1 << 20: 2.0},
        50: dict.fromkeys(SIZES, 1.5),
        60: {1 << 30: 1.2},
        70: {64: 3.0},
    }
    text = "".join(table(number, chance, odd.get(number, {}), wrong=int(number == 80)) for number in range(90))
    fewer, all_of = facts_of(text, 20), facts_of(text, 1000)
    for name in ("bench_limit", "bench_host", "bench_link", "measure", "coverage", "bench_run"):
        assert [row[:-1] for row in fewer.query(f"SELECT * FROM {name}")] == [
            row[:-1] for row in all_of.query(f"SELECT * FROM {name}")
        ]
    assert {2 * len(SIZES)} == {run.rows for run in fewer.rows(BenchRun)}
    kept = Counter(run for (run,) in fewer.query("SELECT run FROM bench_row"))
    assert {*range(1, 21), 41, 51, 61, 81} == {run for run, rows in kept.items() if rows == 2 * len(SIZES)}
    assert max(rows for rows in kept.values() if rows < 2 * len(SIZES)) <= 14


def test_a_run_of_another_kind_and_one_without_its_end_are_kept_whole() -> None:
    chance = random.Random(2)
    texts = [table(number, chance, {}) for number in range(12)]
    texts[8] = texts[8].replace("float ", "half  ")
    texts.append(table(12, chance, {}, finished=False))
    kept = Counter(run for (run,) in facts_of("".join(texts), 5).query("SELECT run FROM bench_row"))
    assert {1, 2, 3, 4, 5, 9, 13} == {run for run, rows in kept.items() if rows == 2 * len(SIZES)}


_FACTS = ("bench_run", "bench_row", "bench_member", "bench_spread", "evidence")


def both_ways(content: bytes) -> list[list[list[tuple[object, ...]]]]:
    """The facts of rows that are taken at once, and of rows that are read one by one."""
    found = []
    for alone in (False, True):
        facts = Facts()
        with mock.patch.object(nccl_tests._Reader, "_table", return_value=None) if alone else mock.MagicMock():
            nccl_tests.read_format(io.BytesIO(content), "job.log", facts)
        found.append([facts.query(f"SELECT * FROM {name}") for name in _FACTS])
    return found


@pytest.mark.parametrize("path", sorted((FIXTURES / "nccl_tests").iterdir()), ids=lambda path: path.name)
def test_rows_taken_at_once_are_those_read_one_by_one(path: Path) -> None:
    together, alone = both_ways(path.read_bytes())
    assert together == alone


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("     float     sum      -1", "     float     sum       0"),
        ("      0\n", "    N/A\n"),
        (" 0.00 ", " 0,00 "),
        ("    1048576 ", "    1048576x"),
        ("    1048576       262144     float", "    1048576       262144      half"),
        ("\n", "\r\n"),
        ("\n     1048576", "\n\n     1048576"),
        ("\n     1048576", "\nnode01:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n     1048576"),
        ("     1048576", "0:   1048576"),
        ("  0\n     1048576", "\n  0\n     1048576"),
        ("float     sum      -1", "float    none      -1"),
        ("     2097152", "2e097152    "),
    ],
)
def test_odd_tables_give_the_same_both_ways(old: str, new: str) -> None:
    text = table(1, random.Random(3), {})
    changed = text.replace(old, new)
    assert changed != text
    together, alone = both_ways((changed + text).encode())
    assert together == alone
    assert together[1]
