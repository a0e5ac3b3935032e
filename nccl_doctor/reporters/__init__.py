"""Reporters: each module renders a report in one format and is loaded when it is needed."""

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from nccl_doctor.diagnosis.report import Report

# format -> module
FORMATS = {
    "terminal": "terminal",
    "short": "short",
    "json": "json_report",
    "sarif": "sarif",
    "markdown": "markdown",
    "html": "html_report",
    "junit": "junit",
    "prometheus": "prometheus",
    "github": "github",
}
SUFFIXES = {
    ".json": "json",
    ".sarif": "sarif",
    ".md": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xml": "junit",
    ".prom": "prometheus",
}


@dataclass(frozen=True)
class Options:
    """How a report is shown. Only the terminal reporter uses all of them."""

    width: int = 80  # columns
    height: int = 24  # lines of the screen; ignored with `verbose`
    verbose: bool = False  # show everything, uncut
    color: bool = False
    ascii: bool = False  # the output can show only ASCII


class Reporter(Protocol):
    def render(self, report: Report, options: Options) -> str:
        """Returns the whole report as text."""


def render(name: str, report: Report, options: Options | None = None) -> str:
    """Returns the report in this format. Raises KeyError for an unknown format."""
    module = cast(Reporter, importlib.import_module(f"nccl_doctor.reporters.{FORMATS[name]}"))
    return module.render(report, options or Options())
