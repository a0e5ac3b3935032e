"""JSON as described by `reporters/schema/report-2.json`."""

import json
import math
from dataclasses import asdict, replace
from importlib import resources
from typing import Any

from nccl_doctor import __version__
from nccl_doctor.diagnosis.report import SCHEMA, Report
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.words import clean_block


def render(report: Report, options: Options) -> str:
    """Returns the report as one indented JSON document."""
    return json.dumps(document(report), indent=1, ensure_ascii=False, default=str) + "\n"


def document(report: Report) -> dict[str, Any]:
    """Returns the report as plain dictionaries and lists, without control characters."""
    content = {
        "schema": SCHEMA,
        "tool": {"name": "nccl-doctor", "version": __version__},
        **asdict(replace(report, jobs=[])),
    }
    order = ["schema", "tool", "inputs", "job", "job_lines", "verdict", "basis", "unread", "unread_count", "coverage"]
    order += ["measures", "findings", "checks", "missing"]
    if report.fitness:
        order.insert(order.index("verdict"), "fitness")
    shown = {key: cleaned(content[key]) for key in order}
    if report.resumed:
        shown["resumed"] = cleaned(report.resumed)
    if report.name:
        shown["name"] = cleaned(report.name)
    if report.jobs:
        shown["jobs"] = [document(job) for job in report.jobs]
    return shown


def schema() -> dict[str, Any]:
    """The JSON Schema of `document`."""
    text = (resources.files("nccl_doctor.reporters") / "schema" / "report-2.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def cleaned(value: Any) -> Any:
    """Returns plain data without control characters, NaN and infinite numbers."""
    if isinstance(value, str):
        return clean_block(value)
    if isinstance(value, dict):
        return {clean_block(str(key)): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no NaN and no Infinity
        return None
    return value
