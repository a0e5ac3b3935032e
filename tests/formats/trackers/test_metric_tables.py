"""Tables of metrics with keys of people's own: rates and times by what the titles mean, and never in a wrong unit."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Measure, Scalar, Step, ThroughputRun
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.registry import recognise
from nccl_doctor.formats.trackers import metric_tables


def read(titles: str, row: Callable[[int], str], count: int = 60) -> Facts:
    """A table of `count` rows, as Lightning's CSVLogger writes it."""
    data = "\n".join([titles, *map(row, range(count)), ""]).encode()
    known = recognise(data)
    assert known is not None
    assert "training-table" == known.kind
    facts = Facts()
    metric_tables.read_format(io.BytesIO(data), "metrics.csv", facts)
    derive_all(facts)
    return facts


def measured(facts: Facts) -> dict[str, tuple[float, str]]:
    return {row.name: (round(row.value, 6), row.unit) for row in facts.rows(Measure)}


@pytest.mark.parametrize(
    ("titles", "row", "seconds"),
    [
        ("epoch,step,train_time_s", lambda i: f"0,{i},{0.25 * i + 7}", 0.25),  # runs on
        ("epoch,step,train_time_s", lambda i: f"0,{i},{0.25 + 0.001 * (i % 3)}", 0.251),  # of a step
        ("elapsed_ms,loss,step", lambda i: f"{2500.0 * i + 9},1.5,{10 * i}", 0.25),  # a row every ten steps
        (
            "loss,step,step_time,wall_time",
            lambda i: f"1.5,{i},{250 + i % 3},{1.7e9 + 0.25 * i:.3f}",
            0.251,
        ),  # the clock proves milliseconds
        ("loss,step,step_time,wall_time", lambda i: f"1.5,{i},{0.25 + 0.001 * (i % 3)},{1.7e9 + 0.25 * i:.3f}", 0.251),
        ("batch_ms,epoch,step", lambda i: f"{250 + i % 3},0,{i}", 0.251),
        ("epoch,iter_time,step", lambda i: f"0,{0.25 + 0.001 * (i % 3)},{i}", 0.251),
    ],
)
def test_time_of_a_step(titles: str, row: Callable[[int], str], seconds: float) -> None:
    found = measured(read(titles, row))
    assert found["step_time"] == (pytest.approx(seconds), "s")
    assert "throughput" not in found or found["throughput"][1] == "steps/s"


def test_rates_have_the_unit_of_their_title() -> None:
    assert (131_000.0, "tokens/s") == measured(read("epoch,ktok_per_sec,step", lambda i: f"0,131,{i}"))["throughput"]
    assert (2.0, "samples/s") == measured(read("epoch,images_per_min,step", lambda i: f"0,120,{i}"))["throughput"]


def test_rows_of_a_validation_between_those_of_the_training() -> None:
    text = "epoch,iter_time_s,step,val_loss\n" + "".join(
        f"0,0.5,{step},\n" if step % 4 else f"0,,{step},1.5\n" for step in range(40)
    )
    facts = Facts()
    metric_tables.read_format(io.BytesIO(text.encode()), "metrics.csv", facts)
    assert {0.5} == {row.seconds for row in facts.rows(Step)}


@pytest.mark.parametrize("value", ["1e999", "nan", "-5", "", "9" * 300])
def test_hostile_times_are_left_out(value: str) -> None:
    assert "step_time" not in measured(read("epoch,step,step_time_ms", lambda i: f"0,{i},{value}"))


def test_titles_of_an_export_begin_with_the_name_of_the_run() -> None:
    titles = '"Step","run-h100 - train/tokens_per_sec","run-h100 - train/tokens_per_sec__MIN","run-h100 - train/tokens_per_sec__MAX"'
    found = measured(read(titles, lambda i: f'"{10 * i}","{412000 + i % 3}","1","9"'))
    assert (412001.0, "tokens/s") == found["throughput"]


def test_a_time_without_a_unit_that_may_be_milliseconds_is_none() -> None:
    found = measured(read("epoch,samples_per_sec,step,step_time", lambda i: f"0,{512 + i % 3},{i},{350 + i % 3}"))
    assert "step_time" not in found
    assert (513.0, "samples/s") == found["throughput"]
    proven = measured(read("epoch,step,step_time,wall_time", lambda i: f"0,{i},{350 + i % 3},{1.7e9 + 351 * i:.0f}"))
    assert (351.0, "s") == proven["step_time"]


def chart(slow: int, title: str = "{} - perf/step_time") -> str:
    """What the page of Weights & Biases exports of a chart with four runs, of which one has every second point."""
    runs = ["lr=3e-4, wd: 0.1", "node3 - a", "sweep/7", "{plain} [b]"]
    columns = [f'"{title.format(run)}{end}"' for run in runs for end in ("", "__MIN", "__MAX")]
    rows = ["Step".join('""'), *columns]
    lines = [",".join(rows)]
    for step in range(120):
        cells = []
        for index in range(4):
            value = (0.8 if index == slow else 0.5) + 0.001 * ((step + index) % 5)
            cells += ['""'] * 3 if index == 2 and step % 2 else [f'"{value}"', '"0.1"', '"9.5"']
        lines.append(",".join([f'"{10 * step}"', *cells]))
    return "\n".join([*lines, ""])


def test_each_run_of_a_chart_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_text(chart(1))
    report, facts, _ = analyze.analyze([str(tmp_path / "export.csv")])
    assert "training-table" == report.inputs[0].kind
    found = facts.query("SELECT file, tool, points, last_step FROM throughput_run")
    names = ["lr=3e-4, wd: 0.1", "node3 - a", "sweep_7", "{plain} [b]"]
    assert [f"export.csv!{name}" for name in names] == [file.rpartition("/")[2] for file, *_ in found]
    assert [f"metrics-table {name}" for name in names] == [tool for _, tool, *_ in found]
    assert [120, 120, 60, 120] == [points for *_, points, _ in found]
    (slow,) = [finding for finding in report.findings if finding.name == "worker-slower-than-others"]
    assert "node3 - a" in slow.message


def test_a_chart_that_was_cut(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_text(chart(9)[:-30])
    report, facts, _ = analyze.analyze([str(tmp_path / "export.csv")])
    assert [] == report.findings
    assert 4 == len(facts.rows(ThroughputRun))
    assert "cut" in (report.inputs[0].note or "")


def test_a_chart_of_more_runs_than_are_read() -> None:
    titles = ",".join(["Step", *(f"run {run} - loss" for run in range(90))])
    facts = Facts()
    text = "\n".join([titles, *(",".join(["1.5"] * 91).replace("1.5", str(step), 1) for step in range(20)), ""])
    reading = metric_tables.read_format(io.BytesIO(text.encode()), "metrics.csv", facts)
    assert "has 90 runs, of which the first 64 were read" == reading.note
    assert 64 == len({row.file for row in facts.rows(Scalar)})


_CELLS = st.sampled_from(
    ("", "1", "-2.5", "3.", ".5", "1e-3", "1e9999", "nan", "inf", " 4", "1_0", "x", "١", "7" * 41, '"8"', "+6", "- 1")
)


@given(
    st.sampled_from(
        (
            "step,train_loss,step_time",
            "rank,step,loss",
            "wall_time,step,loss",
            "epoch,loss,acc",
            '"Step","a - loss","b - loss"',
        )
    ),
    st.lists(st.lists(_CELLS, min_size=2, max_size=4), max_size=30),
)
def test_rows_of_numbers_are_what_their_cells_are(titles: str, rows: list[list[str]]) -> None:
    text = "\n".join([titles, *map(",".join, rows), ""]).encode()
    assert _facts_of(text, {"_NUMBERS": re.compile("(?!)"), "_SIGNS": b""}) == _facts_of(text, {"_SIGNS": b""})


_PLAIN = st.sampled_from(
    ("", "1", "0", "2.5", "-2.5", "3.", ".5", "1e-3", "1e9999", "7" * 400, "+6", "4611686018427387904")
)
_GROWING = st.tuples(st.integers(1, 3), st.sampled_from((0.25, 0.5, 0.0, -1.0)))


@given(
    st.sampled_from(
        (
            "step,wall_time,loss",
            "step,wall_time,step_time",
            "step,_runtime,tokens/s",
            "step,loss,it/s",
            "step,step_time,data_time",
            "step,step_time,samples/s",
            "epoch,loss,acc",
            "step,loss,loss",
            "step,elapsed_ms,_timestamp",
        )
    ),
    st.lists(st.tuples(_GROWING, _PLAIN, _PLAIN), max_size=30),
    st.lists(st.lists(_PLAIN, min_size=2, max_size=4), max_size=3),
    st.sampled_from(("\n", "\r\n", "\n\n")),
    st.booleans(),
)
def test_columns_of_numbers_are_what_their_rows_are(
    titles: str, rows: list[tuple[tuple[int, float], str, str]], others: list[list[str]], end: str, grows: bool
) -> None:
    """Steps and clocks that go on, and any; whole rows, and cut ones."""
    step, when, lines = 0, 1.7e9, [titles]
    for (steps, seconds), second, third in rows:
        step, when = step + steps, when + seconds
        lines.append(f"{step},{when if grows else second},{third}")
    text = end.join([*lines, *map(",".join, others), ""]).encode()
    for size in (64, 1 << 20):
        assert _facts_of(text, {"_SIGNS": b""}, size) == _facts_of(text, {}, size)


def _facts_of(text: bytes, changed: dict[str, object], size: int = 1 << 20) -> tuple[Reading, list[str]]:
    facts = Facts()
    with mock.patch.multiple(metric_tables, **{"_BLOCK": size, **changed}):
        reading = metric_tables.read_format(io.BytesIO(text), "metrics.csv", facts)
    return reading, [
        repr(facts.query(f"SELECT * FROM {name}")) for name in ("scalar", "step", "throughput_run", "evidence")
    ]


def test_padded_columns_of_epochs(tmp_path: Path) -> None:
    """Of Ultralytics, which fills its columns with blanks."""
    path = tmp_path / "results.csv"
    titles = ("epoch", "train/box_loss", "val/box_loss")
    rows = [f"{n:23d},{1.5 - n / 100:23.5f},{1.4:23.5f}" for n in range(1, 31)]
    path.write_text("\n".join([",".join(f"{title:>23}" for title in titles), *rows, ""]))
    _, facts, _ = analyze.analyze([str(path)])
    assert [(30.0,)] == facts.query("SELECT value FROM measure WHERE name = 'epochs'")


def test_epochs_with_their_times(tmp_path: Path) -> None:
    rows = "".join(f"{epoch},{20.5 + epoch % 2},{2.0 - epoch / 10}\n" for epoch in range(8))
    (tmp_path / "metrics.csv").write_text(f"Epoch,epoch_time, loss\n{rows}")
    report, _, _ = analyze.analyze([str(tmp_path / "metrics.csv")])
    assert "8 epochs" in " ".join(report.job_lines)
    assert "s an epoch" in " ".join(report.job_lines)


@pytest.mark.parametrize("title", ["time", " wall", "elapsed_s"])
def test_a_clock_in_a_table_of_epochs_tells_how_long_each_took(title: str, tmp_path: Path) -> None:
    """As Ultralytics (`results.csv`) and NequIP (`metrics_epoch.csv`) keep it; a validation makes the last one longer."""
    rows = "".join(f"{epoch},{28.0 + 21.0 * epoch + 9.0 * (epoch == 9)},{2.0 - epoch / 10}\n" for epoch in range(10))
    (tmp_path / "metrics.csv").write_text(f"epoch,{title},train_loss\n{rows}")
    _, facts, _ = analyze.analyze([str(tmp_path / "metrics.csv")])
    assert [(21.0,)] == facts.query("SELECT value FROM measure WHERE name = 'epoch_time'")


def test_a_time_that_does_not_run_on_is_none_of_an_epoch(tmp_path: Path) -> None:
    rows = "".join(f"{epoch},{20.5 + epoch % 2},{2.0 - epoch / 10}\n" for epoch in range(10))
    (tmp_path / "metrics.csv").write_text(f"epoch,time,train_loss\n{rows}")
    _, facts, _ = analyze.analyze([str(tmp_path / "metrics.csv")])
    assert [] == facts.query("SELECT value FROM measure WHERE name = 'epoch_time'")
