"""SARIF, Markdown, HTML, JUnit XML and Prometheus text of reports."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from helpers.reports import REPORTS, every_report, finding, hostile, report

from nccl_doctor.diagnosis.report import Check, CoverageRow, MeasureRow
from nccl_doctor.reporters import render
from nccl_doctor.reporters.words import clean, clean_block

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
    told.fix = "Run `ulimit -l`, then *look*.\n1. `a|b` ``c`"
    text = render("markdown", report("error", told))
    assert "**Next**\n\nRun:\n\n```sh\nulimit -l\n```\n\nThen \\*look\\*.\n\n1\\. `a|b` " in text
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
    assert all(link.startswith(("https://", "#")) for link in page.links)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_html_shows_log_text_as_text() -> None:
    assert "<script>alert(1)</script>" in Page(render("html", hostile())).text


@every_report
def test_prometheus_can_be_parsed(name: str) -> None:
    series = [line for line in render("prometheus", REPORTS[name]()).splitlines() if not line.startswith("#")]
    labels = r"""[a-z]+="(?:[^"\\]|\\["\\])*\""""
    form = re.compile(rf"nccl_doctor_[a-z_]+{{{labels}(?:,{labels})*}} (-?[\d.e+-]+)")
    assert series
    assert all(form.fullmatch(line) for line in series), series
    assert len(series) == len({line.rpartition(" ")[0] for line in series})


def test_prometheus_has_verdict_findings_measures_and_coverage() -> None:
    shown = report("error", finding(), finding(hosts="node03", severity="error"))
    shown.measures = [MeasureRow("step time", 0.412, "s", "job", "")]
    shown.coverage = [CoverageRow("transports", "seen", "", "")]
    text = render("prometheus", shown)
    assert 'verdict="error"} 1\n' in text
    assert 'verdict="healthy"} 0\n' in text
    assert 'name="step time",unit="s",scope="job",of=""} 0.412\n' in text
    assert 'aspect="transports",seen="seen"} 1\n' in text
    assert re.search(
        r'nccl_doctor_finding\{job="[^"]*",rule="NET003",name="libibverbs-missing",severity="error"\} \d+', text
    )


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
