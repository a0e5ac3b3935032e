"""SARIF 2.1.0, for code review tools and other programs that show findings beside lines."""

import json
from typing import Any
from urllib.parse import quote

from nccl_doctor import __version__
from nccl_doctor.diagnosis.report import Finding, Place, Report
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.words import clean, clean_block, scope

# Confidence as SARIF rank (0 to 100), the priority of a result.
RANKS = {"certain": 95.0, "likely": 70.0, "possible": 40.0}


def render(report: Report, options: Options) -> str:
    """Returns the report as one SARIF log: one run, or one for each of several jobs."""
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [_run(one) for one in [report, *report.jobs]],
    }
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _run(report: Report) -> dict[str, Any]:
    rules = list({finding.rule: finding for finding in report.findings}.values())
    index = {finding.rule: number for number, finding in enumerate(rules)}
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "nccl-doctor", "version": __version__, "rules": [_rule(rule) for rule in rules]}},
        "artifacts": [{"location": {"uri": _uri(one.path)}, "length": one.bytes} for one in report.inputs],
        "results": [_result(finding, index[finding.rule]) for finding in report.findings],
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(report)}],
        "properties": {"verdict": report.verdict},
    }
    if report.name:
        run["automationDetails"] = {"id": clean(report.name)}
    return run


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.rule,
        "name": finding.name,
        "shortDescription": {"text": clean(finding.title)},
        "fullDescription": {"text": clean_block(finding.why)},
        "help": {"text": clean_block(finding.fix)},
        "defaultConfiguration": {"level": finding.severity},
        "properties": {"role": finding.role},
    }
    if links := [one for one in finding.references if one.startswith("https://")]:
        rule["helpUri"] = quote(clean(links[0]), safe="/:?&=#%+,-._~")
    return rule


def _result(finding: Finding, index: int) -> dict[str, Any]:
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "rank": RANKS[finding.confidence],
        "message": {"text": clean_block(finding.message) or clean(finding.title)},
        "locations": [_location(place, finding) for place in finding.evidence[:1]],
        "relatedLocations": [_location(place, finding) for place in finding.evidence[1:]],
        "occurrenceCount": finding.count,
        "properties": {"confidence": finding.confidence, "role": finding.role, "explainedBy": finding.explained_by},
    }


def _location(place: Place, finding: Finding) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.file)}}
    if place.line > 0:
        physical["region"] = {"startLine": place.line, "snippet": {"text": clean(place.text)}}
    location: dict[str, Any] = {"physicalLocation": physical}
    if where := scope(finding):
        location["logicalLocations"] = [{"name": where, "kind": "resource"}]
    return location


def _notifications(report: Report) -> list[dict[str, Any]]:
    notes = [("note", text) for text in report.missing]
    notes += [("warning", f"{one.path}: {one.note}") for one in report.inputs if one.note]
    notes += [("error", f"rule {c.rule} broke: {c.reason}") for c in report.checks if c.outcome == "broken"]
    return [{"level": level, "message": {"text": clean_block(text)}} for level, text in notes]


def _uri(path: str) -> str:
    return ("file://" if path.startswith("/") else "") + (quote(clean(path), safe="/-._~") or "unknown")
