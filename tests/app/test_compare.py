"""Two runs side by side: what appeared, what changed, and what only one of them tells."""

import json
import re
from collections.abc import Callable
from itertools import groupby
from math import inf, nan
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.schemas import validator

from nccl_doctor.app.comparison import pair, queries
from nccl_doctor.cli.main import main
from nccl_doctor.diagnosis.comparison import Comparison
from nccl_doctor.diagnosis.picture import Chart
from nccl_doctor.facts.store import Facts
from nccl_doctor.reporters import Options, json_report
from nccl_doctor.reporters.comparison import pair_html, pair_json, pair_markdown, pair_terminal

FIXTURES = ROOT / "fixtures"
RENDERERS = (pair_terminal.render, pair_markdown.render, pair_html.render, pair_json.render)


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[..., str]:
    def make(name: str, *options: str) -> str:
        path = tmp_path / name
        assert 0 == main(["simulate", *options, "-o", str(path)])
        return str(path)

    return make


def compared(before: str | Path, after: str | Path) -> Comparison:
    return pair.compare(pair.read(str(before))[0], pair.read(str(after))[0])


def changed(comparison: Comparison) -> dict[str, tuple[str, str, str]]:
    return {one.what: (one.before, one.after, one.effect) for one in comparison.changes}


def test_a_run_is_the_same_as_itself(simulated: Callable[..., str]) -> None:
    log = simulated("a.log")
    comparison = compared(log, log)
    assert ("same", [], [], []) == (comparison.verdict, comparison.changes, comparison.appeared, comparison.gone)
    assert {"speed", "transport", "versions", "settings", "hosts"} <= set(comparison.same)


def test_a_fall_back_to_tcp_is_found_with_what_it_cost(simulated: Callable[..., str]) -> None:
    comparison = compared(simulated("a.log"), simulated("b.log", "--fault", "ib-disabled-by-env"))
    changes = changed(comparison)
    assert "warning" == comparison.verdict
    assert "speed of megatron" == comparison.changes[0].what
    assert "worse" == changes["speed of megatron"][2]
    assert ("NET/IB/GDRDMA", "NET/Socket", "other") == changes["between hosts"]
    assert ("not set", "1", "other") == changes["NCCL_IB_DISABLE"]
    assert "ib-disabled-by-env" in [finding.name for finding in comparison.appeared]
    assert ([], []) == (comparison.only_before, comparison.only_after)
    back = compared(comparison.after.paths[0], comparison.before.paths[0])
    assert ("1", "not set", "other") == changed(back)["NCCL_IB_DISABLE"]
    assert "better" == changed(back)["speed of megatron"][2]
    assert "ib-disabled-by-env" in [finding.name for finding in back.gone]


def test_every_change_shows_the_lines_of_both_runs(simulated: Callable[..., str]) -> None:
    a, b = simulated("a.log"), simulated("b.log", "--nccl", "2.27.7")
    change = next(one for one in compared(a, b).changes if one.what == "nccl")
    assert ("2.21.5", "2.27.7") == (change.before.split("+")[0], change.after.split("+")[0])
    assert [a, b] == [place.file for place in change.evidence]
    for place in change.evidence:
        assert place.text in Path(place.file).read_text("utf-8").splitlines()[place.line - 1]


def test_a_log_without_info_lines_is_no_log_without_settings(simulated: Callable[..., str], tmp_path: Path) -> None:
    loud = simulated("a.log", "--fault", "ib-disabled-by-env")
    quiet = tmp_path / "quiet.log"
    quiet.write_text("".join(f"{line}\n" for line in Path(loud).read_text().splitlines() if "NCCL INFO" not in line))
    comparison = compared(loud, quiet)
    assert "NCCL_IB_DISABLE" not in changed(comparison)
    assert [] == comparison.gone  # the quiet log could not show them
    assert {"settings", "transport"} <= set(comparison.only_before)
    again = compared(quiet, loud)
    assert {"settings", "transport"} <= set(again.only_after)
    assert {finding.rule for finding in again.appeared} == set(again.unasked)


def test_a_new_fault_leads_and_decides_the_exit_status(
    simulated: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = simulated("a.log"), simulated("b.log", "--fault", "memlock-limit")
    assert 1 == main(["compare", a, b])
    assert capsys.readouterr().out.startswith("ERROR: The locked-memory limit is too small")
    assert 0 == main(["compare", a, b, "--fail-on", "never"])
    assert 0 == main(["compare", b, a])


def test_two_nodes_are_compared_by_what_was_kept_of_them(simulated: Callable[..., str]) -> None:
    good = simulated("good", "--node", "dgx-h100")
    bad = simulated("bad", "--node", "dgx-h100", "--fault", "gpu-power-limit-lowered")
    comparison = compared(good, bad)
    assert ("700", "700 (7), 420 (1)", "other") == changed(comparison)["power limit in W"]
    assert ["gpu-power-limit-lowered"] == [finding.name for finding in comparison.appeared]


def test_bandwidth_of_nccl_tests_is_compared() -> None:
    tests = FIXTURES / "nccl_tests"
    before, after, effect = changed(compared(tests / "a100_8.out", tests / "h100_8_slow.out"))[
        "all_reduce, large sizes"
    ]
    assert float(after) < float(before) / 2
    assert "worse" == effect


@pytest.mark.parametrize(("tolerance", "effects"), [(0.05, ["worse"]), (0.95, [])])
def test_the_tolerance_decides_what_counts(simulated: Callable[..., str], tolerance: float, effects: list[str]) -> None:
    a, b = (
        pair.read(simulated(f"{n}.log", *more))[0] for n, more in enumerate(((), ("--fault", "ib-disabled-by-env")))
    )
    comparison = pair.compare(a, b, tolerance)
    assert effects == [one.effect for one in comparison.changes if one.topic == "speed"]


def test_runs_that_have_nothing_in_common_cannot_be_compared() -> None:
    comparison = compared(FIXTURES / "nccl_tests" / "a100_8.out", FIXTURES / "gpu" / "busy85.csv")
    assert "inconclusive" == comparison.verdict
    assert comparison.only_before
    assert comparison.only_after


def test_speeds_of_different_programs_are_neither_the_same_nor_changed(simulated: Callable[..., str]) -> None:
    comparison = compared(simulated("a.log"), simulated("b.log", "--framework", "horovod"))
    assert "speed" not in comparison.same
    assert [] == [change for change in comparison.changes if change.topic == "speed"]


@pytest.mark.parametrize("arguments", [["nope.log", "demo.log"], ["demo.log", "nope.log"]])
def test_a_run_that_cannot_be_read_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FIXTURES)
    assert 2 == main(["compare", *arguments])
    assert "nccl-doctor: nope.log: no such file or folder\n" == capsys.readouterr().err


def test_kept_facts_are_compared_like_logs(simulated: Callable[..., str], tmp_path: Path) -> None:
    a, b = simulated("a.log"), simulated("b.log", "--fault", "ib-disabled-by-env")
    kept = tmp_path / "a.db"
    main(["analyze", a, "--save", str(kept)])
    assert changed(compared(a, b)) == changed(compared(kept, b))


def test_json_is_what_its_schema_says(simulated: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    report, schema = json_report.schema(), pair_json.schema()
    checked = validator(schema, report)
    a, b = simulated("a.log"), simulated("b.log", "--fault", "ib-disabled-by-env")
    for two in ((a, b), (b, a), (a, a), (str(FIXTURES / "gpu" / "busy85.csv"), a)):
        main(["compare", *two, "--format", "json", "--fail-on", "never"])
        document = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(text))
        assert [] == [error.message for error in checked.iter_errors(document)]
    document["colour"] = "red"
    assert 1 == len(list(checked.iter_errors(document)))


def test_no_format_lets_a_control_character_through(simulated: Callable[..., str], tmp_path: Path) -> None:
    a = simulated("a.log")
    b = tmp_path / "b\x1b[31m.log"
    b.write_text(
        Path(a).read_text().replace("Using network IB", "Using network I\x1b[31mB\x07")
        + "node01:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ri\x9b31mng|`\n"
    )
    for render in RENDERERS:
        for verbose in (False, True):
            text = render(compared(a, b), Options(verbose=verbose))
            assert [] == sorted({c for c in text if not c.isprintable() and c != "\n"})


@pytest.mark.parametrize("width", [30, 80, 200])
def test_no_line_is_wider_than_the_screen(simulated: Callable[..., str], width: int) -> None:
    comparison = compared(simulated("a.log"), simulated("b.log", "--fault", "ib-disabled-by-env"))
    for verbose in (False, True):
        text = pair_terminal.render(comparison, Options(width=width, verbose=verbose))
        assert width >= max(map(len, text.splitlines()))


def test_the_same_pictures_of_both_runs_stand_side_by_side_on_the_same_axes(simulated: Callable[..., str]) -> None:
    runs = [
        pair.read(simulated(f"{n}.log", *more), drawn=True)[0]
        for n, more in enumerate(((), ("--fault", "ib-disabled-by-env")))
    ]
    comparison = pair.compare(*runs)
    (steps,) = [one for one in comparison.pictures if one.before is not None and one.before.title == "Time of a step"]
    assert isinstance(steps.before, Chart)
    assert isinstance(steps.after, Chart)
    slowest = max(y for series in steps.after.series for _, y in series.points)
    assert steps.before.extent == steps.after.extent
    assert steps.before.extent is not None
    assert slowest <= steps.before.extent[2]
    text = pair_html.render(comparison, Options())
    assert 2 * len(comparison.pictures) == len(re.findall(r"<section><h3>[AB]</h3>", text))
    assert "<script" not in text
    places = re.findall(r'\bid="([^"]*)"', text)
    assert len(places) == len(set(places))
    rows = [line for line in pair_markdown.render(comparison, Options()).splitlines() if line.startswith("| Time of")]
    assert ["▁" * 20, "█" * 20] == [cell.split()[0] for cell in rows[0].split("|")[2:4]]


def test_a_picture_that_one_run_lacks_says_so() -> None:
    old, new = (
        pair.read(str(FIXTURES / path), drawn=True)[0] for path in ("nccl_tests/a100_8.out", "gpu/hot_gpu2.csv")
    )
    text = pair_html.render(pair.compare(old, new), Options())
    assert "This run has no facts for it." in text


def test_the_file_decides_the_format(simulated: Callable[..., str], tmp_path: Path) -> None:
    log = simulated("a.log")
    assert 0 == main(["compare", log, log, "-o", str(tmp_path / "same.md")])
    assert (tmp_path / "same.md").read_text().startswith("## SAME: ")


def test_no_input_is_overwritten(simulated: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = simulated("a.log"), simulated("b.log")
    assert 2 == main(["compare", a, b, "-o", b])
    assert f"nccl-doctor: {b} is an input; choose another name for the output\n" == capsys.readouterr().err


def test_every_question_can_be_put_to_any_facts() -> None:
    facts = Facts()
    for trait in queries.RUNS:
        assert [] == [row for row in facts.query(trait.query) if row[1] is not None]
        assert set(trait.needs) <= facts.counts().keys()


def test_what_belongs_to_one_topic_stands_together() -> None:
    topics = [topic for topic, _ in groupby(trait.topic for trait in queries.RUNS)]
    assert sorted(set(topics)) == sorted(topics)


def test_another_parallel_layout_is_a_change(tmp_path: Path) -> None:
    step = (
        " iteration {0}/ 100 | elapsed time per iteration (ms): 200.0 | global batch size: 256 | lm loss: 2.1E+00 |\n"
    )
    for name, tensor, data in (("a.log", 4, 2), ("b.log", 2, 4)):
        head = f"using world size: 8, data-parallel size: {data}, tensor-model-parallel size: {tensor}, pipeline-model-parallel size: 1\n"
        (tmp_path / name).write_text(head + "".join(step.format(number) for number in range(1, 20)))
    comparison = compared(tmp_path / "a.log", tmp_path / "b.log")
    changes = changed(comparison)
    assert (("4", "2", "other"), ("2", "4", "other")) == (changes["tensor parallel"], changes["data parallel"])
    assert "parallel layout" in {one.topic for one in comparison.changes}


@pytest.mark.parametrize("high", [1e308, inf, nan])
def test_bars_of_numbers_whose_sum_is_infinite(high: float) -> None:
    points = [(at, high if at % 2 else 1.0) for at in range(100)]
    top = high if high == high else 1.0

    assert 24 == len(pair_markdown.sparkline(points, (0.0, 99.0, top)))
    assert "" == pair_markdown.sparkline([(0.0, inf)], None)


@pytest.mark.parametrize(
    ("name", "what", "before", "after"),
    [
        ("bandwidth/ib_write_bw.txt", "RDMA, ib_write_bw", "391.83", "201.83"),
        ("bandwidth/nvbandwidth.txt", "copies, host_to_device_memcpy_ce", " 55.", " 27."),
    ],
)
def test_bandwidths_of_two_captures(tmp_path: Path, name: str, what: str, before: str, after: str) -> None:
    (tmp_path / "b.txt").write_text((FIXTURES / name).read_text().replace(before, after))
    assert "worse" == changed(compared(FIXTURES / name, tmp_path / "b.txt"))[what][2]
