"""Reporters: a report goes in, the text of one format comes out. One module a format, loaded when it is asked for."""

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from nccl_doctor.diagnosis.report import Report

# format -> module
FORMATS = {
    "terminal": "terminal",
    "json": "json_report",
    "sarif": "sarif",
    "markdown": "markdown",
    "html": "html_report",
    "junit": "junit",
}
SUFFIXES = {
    ".json": "json",
    ".sarif": "sarif",
    ".md": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xml": "junit",
}


@dataclass(frozen=True)
class Options:
    """How a report is shown. Only the terminal looks at all of them."""

    width: int = 80  # cells
    height: int = 24  # lines of the screen; `verbose` ignores it
    verbose: bool = False  # everything, uncut
    color: bool = False
    ascii: bool = False  # the output cannot show more than ASCII


class Reporter(Protocol):
    def render(self, report: Report, options: Options) -> str:
        """The whole report as text."""


def render(name: str, report: Report, options: Options | None = None) -> str:
    """The report in the format of that name. Raises KeyError for a format that does not exist."""
    module = cast(Reporter, importlib.import_module(f"nccl_doctor.reporters.{FORMATS[name]}"))
    return module.render(report, options or Options())
