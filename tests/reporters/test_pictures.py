"""Pictures of the HTML report: what they show, that they load nothing, and that hostile text does nothing in them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app.analyze import analyze
from nccl_doctor.diagnosis.picture import Cell, Chart, Grid, Line, Picture, Series, Shown, Span, TimeLine
from nccl_doctor.diagnosis.pictures import gpu_use, steps
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuSample, Stall, Step, ThroughputRun
from nccl_doctor.reporters import render
from nccl_doctor.reporters.pictures import chart
from nccl_doctor.simulate import scenario, write_pairs
from nccl_doctor.simulate.spec import Spec

EVIL = "</text></svg><script>alert(1)</script>$x^2$ \"'&_\x1b[2J\u202e"


def report_of(*paths: Path) -> Report:
    return analyze([str(path) for path in paths], drawn=True)[0]


def shown(report: Report) -> dict[str, Shown]:
    return {picture.shown.name: picture.shown for picture in report.pictures}


@pytest.fixture(scope="module")
def hang() -> Report:
    return report_of(FIXTURES / "job" / "xid-hang")


def test_the_map_marks_the_rank_that_others_wait_for(hang: Report) -> None:
    found = shown(hang)["job-map"]
    assert isinstance(found, Grid)
    states = {cell.text.split()[0]: cell.state for _, cells in found.rows for cell in cells}
    assert "bad" == states.pop("1")
    assert {"wait"} == set(states.values())


def test_the_matrix_says_over_what_hosts_talk(hang: Report) -> None:
    found = shown(hang)["transports"]
    assert isinstance(found, Grid)
    assert [["P2P", "IB+G"], ["IB+G", "P2P"]] == [[cell.text for cell in cells] for _, cells in found.rows]


def test_the_time_line_has_the_error_between_the_steps_and_the_timeouts(hang: Report) -> None:
    found = shown(hang)["time-line"]
    assert isinstance(found, TimeLine)
    lanes = dict(found.lanes)
    (xid,) = lanes["errors of GPUs"]
    assert ("Xid 79 worker-1", "error") == (xid.label, xid.severity)
    assert lanes["steps (megatron)"][0].start < xid.start < max(span.end for span in lanes["findings"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gpu/hot_gpu2.csv", {"gpu-heat", "gpu-busy"}),
        ("timeline/slow_rank2_4r.json", {"horovod-late-0", "horovod-time-0"}),
        ("nccl_tests/a100_8.out", {"bandwidth-all_reduce"}),
        ("throughput/loader_every_8.log", {"steps-1"}),
    ],
)
def test_what_an_input_holds_is_drawn(path: str, expected: set[str]) -> None:
    assert expected <= set(shown(report_of(FIXTURES / path)))


def test_gpus_without_a_number_are_drawn_beside_others() -> None:
    facts = Facts()
    ref = facts.evidence("a.csv", 1, "a sample")
    facts.add(
        GpuSample(None, gpu, "a.csv", 1e9 + 60 * at, 60.0, 60, 50.0, 0.0, None, None, ref)
        for gpu in (1, None, 0)
        for at in range(3)
    )
    (grid,) = [one for one in gpu_use.pictures(facts, []) if isinstance(one, Grid)]
    assert ["GPU", "0", "1"] == [name for name, _ in grid.rows]


def test_runs_with_different_numbers_of_gpus_are_drawn_beside_linear_scaling() -> None:
    found = shown(report_of(*(FIXTURES / "throughput" / f"megatron_{gpus}.log" for gpus in (8, 16, 32))))
    (one,) = [one for name, one in found.items() if name.startswith("scaling")]
    assert isinstance(one, Chart)
    measured, linear = one.series
    assert [8, 16, 32] == [x for x, _ in measured.points]
    assert [1, 2, 4] == [y for _, y in linear.points]


def test_the_curve_of_nccl_tests_has_the_printed_values() -> None:
    found = shown(report_of(FIXTURES / "nccl_tests" / "a100_8.out"))["bandwidth-all_reduce"]
    assert isinstance(found, Chart)
    printed = {}
    for line in (FIXTURES / "nccl_tests" / "a100_8.out").read_text().splitlines():
        words = line.split()
        if words and words[0].isdigit() and len(words) > 12:
            printed[float(words[0])] = max(float(words[7]), float(words[11]))
    assert printed
    assert printed == dict(found.series[0].points)


def test_pictures_are_made_only_where_a_format_shows_them() -> None:
    assert [] == analyze([str(FIXTURES / "gpu" / "hot_gpu2.csv")])[0].pictures


def hostile() -> list[Picture]:
    cell = Cell(EVIL, "bad", EVIL)
    grid = Grid("grid", EVIL, EVIL, EVIL, (EVIL,), ((EVIL, (cell,)),), (("bad", EVIL),), ())
    series = Series(EVIL, ((0, 1),), "bar"), Series("b", ((0, 2),), "bar")
    bars = Chart("bars", EVIL, EVIL, EVIL, EVIL, series, (), (Line(1, "y", EVIL),), (EVIL,))
    lanes = TimeLine("lanes", EVIL, EVIL, ((EVIL, (Span(0, 5, EVIL, "error"), Span(7, 7, EVIL))),), ())
    return [Picture(one, (1,)) for one in (grid, bars, lanes)]


def page(report: Report) -> str:
    text = render("html", report)
    assert not re.search(r"<(script|img|image|link|iframe|object|foreignObject|use [^>]*http)", text)
    assert not re.search(r"\son\w+\s*=\s*[\"']", re.sub(r">[^<]*<", "><", text))
    assert all(link.startswith(("#", "https://")) for link in re.findall(r'href="([^"]*)"', text))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", text))
    places = re.findall(r'\bid="([^"]*)"', text)
    assert len(places) == len(set(places))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(places)
    return text


def test_hostile_text_does_nothing(hang: Report) -> None:
    hang = Report(**{**vars(hang), "pictures": hostile()})
    text = page(hang)
    assert "alert(1)" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_every_picture_is_well_formed_and_loads_nothing(hang: Report) -> None:
    text = page(hang)
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert drawings
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert "img" == root.attrib["role"]
        assert root.attrib["aria-label"]
    assert "#0000" not in "".join(drawings)  # each colour is one of the page


def test_jobs_of_one_page_keep_their_anchors_apart() -> None:
    paths = [FIXTURES / "nccl_tests" / name for name in ("a100_8.out", "a100_8_wrong.out", "h100_8_slow.out")]
    report = analyze([str(path) for path in paths], apart="each", drawn=True)[0]
    assert len(report.jobs) == 3
    assert page(report).count("<svg") == 3


def test_a_job_of_a_thousand_ranks_stays_below_a_megabyte(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join(scenario.write_log(Spec(nodes=128))) + "\n")
    report = report_of(log)
    found = shown(report)["job-map"]
    assert isinstance(found, Grid)
    assert 1024 == sum(bool(cell.text) for _, cells in found.rows for cell in cells)
    assert len(page(report).encode()) < 1_000_000


def test_numbers_of_findings_that_are_close_are_written_together() -> None:
    spans = [Span(at, at, f"{number}. title") for number, at in ((3, 50.0), (1, 0.0), (2, 51.0), (10, 99.0))]
    assert [(0.0, "1"), (50.0, "3, 2"), (99.0, "10")] == list(chart._numbered([*spans, Span(5, 5, "Xid 79")], 2.0))


def test_hosts_with_a_fault_come_first_in_a_large_map(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join(scenario.write_log(Spec(nodes=20, fault="missing-rank-in-collective"))) + "\n")
    found = shown(report_of(log))
    grid = found["job-map"]
    assert isinstance(grid, Grid)
    assert ["bad"] == [cell.state for cell in grid.rows[0][1] if cell.state == "bad"]
    matrix = found["transports"]
    assert isinstance(matrix, Grid)
    assert 16 == len(matrix.rows)
    assert "20 hosts; no pair is odd, 16 are shown" in matrix.summary


def test_the_answer_of_many_runs_is_the_heading_and_each_run_is_folded(tmp_path: Path) -> None:
    for name, lines in write_pairs(Spec(nodes=6, fault="slow-node"), 9).items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    text = page(analyze([str(tmp_path)], apart="auto", drawn=True)[0])
    assert re.search(r"<h1><span class=\"word warning\">WARNING</span>: One node slows", text)
    assert text.index("<h1>") < text.index('<details class="whole"><summary>')
    assert '<details class="whole" open' not in text


def test_long_series_keep_their_extremes() -> None:
    points = [(float(x), 1.0) for x in range(100_000)]
    points[777], points[88_888] = (777.0, 50.0), (88_888.0, -50.0)
    thin = chart._thinned(points)
    assert len(thin) <= chart.POINTS
    assert {(777.0, 50.0), (88_888.0, -50.0)} <= set(thin)
    assert sorted(thin) == thin


def test_letters_that_no_font_has_are_no_warning(hang: Report, recwarn: pytest.WarningsRecorder) -> None:
    named = Chart("bars", "한", "한", "한", "한", (Series("한", ((0, 1),), "bar"),), (), names=("한",))
    page(Report(**{**vars(hang), "pictures": [Picture(named)]}))
    assert [] == [str(one.message) for one in recwarn]


def test_without_matplotlib_the_numbers_stay(hang: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "find_spec", lambda name: None)
    text = page(hang)
    assert "<svg" not in text
    assert "nccl-doctor[pictures]" in text
    assert "<summary>Numbers</summary>" in text


def test_two_stalls_of_one_step_of_which_one_has_an_event() -> None:
    facts = Facts()
    run = ThroughputRun._make([None] * len(ThroughputRun._fields))._replace(
        run=1, file="a.log", tool="own", unit="samples/s", points=9, ref=0
    )
    step = Step._make([None] * len(Step._fields))._replace(run=1, n=1, slowest=1.0, line=1, ref=0)
    facts.add([run, *(step._replace(step=at, last_step=at, seconds=0.5, line=at) for at in range(9))])
    facts.add([Stall(1, 3, 4.0, 8.0, 1, event, 0) for event in ("checkpoint", None)])
    (chart,) = steps.pictures(facts, [])
    assert [name.points for name in chart.series if name.name == "stalled"] == [((3.0, 4.0), (3.0, 4.0))]
