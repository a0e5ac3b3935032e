"""Logs in which each line is another writer, message or edge: what may be kept is kept, the rest is counted, and it is told."""

from io import BytesIO
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.common import budgets
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.groups import grouped_counts
from nccl_doctor.log.readers.kept_counts import dump, load_counts
from nccl_doctor.log.scanner import Scanner

MOST, LINES = 300, 15_000  # lines of a megabyte, so that three times as many are several blocks
FLOODS = {
    "writers": "node{n}:{n}:150 [0] NCCL INFO Using network IB\n",
    "texts": "node01:100:150 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_{n}\n",
    "edges": "node01:100:150 [0] NCCL INFO Channel 00/0 : {n}[0] -> {m}[1] via P2P/IPC\n",
}
LAST = "node01:100:150 [0] NCCL WARN Cuda failure 'out of memory'\n"


def flood(name: str) -> bytes:
    return ("".join(FLOODS[name].format(n=n, m=n + 1) for n in range(LINES)) + LAST).encode()


def kept(counts: LogCounts, name: str) -> int:
    counts.finish()
    return {"writers": len(counts.headers), "texts": len(counts.columns), "edges": len(counts.edges)}[name]


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("large", [False, True])
def test_further_ones_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch, name: str, large: bool) -> None:
    whole = Scanner(large=large).read(BytesIO(flood(name)))
    assert set() == whole.full
    assert LINES <= kept(whole, name)

    budgets.set_limit(name, MOST)
    monkeypatch.setattr(grouped_counts, "MAX_GROUPS", MOST)
    counts = Scanner(large=large).read(BytesIO(flood(name) * 3))
    assert {name} == counts.full
    assert 3 * (LINES + 1) == counts.nccl_lines == counts.understood
    assert (
        MOST <= kept(counts, name) <= (LINES if name == "edges" else MOST + 2)
    )  # those of a block are counted together
    assert any("out of memory" in message.body for message in counts.columns.messages)


@pytest.mark.parametrize("name", FLOODS)
def test_the_report_says_so_and_is_not_healthy(tmp_path: Path, name: str) -> None:
    (tmp_path / "job.log").write_bytes(flood(name).removesuffix(LAST.encode()))
    budgets.set_limit(name, MOST)
    report, _, problems = analyze.analyze([str(tmp_path / "job.log")])
    assert "nothing-found" == report.verdict
    assert [f"--limit {name}=3000" in problem for problem in problems] == [True]


def test_what_was_reached_is_kept_with_the_counts() -> None:
    budgets.set_limit("writers", MOST)
    packed = Scanner().read(BytesIO(flood("writers"))).packed()
    again = load_counts(dump(packed))
    assert {"writers"} == again.full
    assert set() == load_counts(dump(packed._replace(full={"bytes", "no such budget"}))).full
    counts = LogCounts()
    counts.merge(again)
    assert {"writers"} == counts.full
