"""Tables of steps below titles, and text that only looks like one."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.printed.step_tables import StepTables

TABLES = {
    "step loss tok/s\n": "{s} {l:.3f} {r:.0f}",
    "  step      loss   step_ms   tok/s\n------  --------  --------  ------\n": "{s:6d}  {l:8.4f}  {m:8.1f}  {r:6.0f}",
    "| step | loss | time (s) | tokens/s |\n|---:|---:|---:|---:|\n": "| {s} | {l:.3f} | {d:.4f} | {r:.0f} |",
    "Step\tLoss\tstep_time\n": "{s}\t{l:.3f}\t{d:.4f}",
    "#iter loss iter_time tokens/s\n": "{s} {l:.3f} {m:.1f}ms {k:.2f}k",
}


def text_of(titles: str, form: str, slow: int | None = None) -> str:
    rows = []
    for s in range(1, 41):
        d = (0.32 + s % 3 / 1000) * (5 if s == slow else 1)
        rows.append(form.format(s=s, l=3 - s / 50, d=d, m=1000 * d, r=16384 / d, k=16.384 / d) + "\n")
    return f"run of 8 GPUs\n{titles}{''.join(rows)}"


def read(text: str) -> tuple[list[ThroughputRun], list[Step]]:
    tables, facts = StepTables(), Facts()
    for number, line in enumerate(text.encode().split(b"\n"), 1):
        tables.take(line, number)
    facts.add(list(tables.rows(facts, "train.txt")))
    return facts.rows(ThroughputRun), facts.rows(Step)


@pytest.mark.parametrize("titles", TABLES)
def test_steps_of_a_table(titles: str) -> None:
    (run,), steps = read(text_of(titles, TABLES[titles]))
    assert (40, 1, 40) == (run.points, run.first_step, run.last_step)
    if "time" in titles or "_ms" in titles:
        assert [pytest.approx(0.32 + s % 3 / 1000, rel=1e-3) for s in range(1, 41)] == [step.seconds for step in steps]
    if "tok" in titles:
        assert "tokens/s" == run.unit
        assert [pytest.approx(16384 / (0.32 + s % 3 / 1000), rel=1e-2) for s in range(1, 41)] == [
            step.rate for step in steps
        ]


@pytest.mark.parametrize(("slow", "names"), [(23, ["throughput-stalls"]), (None, [])])
def test_a_slow_row_is_named(tmp_path: Path, slow: int | None, names: list[str]) -> None:
    path = tmp_path / "train.txt"
    path.write_text(text_of("step loss step_time\n", "{s} {l:.3f} {d:.4f}", slow))
    report = analyze.analyze([str(path)])[0]
    assert names == [finding.name for finding in report.findings]


def test_the_slow_rank_of_a_table_of_all_ranks(tmp_path: Path) -> None:
    rows = [
        f"{rank:4d} {step:5d} {320 * (1.7 if rank == 2 else 1) + step % 3:8.1f}\n"
        for step in range(1, 31)
        for rank in range(4)
    ]
    path = tmp_path / "train.txt"
    path.write_text("rank  step  time_ms\n" + "".join(rows))
    (finding,) = analyze.analyze([str(path)])[0].findings
    assert ("worker-steps-slower", "2") == (finding.name, finding.ranks)


@pytest.mark.parametrize(
    "text",
    [
        "the next step is loss prevention\n" + "1 2 3 4 5 6\n" * 9,
        "step loss\n" + "1 2.0\n" * 9,
        "step name loss\n" + "1 two 3.0\n" * 9,
        "loss step loss\n" + "1 2 3\n" * 9,
        "step loss tok/s\n1 2.0 3\n2 2.0 3\n",
    ],
)
def test_other_text_is_no_table(text: str) -> None:
    assert ([], []) == read(text)


def test_a_table_of_errors_below_a_comment() -> None:
    tables = StepTables()
    rows = "".join(f"{100 * n:7d}      1.{n}e-01    2.{n}e-01    1.0e-03\n" for n in range(9))
    text = "#  step      rmse_val    rmse_trn         lr\n" + rows
    assert all(tables.take(line, number) for number, line in enumerate(text.encode().splitlines(), 1))
    assert tables.found
