"""Many runs as one table: best first, with what was chosen otherwise, in every format."""

import csv
import io
import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from helpers.schemas import validator

from nccl_doctor.app.comparison import pair, runs
from nccl_doctor.cli.main import main
from nccl_doctor.diagnosis.comparison import RunsTable
from nccl_doctor.reporters import Options, json_report
from nccl_doctor.reporters.comparison import RUNS, render, runs_json

STEP = (
    " [2026-09-21 18:31:{second:02}] iteration {step:8}/     200 | consumed samples: {samples:12} |"
    " elapsed time per iteration (ms): {ms:.1f} | learning rate: 3.000E-04 | global batch size:   128 | lm loss: 8.778633E+00 |"
)


def written(path: Path, ms: float, *env: str) -> Path:
    """A log of Megatron with steps of this length and lines of NCCL that name these settings."""
    lines = [
        f"n1:7:7 [0] NCCL INFO {name} set by environment to {value}." for name, value in (e.split("=") for e in env)
    ]
    lines += [STEP.format(second=at, step=at, samples=128 * at, ms=ms + at % 3) for at in range(1, 30)]
    path.write_text("\n".join(["n1:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4", *lines]) + "\n")
    return path


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    (tmp_path / "one").mkdir()
    return [
        str(written(tmp_path / "base.log", 400, "NCCL_ALGO=Ring")),
        str(written(tmp_path / "slow.log", 900, "NCCL_ALGO=Ring", "NCCL_MAX_NCHANNELS=1")),
        str(written(tmp_path / "one" / "fast.log", 300, "NCCL_ALGO=Tree")),
        str(written(tmp_path / "again.log", 401, "NCCL_ALGO=Ring")),
    ]


def table(paths: list[str]) -> RunsTable:
    return runs.table([runs.ask(pair.read(path)[0]) for path in paths])


def test_the_best_run_leads_with_what_was_chosen_otherwise(logs: list[str]) -> None:
    found = table(logs)
    assert ["fast.log", "base.log", "again.log", "slow.log"] == [row.name for row in found.runs]
    assert [["NCCL_ALGO=Tree"], [], [], ["NCCL_MAX_NCHANNELS=1"]] == [row.changed for row in found.runs]
    assert ["better", "", "", "worse"] == [row.values[0].effect for row in found.runs if row.values[0]]
    assert found.headline.startswith("fast.log is best: speed of megatron ")
    assert found.headline.endswith("% on the first run, with NCCL_ALGO=Tree")
    chosen = {one.what: one.values for one in found.varied if one.chosen}
    assert ["Ring", "Ring", "Tree", "Ring"] == chosen["NCCL_ALGO"]
    assert ["not set", "1", "not set", "not set"] == chosen["NCCL_MAX_NCHANNELS"]


def test_the_user_chooses_the_measure_by_which_runs_are_sorted(
    logs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tests = [str(FIXTURES / "nccl_tests" / name) for name in ("h100_8_slow.out", "a100_8.out", "a100_8_wrong.out")]
    assert 0 == main(["compare", *tests, "--by", "Small", "--format", "csv", "--fail-on", "never"])
    heads, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert "all_reduce, small sizes, us" == heads[4]
    times = [float(row[4]) for row in rows if row[4]]
    assert 3 == len(times)
    assert sorted(times) == times  # less is better
    assert 2 == main(["compare", *logs, "--by", "latency"])
    assert "no measure has latency in its name; there are speed of megatron" in capsys.readouterr().err


def test_a_difference_within_the_noise_is_none(logs: list[str]) -> None:
    found = table([logs[3], logs[0], logs[3]])
    assert ("same", []) == (found.verdict, found.varied)
    assert "no run is better than the first one" in found.headline
    assert ["again.log", "again.log (2)", "base.log"] == sorted(row.name for row in found.runs)


def test_every_number_shows_its_line(logs: list[str]) -> None:
    value = table(logs).runs[0].values[0]
    assert value is not None
    (place,) = value.evidence
    assert place.text in Path(place.file).read_text().splitlines()[place.line - 1]


def test_a_fault_that_the_first_run_does_not_have_decides_the_exit_status(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.log", "b.log", "c.log")]
    for name, more in zip(names, ([], ["--fault", "memlock-limit"], []), strict=True):
        assert 0 == main(["simulate", *more, "-o", name])
    assert 1 == main(["compare", *names, "-o", str(tmp_path / "out.json")])
    document = json.loads((tmp_path / "out.json").read_text())
    found = {row["name"]: [one["name"] for one in row["findings"]] for row in document["runs"]}
    assert ([], True, []) == (found["a.log"], "memlock-limit" in found["b.log"], found["c.log"])
    assert 0 == main(["compare", *names, "--fail-on", "never", "-o", str(tmp_path / "out.json")])


def test_json_is_what_its_schema_says(logs: list[str]) -> None:
    report, schema = json_report.schema(), runs_json.schema()
    checked = validator(schema, report)
    for paths in (logs, [logs[0]] * 3, [str(FIXTURES / "gpu" / "busy85.csv"), *logs]):
        document = json.loads(render("json", table(paths)))
        assert [] == [error.message for error in checked.iter_errors(document)]
    document["colour"] = "red"
    assert 1 == len(list(checked.iter_errors(document)))


def test_hostile_names_and_settings_do_nothing_in_any_format(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J|`"
    paths = [
        str(written(tmp_path / f"=cmd{n}{evil.replace('/', '')}.log", 400 * n, f"NCCL_ALGO={evil}{n}"))
        for n in (3, 1, 2)
    ]
    found = table(paths)
    for form in RUNS:
        text = render(form, found, Options(width=80))
        assert [] == sorted({c for c in text if not c.isprintable() and c != "\n"})
        assert form != "html" or "<script" not in text
        assert form != "terminal" or max(map(len, text.splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(render("csv", found))))
    assert ["2", "3", "1"] == [row["named"] for row in rows]
    assert all(row["run"].startswith("'=cmd") for row in rows)


def test_runs_without_a_number_or_with_nothing_in_common(logs: list[str]) -> None:
    others = [FIXTURES / "nccl_tests" / "a100_8.out", FIXTURES / "gpu" / "busy85.csv"]
    found = table([*map(str, others), logs[0]])
    assert "no number that two runs share" in found.headline
    assert 3 == len(found.runs)
    for form in RUNS:
        assert render(form, found)


@pytest.mark.parametrize(
    ("count", "form", "says"), [(1, "json", "two runs or more"), (2, "csv", "two runs have no csv")]
)
def test_what_cannot_be_compared_is_one_line(
    logs: list[str], capsys: pytest.CaptureFixture[str], count: int, form: str, says: str
) -> None:
    assert 2 == main(["compare", *logs[:count], "--format", form])
    assert says in capsys.readouterr().err
