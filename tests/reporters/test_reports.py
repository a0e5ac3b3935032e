"""Reports of every kind in every format, with text from logs that mean harm."""

import json
import re

import pytest
from helpers.places import FIXTURES
from helpers.reports import REPORTS, every_report, finding, hostile, large, report
from helpers.schemas import validator
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Place, Report
from nccl_doctor.reporters import FORMATS, Options, render
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.json_report import schema
from nccl_doctor.reporters.measured import SCOPES
from nccl_doctor.reporters.words import nested, shortened


@every_report
@pytest.mark.parametrize("form", FORMATS)
def test_no_format_lets_a_control_character_through(form: str, name: str) -> None:
    text = render(form, REPORTS[name]())
    assert [] == sorted({c for c in text if not c.isprintable() and c != "\n"})
    assert text.endswith("\n")
    text.encode("utf-8")


@every_report
def test_json_is_what_its_schema_says(name: str) -> None:
    checked = validator(schema())
    document = json.loads(render("json", REPORTS[name]()), parse_constant=lambda text: pytest.fail(text))
    assert [] == [error.message for error in checked.iter_errors(document)]


def test_the_schema_knows_every_scope_that_a_report_shows() -> None:
    assert {"job", "run", *SCOPES} == set(schema()["$defs"]["measure"]["properties"]["scope"]["enum"])


@pytest.mark.parametrize("folder", ["network", "benchmarks", "nccl_tests", "batch"])
def test_a_report_with_measures_of_fixtures_is_what_its_schema_says(folder: str) -> None:
    document = json.loads(render("json", analyze.analyze([str(FIXTURES / folder)])[0]))
    assert document["measures"]
    validator(schema()).validate(document)


def test_json_keeps_every_field_of_the_report() -> None:
    document = json.loads(render("json", report("error", finding())))
    assert "nccl-doctor/report/2" == document["schema"]
    assert set(finding().__dataclass_fields__) == set(document["findings"][0])
    assert {"file": "job.log", "line": 12} == {k: document["findings"][0]["evidence"][0][k] for k in ("file", "line")}
    assert ["found", "skipped", "broken", "clear"] == [check["outcome"] for check in document["checks"]]


def test_the_schema_refuses_what_the_report_does_not_have() -> None:
    document = json.loads(render("json", report("error", finding())))
    document["findings"][0]["colour"] = "red"
    document["verdict"] = "fine"
    errors = list(validator(schema()).iter_errors(document))
    assert 2 == len(errors)


# terminal


@every_report
@pytest.mark.parametrize("width", [30, 60, 80, 132])
@pytest.mark.parametrize("verbose", [False, True])
def test_terminal_is_never_wider_than_the_screen(name: str, width: int, verbose: bool) -> None:
    text = render("terminal", REPORTS[name](), Options(width=width, verbose=verbose))
    assert [] == [line for line in text.splitlines() if cell_len(line) > width]


@every_report
def test_terminal_fits_on_one_screen(name: str) -> None:
    assert len(render("terminal", REPORTS[name]()).splitlines()) < 24


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("error", "ERROR: libibverbs cannot be loaded · node[01-02], ranks 0-15 · certain · NET003"),
        ("warning", "WARNING: libibverbs cannot be loaded · possible · NET003"),
        ("note", "NOTE: libibverbs cannot be loaded · node[01-02], ranks 0-15 · certain · NET003"),
        ("healthy", "HEALTHY: no fault found"),
        ("inconclusive", "CANNOT TELL: nothing to judge by"),
    ],
)
def test_the_first_line_is_the_answer(name: str, line: str) -> None:
    assert line == render("terminal", REPORTS[name]()).splitlines()[0]


def test_terminal_shows_why_where_and_next() -> None:
    lines = render("terminal", REPORTS["error"](), Options(width=120)).splitlines()
    assert "Why      node[01-02] could not load libibverbs, so NCCL sees no InfiniBand or RoCE device" in lines
    assert "         job.log:12: node01:101:140 [0] NCCL INFO NET/IB : Failed to open libibverbs.so[.1]" in lines
    assert "Next     Install the package in the image:" in lines
    assert "           apt-get install libibverbs1" in lines
    assert "Follows  warning NET001 libibverbs-missing  libibverbs cannot be loaded" in lines
    assert "Read     nccl-log · understood 120 of 121 NCCL lines" in lines
    assert ["Job      2 hosts node[01-02] · 16 x H100 · 16 ranks", "         412 ms a step · ended in order"] == lines[
        1:3
    ]
    assert "Visible  seen: start-up; partly seen: progress; not seen: gpus" in lines
    assert "Broken   NET010 odd-rule: no such column: x" in lines
    assert any(line.startswith("Missing  the log holds no INFO lines; rerun with") for line in lines)


def chain() -> Report:
    """NET003 explains NET001, which explains NET005; NET007 explains NET008 and is a cause of its own."""
    return report(
        "error", finding(), finding("NET001", explained_by=["NET003"]), finding("NET005", explained_by=["NET001", "NET003"]),
        finding("NET002", explained_by=["NET003"]), finding("NET007"), finding("NET008", explained_by=["NET007"]),
    )  # fmt: skip


def test_follows_shows_what_explained_by_says() -> None:
    depths = [(depth, one.rule) for depth, one in nested(chain().findings)]
    assert [
        (0, "NET003"), (1, "NET001"), (2, "NET005"), (1, "NET002"), (0, "NET007"), (1, "NET008"),
    ] == depths  # fmt: skip
    printed = render("terminal", chain())
    follows, also = printed.split("Follows  ")[1].split("Also     ")
    assert ["error NET001", "  error NET005", "error NET002"] == re.findall(r"^ {0,9}( *error NET00\d)", follows, re.M)
    assert re.match(r"error NET007 .*\n {11}error NET008 ", also)
    markdown = render("markdown", chain()).split("**Follows from it**")
    assert ["- error NET001", "  - error NET005", "- error NET002"] == re.findall(
        r"^ *- error NET00\d", markdown[1], re.M
    )
    assert ["- error NET008"] == re.findall(r"^ *- error NET00\d", markdown[2], re.M)


@pytest.mark.parametrize(
    ("path", "width", "short"),
    [
        ("job.log", 20, "job.log"),
        ("/scratch/runs/1234/rank.0/stderr", 20, "…/1234/rank.0/stderr"),
        ("/scratch/runs/1234/rank.0/stderr", 15, "…/rank.0/stderr"),
        ("a" * 30 + "/" + "b" * 30, 10, "…bbbbbbbbb"),
        ("", 10, ""),
    ],
)
def test_long_paths_are_shortened_from_the_left(path: str, width: int, short: str) -> None:
    assert short == shortened(path, width)


@pytest.mark.parametrize(
    ("advice", "lines"),
    [
        ("Restart it:\n  systemctl restart slurmd", ["Restart it:", "$ systemctl restart slurmd"]),
        (
            "On the node `nvidia-smi -L` and `lspci | grep -i nvidia`; in the task `echo $CUDA_VISIBLE_DEVICES`.",
            [
                "On the node:",
                "$ nvidia-smi -L",
                "$ lspci | grep -i nvidia",
                "In the task:",
                "$ echo $CUDA_VISIBLE_DEVICES",
            ],
        ),
        ("In the task `ulimit -l` must print unlimited.", ["In the task `ulimit -l` must print unlimited."]),
        *(
            (text, [text])
            for text in (
                "Count what is in use (`rdma resource show`) first.",
                "Look at `ipmitool sel list` and at the power cables.",
                "What does the rank do (`py-spy dump --pid PID`)? Look at its code.",
                "Run `nvidia-smi nvlink -s`, `-e`; read the Fabric Manager log.",
                "Stop all processes on it, `nvidia-smi -r -i N`, reboot the node.",
            )
        ),
        ("Count what is in use (`rdma resource show`).", ["Count what is in use:", "$ rdma resource show"]),
        (
            "Stop the jobs on it, `nvidia-smi -r -i 0`; then test.",
            ["Stop the jobs on it.", "$ nvidia-smi -r -i 0", "Then test."],
        ),
        ("Set `--gpus all` and `LimitMEMLOCK=infinity`.", ["Set `--gpus all` and `LimitMEMLOCK=infinity`."]),
        ("Start with `NCCL_DEBUG=INFO srun -n 2 a.out`.", ["Start with:", "$ NCCL_DEBUG=INFO srun -n 2 a.out"]),
        ("", []),
        (
            "Likely: the driver is old. `nvidia-smi`; `ldconfig -p`.",
            ["Likely: the driver is old.", "$ nvidia-smi", "$ ldconfig -p"],
        ),
        ("Look at `nvidia-smi`; `free -h`.", ["Look at `nvidia-smi`.", "$ free -h"]),
    ],
)
def test_advice_is_steps_with_commands_alone_on_their_lines(advice: str, lines: list[str]) -> None:
    assert lines == [f"$ {step.text}" if step.is_command else step.text for step in steps(advice)]


@given(st.text(alphabet="ab `.(),;:\n-srunlspci ", max_size=120))
def test_any_advice_gives_lines_without_blanks_around_them(advice: str) -> None:
    for step in steps(advice):
        assert step.text
        assert step.text == step.text.strip()


def test_terminal_groups_skipped_rules_by_capture() -> None:
    text = render("terminal", REPORTS["error"](), Options(width=120, verbose=True))
    assert "Missing  1 more rule with a log with NCCL_DEBUG=INFO" in text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_lines_that_nobody_knows_are_quoted_above_notes(name: str) -> None:
    unread = [Place("job.log", 7, "frobnicator: fatal: no bar left")]
    given = report(
        "inconclusive", finding("CFG001", severity="note", title="A harmless note"), basis="1 line looks like an error",
        unread=unread, unread_count=1,
    )  # fmt: skip
    text = render(name, given)
    if name in ("terminal", "markdown", "html", "json"):
        assert "frobnicator: fatal: no bar left" in text
    if name in ("terminal", "markdown", "html"):
        assert text.index("frobnicator") < text.index("A harmless note")


def test_terminal_says_where_it_cut() -> None:
    text = render("terminal", large())
    assert "… (-v)" in text
    assert re.search(r"\d+ more findings: -v", text)
    full = render("terminal", large(), Options(verbose=True))
    assert "(-v)" not in full
    assert "Step 29" in full
    assert "CFG019" in full


def test_colour_adds_nothing_but_colour() -> None:
    plain = render("terminal", REPORTS["error"]())
    coloured = render("terminal", REPORTS["error"](), Options(color=True))
    assert "\x1b[1;31mERROR\x1b[0m" in coloured
    assert plain.split() == re.sub(r"\x1b\[[0-9;]*m", "", coloured).split()


def test_colour_carries_no_escape_of_the_log() -> None:
    coloured = render("terminal", hostile(), Options(color=True))
    assert set(re.findall(r"\x1b.", coloured)) == {"\x1b["}
    assert set(re.findall(r"\x1b\[[0-9;]*(.)", coloured)) == {"m"}
    assert "[bold]markup[/bold]" in coloured


@every_report
def test_ascii_terminals_get_ascii(name: str) -> None:
    assert render("terminal", REPORTS[name](), Options(ascii=True)).isascii()
