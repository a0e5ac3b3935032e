"""Times of the parts of a step on each rank: Megatron-LM's timers, and lines of loops of people's own."""

import io
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import RankTime
from nccl_doctor.formats.training import rank_timers
from tests.helpers.examples import examples

FIXTURE = Path(__file__).parents[3] / "fixtures" / "records" / "rank_timers.log"
FORMS = (
    "rank {r}: data {a:.3f} fwd {b:.3f} bwd {c:.3f}",
    "[Rank {r}] step {s} | data: {a:.3f}s | forward: {b:.3f}s | backward: {c:.3f}s | optimizer: 0.020s",
    "node{r:02d}: rank={r} step={s} data_ms={A:.1f} fwd_ms={B:.1f} bwd_ms={C:.1f}",
    "(rank {r}) step {s} loss 2.311 data time: {a:.3f}s, forward time: {b:.3f}s, backward time: {c:.3f}s",
)


def read(text: str) -> list[RankTime]:
    facts = Facts()
    rank_timers.read_format(io.BytesIO(text.encode()), "train.log", facts)
    return facts.rows(RankTime)


def log(form: str, slow: int | None = 2, ranks: int = 4) -> str:
    lines = []
    for s in range(12):
        for r in range(ranks):
            a, b, c = 0.101, 0.3 * (1.8 if r == slow else 1), 0.502
            lines.append(form.format(s=s, r=r, a=a, b=b, c=c, A=1000 * a, B=1000 * b, C=1000 * c) + "\n")
    return "".join(lines)


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_each_rank(form: str) -> None:
    rows = read(log(form))
    of_rank = {row.name: row.seconds for row in rows if row.rank == 2}
    assert [0.101, 0.54, 0.502] == [pytest.approx(of_rank[name]) for name in list(of_rank)[:3]]
    assert {12} == {row.n for row in rows}
    assert {0, 1, 2, 3} == {row.rank for row in rows}
    assert ("node02" if "node" in form else None) == next(row.host for row in rows if row.rank == 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("slow", "ranks"), [(2, ["2"]), (None, [])])
def test_the_slow_rank_is_named(tmp_path: Path, form: str, slow: int | None, ranks: list[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(log(form, slow))
    findings = [one for one in analyze.analyze([str(path)])[0].findings if one.severity != "note"]
    assert [("rank-part-slower", rank) for rank in ranks] == [(one.name, one.ranks) for one in findings]


def test_timers_of_megatron_name_the_slow_rank() -> None:
    report, facts, _ = analyze.analyze([str(FIXTURE)])
    assert {("forward-compute", 8), ("backward-compute", 8), ("batch-generator", 8), ("optimizer", 8)} == {
        (row.name, row.n) for row in facts.rows(RankTime)
    }
    (finding,) = report.findings
    assert ("rank-part-slower", "5") == (finding.name, finding.ranks)
    assert "(1.7 times as long)" in finding.message
    shown = FIXTURE.read_text().split("\n")[finding.evidence[0].line - 1]
    assert finding.evidence[0].text.endswith(shown.strip())


def test_the_fastest_and_the_slowest_rank() -> None:
    text = (
        "(min, max) time across ranks (ms):\n    forward-compute ................................: (1010.10, 1890.20)\n"
    )
    (row,) = read(5 * text)
    assert (None, "forward-compute", 5) == (row.rank, row.name, row.n)
    assert (1.0101, 1.8902) == pytest.approx((row.least or 0, row.seconds))


@pytest.mark.parametrize(
    "text",
    [
        "rank 3: loss 0.3 acc 0.5\n",
        "forward 0.3 backward 0.5\n",
        "rank 3 in forward(self, x) line 42\n",
        "     rank  3: 12.5\n  forward-compute:\n",
        "NCCL INFO comm 0x7f rank 3 nranks 8 fwd 0.5\n",
    ],
)
def test_other_lines_tell_no_parts(text: str) -> None:
    assert [] == read(9 * text)


@examples(200)
@given(
    st.lists(
        st.sampled_from(
            [
                *log(FORMS[1]).split("\n")[:2],
                *FIXTURE.read_text().split("\n")[:12],
                "(min, max) time across ranks (ms):",
                "",
                "\x00",
            ]
        ).flatmap(lambda line: st.integers(0, 80).map(lambda end: line[:end] if end < 40 else line))
    )
)
def test_any_lines_are_read_without_failing(lines: list[str]) -> None:
    rows = read("\n".join(lines))
    assert all(row.n > 0 and 0 <= row.seconds <= row.slowest for row in rows)


LINES = st.sampled_from(
    [
        "times across ranks (ms):", "  forward-compute:", "  optimizer:", "     rank {a:2d}: {b}.{c:02d}", "     rank {a:2d}: {b}",
        "(min, max) time across ranks (ms):", "    forward-compute ................................: ({b}.{c:02d}, {b}.9)",
        "rank {a}: data {b}.{c:03d} fwd 0.{c:03d} bwd {a}.5", "[rank {a}] step {b} | data: {c}.1ms | fwd: {b}.{c:02d} ms | loss 0.{c}",
        "node0{c}: rank={a} h2d_ms={b}.5 fwd_ms={c}.25 fwd_ms={a}.25", "rank {a} fwd 12345678.123456789 bwd 0.1", "step {b} took {c}.1 s",
        "rank {a}: fwd 1.{c} bwd 2.{b}     rank {a}: {b}.5", "", "caf\N{LATIN SMALL LETTER E WITH ACUTE} rank {a} fwd 0.{c:02d} bwd 0.1",
    ]
)  # fmt: skip


@given(
    st.lists(
        st.builds(str.format, LINES, a=st.integers(0, 12), b=st.integers(0, 999), c=st.integers(0, 99)), max_size=60
    )
)
def test_lines_read_together_tell_what_each_tells(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    together = read(text)
    with mock.patch.object(rank_timers.RankTimers, "_take_forms", _one_by_one):
        alone = read(text)
    assert sorted(map(repr, (row._replace(ref=0) for row in alone))) == sorted(
        map(repr, (row._replace(ref=0) for row in together))
    )


def _one_by_one(timers: rank_timers.RankTimers, _: bytes, lines: list[bytes], first: int) -> None:
    for number, line in enumerate(lines, first):
        timers.used += timers._line(line, number)
