"""JUnit XML, for pipelines that test a cluster: one test case per rule."""

from xml.etree import ElementTree

from nccl_doctor.diagnosis.report import Check, Finding, Report
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.words import clean, clean_block, scope


def render(report: Report, options: Options) -> str:
    """Returns one test case per rule: found is a failure unless it is a note, skipped is skipped, broken is an error."""
    suites = [_suite(one) for one in [report, *report.jobs]]
    keys = ("tests", "failures", "errors", "skipped")
    totals = {key: str(sum(int(suite.get(key, "0")) for suite in suites)) for key in keys}
    root = ElementTree.Element("testsuites", {"name": "nccl-doctor", **totals})
    root.extend(suites)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report) -> ElementTree.Element:
    """One job as a suite."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    cases = [_case(check, by_rule.get(check.rule, [])) for check in report.checks]
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    attributes = {"name": clean(report.name) or "nccl-doctor", **{key: str(value) for key, value in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "verdict", "value": report.verdict})
    suite.extend(cases)
    return suite


def _case(check: Check, findings: list[Finding]) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": "nccl-doctor", "name": clean(f"{check.rule} {check.name}")})
    alarms = [finding for finding in findings if finding.severity != "note"]
    notes = [finding for finding in findings if finding.severity == "note"]
    if check.outcome == "skipped":
        ElementTree.SubElement(case, "skipped", {"message": clean(check.reason)})
    elif check.outcome == "broken":
        ElementTree.SubElement(case, "error", {"message": clean(check.reason), "type": "broken"})
    elif alarms:  # readers expect at most one failure per case
        attributes = {"message": clean(alarms[0].message or alarms[0].title), "type": alarms[0].severity}
        failure = ElementTree.SubElement(case, "failure", attributes)
        failure.text = "\n\n".join(map(_words, alarms))
    if notes:
        ElementTree.SubElement(case, "system-out").text = "\n\n".join(map(_words, notes))
    return case


def _words(finding: Finding) -> str:
    lines = [
        f"{finding.severity}, {finding.confidence}: {clean(finding.title)}",
        scope(finding),
        clean_block(finding.message),
    ]
    lines += [f"{clean(place.file)}:{place.line}: {clean(place.text)}" for place in finding.evidence]
    lines += [clean_block(finding.fix)]
    return "\n".join(filter(None, lines))
