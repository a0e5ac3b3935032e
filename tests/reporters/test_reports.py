"""Reports of every kind in every format, with text from logs that mean harm."""

import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nccl_doctor.diagnosis.report import Check, CoverageRow, Finding, InputSummary, MeasureRow, Place, Report
from nccl_doctor.reporters import FORMATS, Options, render
from nccl_doctor.reporters.advice import steps
from nccl_doctor.reporters.json_report import schema
from nccl_doctor.reporters.words import clean, clean_block, nested, shortened

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]markup[/bold] [link=http://x]y[/link] <script>alert(1)</script> & \"'"
    " ]]> --> \x00\x08\x7f\x9b2J \u202egnp.exe\u202c \ud800 \ufffe `code` ``` @everyone ![x](http://x/y.png) :smile: 日本語の行"
)


def finding(rule: str = "NET003", **changes: Any) -> Finding:
    given: dict[str, Any] = {
        "rule": rule,
        "name": "libibverbs-missing",
        "title": "libibverbs cannot be loaded",
        "severity": "error",
        "role": "cause",
        "confidence": "certain",
        "message": "node[01-02] could not load libibverbs, so NCCL sees no InfiniBand or RoCE device",
        "why": "NCCL loads the library at run time. Without it all traffic between nodes goes through TCP.",
        "fix": "Install the package in the image:\n  apt-get install libibverbs1\nTakes a minute; undo by removing it.",
        "hosts": "node[01-02]",
        "ranks": "0-15",
        "values": {"host": "node01", "rank": 3, "share": 0.5, "none": None},
        "references": ["NCCL src/misc/ibvwrap.cc", "https://docs.nvidia.com/deeplearning/nccl/"],
        "evidence": [
            Place("job.log", 12, "node01:101:140 [0] NCCL INFO NET/IB : Failed to open libibverbs.so[.1]"),
            Place("job.log", 45, "node02:101:140 [0] NCCL INFO NET/IB : Failed to open libibverbs.so[.1]"),
        ],
    }
    return Finding(**{**given, **changes})


def report(verdict: str = "error", *findings: Finding, **changes: Any) -> Report:
    given: dict[str, Any] = {
        "inputs": [InputSummary("job.log", "nccl-log", 1000, 200, 120, 121)],
        "job": {"hosts": 2, "ranks": 16, "nccl_versions": ["2.21.5"], "network": ["Socket"]},
        "checks": [
            *(Check(one.rule, one.name, "found") for one in findings),
            Check("NET009", "port-down", "skipped", "no facts in table port", "a log with NCCL_DEBUG=INFO"),
            Check("NET010", "odd-rule", "broken", "no such column: x"),
            Check("NET011", "clear-rule", "clear"),
        ],
        "job_lines": ["2 hosts node[01-02] · 16 x H100 · 16 ranks", "412 ms a step · ended in order"],
        "coverage": [
            CoverageRow(
                "start-up", "seen", "16 of 16 ranks came up", "NCCL_DEBUG=INFO", [Place("job.log", 3, "Init COMPLETE")]
            ),
            CoverageRow("progress", "partly", "2 step lines", "the step lines"),
            CoverageRow("gpus", "not", "", "nvidia-smi"),
        ],
        "measures": [
            MeasureRow("step_time", 0.412, "s", "run", "megatron", [Place("job.log", 90, "elapsed time 412")])
        ],
        "missing": ["the log holds no INFO lines; rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"],
    }
    return Report(verdict=verdict, findings=list(findings), **{**given, **changes})


def hostile() -> Report:
    bad = finding(
        title=HOSTILE, message=HOSTILE, why=HOSTILE, fix=f"{HOSTILE}\n{HOSTILE}", hosts=HOSTILE, ranks=HOSTILE,
        values={HOSTILE: HOSTILE, "list": [HOSTILE], "nan": float("nan")}, references=[HOSTILE, f"https://x/{HOSTILE}"],
        evidence=[Place(HOSTILE, 1, HOSTILE), Place("/a/b/" + "c" * 300 + ".log", 2, "x" * 3000)],
    )  # fmt: skip
    return report(
        "error", bad, finding("NET001", title=HOSTILE, severity="warning", explained_by=["NET003"]),
        finding("CFG001", title=HOSTILE, severity="note"),
        inputs=[InputSummary(HOSTILE, "job-log", 1, 1, 0, 0, HOSTILE)], job_lines=[HOSTILE], basis=HOSTILE,
        unread=[Place(HOSTILE, 1, HOSTILE)], unread_count=1, coverage=[CoverageRow("end", "seen", HOSTILE, HOSTILE)],
        measures=[MeasureRow(HOSTILE, float("inf"), HOSTILE, "run", HOSTILE)],
        job={"hosts": 1, "ranks": 1, "nccl_versions": [HOSTILE], "network": [HOSTILE]},
        checks=[Check("NET003", "a", "found"), Check("NET004", HOSTILE, "skipped", HOSTILE), Check("NET005", "b", "broken", HOSTILE)],
        missing=[HOSTILE],
    )  # fmt: skip


def large() -> Report:
    """More of everything than a screen holds."""
    fix = "\n".join(
        f"Step {n}: look at the other side of the link and replace the cable if it counts errors." for n in range(30)
    )
    places = [
        Place("/scratch/project/user/run/2024/job.log", n, "node01:1:1 [0] NCCL WARN " + "x" * 200)
        for n in range(1, 13)
    ]
    first = finding(
        message="many words " * 60, fix=fix, evidence=places, hosts=",".join(f"host{n}x" for n in range(90))
    )
    follows = [finding(f"SYM{n:03}", role="symptom", severity="warning", explained_by=["NET003"]) for n in range(20)]
    also = [finding(f"CFG{n:03}", role="context", severity="note") for n in range(20)]
    return report("error", first, *follows, *also)


REPORTS = {
    "error": lambda: report("error", finding(), finding("NET001", severity="warning", role="symptom", explained_by=["NET003"])),
    "warning": lambda: report("warning", finding(severity="warning", confidence="possible", hosts="", ranks="", evidence=[])),
    "note": lambda: report("note", finding(severity="note")),
    "healthy": lambda: report("healthy", missing=[]),
    "inconclusive": lambda: report("inconclusive", inputs=[InputSummary("x", "text", 1, 1, 0)], job={}),
    "empty": lambda: Report("inconclusive", [], {}, [], []),
    "hostile": hostile,
    "large": large,
}  # fmt: skip
every_report = pytest.mark.parametrize("name", REPORTS)


@every_report
@pytest.mark.parametrize("form", FORMATS)
def test_no_format_lets_a_control_character_through(form: str, name: str) -> None:
    text = render(form, REPORTS[name]())
    assert [] == sorted({c for c in text if not c.isprintable() and c != "\n"})
    assert text.endswith("\n")
    text.encode("utf-8")


@every_report
def test_json_is_what_its_schema_says(name: str) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    document = json.loads(render("json", REPORTS[name]()), parse_constant=lambda text: pytest.fail(text))
    assert [] == [error.message for error in validator.iter_errors(document)]


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
    errors = list(jsonschema.Draft202012Validator(schema()).iter_errors(document))
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
        (
            "Count what is in use (`rdma resource show`) first.",
            ["Count what is in use:", "$ rdma resource show", "First."],
        ),
        ("Set `--gpus all` and `LimitMEMLOCK=infinity`.", ["Set `--gpus all` and `LimitMEMLOCK=infinity`."]),
        ("Start with `NCCL_DEBUG=INFO srun -n 2 a.out`.", ["Start with:", "$ NCCL_DEBUG=INFO srun -n 2 a.out"]),
        ("", []),
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


# other formats


@every_report
def test_sarif_has_the_structure_of_2_1_0(name: str) -> None:
    shown = REPORTS[name]()
    log = json.loads(render("sarif", shown))
    assert "2.1.0" == log["version"]
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    assert [one.rule for one in shown.findings] == [result["ruleId"] for result in run["results"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert 0 <= result["rank"] <= 100
        assert result["message"]["text"]
        for location in result["locations"] + result["relatedLocations"]:
            assert re.fullmatch(r"[\x21-\x7e]+", location["physicalLocation"]["artifactLocation"]["uri"])
            assert location["physicalLocation"]["region"]["startLine"] >= 1


def test_sarif_points_at_the_lines() -> None:
    (result,) = json.loads(render("sarif", report("error", finding())))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert ("job.log", 12) == (place["artifactLocation"]["uri"], place["region"]["startLine"])
    assert 45 == result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"]


def test_markdown_shows_log_text_as_text() -> None:
    text = render("markdown", hostile())
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script" not in outside.replace("\\<", "")
    assert not re.search(r"(?<!\\)@everyone", outside)
    assert not re.search(r"(?<!\\)!(?<!\\)\[", outside)
    assert "````text" in text  # longer than the fence inside the log


def test_markdown_keeps_code_of_the_advice_and_nothing_else() -> None:
    told = finding()
    told.fix = "Run `ulimit -l` and *look*.\n1. `a|b` ``c`"
    text = render("markdown", report("error", told))
    assert "**Next**\n\nRun:\n\n```sh\nulimit -l\n```\n\n\\*look\\*.\n\n1\\. `a|b` " in text
    assert "\\`\\`c\\`" in text


def test_markdown_reads_like_a_report() -> None:
    text = render("markdown", REPORTS["error"]())
    assert text.startswith("## ERROR: libibverbs cannot be loaded\n")
    assert "\njob.log:12: node01:101:140 [0] NCCL INFO" in text
    assert "**Follows from it**\n\n- warning NET001 libibverbs-missing: libibverbs cannot be loaded" in text


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [key for key, _ in attrs if key.startswith("on") or key in ("src", "style")]
        self.links += [value or "" for key, value in attrs if key == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


@every_report
def test_html_runs_and_loads_nothing(name: str) -> None:
    page = Page(render("html", REPORTS[name]()))
    assert not {"script", "img", "link", "iframe", "object", "base", "form"} & set(page.tags)
    assert all(link.startswith("https://") for link in page.links)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_html_shows_log_text_as_text() -> None:
    assert "<script>alert(1)</script>" in Page(render("html", hostile())).text


@every_report
def test_junit_counts_what_it_lists(name: str) -> None:
    root = ElementTree.fromstring(render("junit", REPORTS[name]()))
    suite = root.find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    assert len(REPORTS[name]().checks) == len(cases)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))


def test_junit_has_one_case_a_rule() -> None:
    shown = report("error", finding(), finding(hosts="node03"), finding("CFG001", severity="note"))
    shown.checks = [
        Check("NET003", "a", "found"),
        Check("CFG001", "b", "found"),
        Check("NET009", "c", "skipped", "no facts"),
    ]
    root = ElementTree.fromstring(render("junit", shown))
    outcomes = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    assert {"NET003 a": ["failure"], "CFG001 b": ["system-out"], "NET009 c": ["skipped"]} == outcomes
    assert "node03" in (root.findtext(".//failure") or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\x1b[1;31mb\x1b[0mc", "abc"),
        ("a\x1b]8;;http://x\x1b\\b", "ab"),
        ("a\tb\rc\nd", "a b c d"),
        ("a\u202eb\u200bc", "abc"),
        ("a\ud800b", "a\ufffdb"),
        ("a\xa0b", "a b"),
        ("日本", "日本"),
    ],
)
def test_clean_leaves_what_can_be_seen(text: str, expected: str) -> None:
    assert expected == clean(text)


def test_clean_block_keeps_lines() -> None:
    assert "a\n  b c" == clean_block("\na  \n  b\tc\n")
