"""The Python API: `from nccl_doctor import analyze`; docs/api.md describes it.

Nothing here prints. What a person can put right raises UsageProblem, whose text is one line.
"""

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_doctor.app import analyze as _analyze
from nccl_doctor.app import explain as _explain
from nccl_doctor.app.comparison import pair
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.diagnosis import report as _report
from nccl_doctor.diagnosis.comparison import Change, Comparison
from nccl_doctor.diagnosis.report import CoverageRow, Finding, MeasureRow, Place
from nccl_doctor.facts.guard import QueryProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.reporters import Options, json_report, render, words
from nccl_doctor.rules.site_config import Config

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Change",
    "Comparison",
    "CoverageRow",
    "Finding",
    "MeasureRow",
    "Place",
    "QueryProblem",
    "Report",
    "UsageProblem",
    "analyze",
    "compare",
    "explain",
]
Name = str | os.PathLike[str]
_FRAME = '<iframe sandbox title="nccl-doctor" style="width:100%;height:32rem;border:0" srcdoc="{}"></iframe>'


class Report:
    """What `analyze` found: the verdict, findings with their lines, numbers, and the tables of facts behind them."""

    def __init__(self, report: _report.Report, facts: Facts, problems: Sequence[str] = ()) -> None:
        self._report = report
        self._facts = facts
        self.problems = list(problems)  # one sentence for each input that was not read, or only in part

    @property
    def verdict(self) -> str:
        """`healthy`, `nothing-found`, `note`, `warning`, `error` or `inconclusive`."""
        return self._report.verdict

    @property
    def headline(self) -> str:
        """The answer in one clause."""
        return words.headline(self._report)

    @property
    def findings(self) -> list[Finding]:
        """Faults in the order of the diagnosis: a cause before the symptoms that it explains."""
        return self._report.findings

    @property
    def job(self) -> dict[str, Any]:
        """Hosts, ranks, versions, network and the like; a key that is missing or None is not known."""
        return self._report.job

    @property
    def measures(self) -> list[MeasureRow]:
        """Numbers with their units, each with the lines that show it."""
        return self._report.measures

    @property
    def coverage(self) -> list[CoverageRow]:
        """How much of each aspect of the job the inputs show, and how to capture the rest."""
        return self._report.coverage

    @property
    def jobs(self) -> list["Report"]:
        """One report for each job where the inputs are of several; their tables are those of all inputs."""
        return [Report(job, self._facts) for job in self._report.jobs]

    def tables(self) -> dict[str, int]:
        """The tables that have rows, and how many."""
        return {name: count for name, count in self._facts.counts().items() if count}

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows of one SELECT. Raises QueryProblem for anything that SQLite or the guard refuses."""
        return self._facts.sql(query)

    def frame(self, query: str) -> "pandas.DataFrame":
        """A table by its name, or the answer to a SELECT, as a pandas DataFrame. Raises QueryProblem as `sql` does."""
        return self._facts.frame(f"SELECT * FROM {query}" if query.isidentifier() else query)

    def save(self, path: Name) -> None:
        """Write the facts as an SQLite file, which `analyze` reads again. Raises OSError."""
        self._facts.save(Path(path))

    def to_dict(self) -> dict[str, Any]:
        """The report as `analyze --format json` prints it."""
        return json_report.document(self._report)

    def to_text(self, form: str = "terminal", width: int = 80) -> str:
        """The whole report in one of the formats of `analyze --format`. Raises KeyError for another one."""
        return render(form, self._report, Options(width=width, verbose=True))

    def __str__(self) -> str:
        return render("terminal", self._report)

    def __repr__(self) -> str:
        return f"<Report {self.verdict}: {self.headline}>"

    def _repr_html_(self) -> str:
        """The HTML report in a frame of its own that runs no script, for notebooks."""
        return _FRAME.format(escape(render("html", self._report)))


def analyze(
    *paths: Name,
    rules: Sequence[Name] = (),
    config: Name | None = None,
    jobs: str = "auto",
) -> Report:
    """Read logs, folders, archives or saved facts, and diagnose them, as `nccl-doctor analyze` does.

    `rules` are folders with rules of a site, `config` is a file with their settings, `jobs` is `auto`, `one`, `each` or `last`.
    Raises UsageProblem where nothing could be read.
    """
    if not paths:
        raise UsageProblem("name at least one input")
    if jobs not in ("auto", "one", "each", "last"):
        raise UsageProblem(f"jobs is auto, one, each or last, not {jobs!r}")
    settings = Config.read(Path(config)) if config is not None else None
    report, facts, problems = _analyze.analyze(
        [os.fspath(path) for path in paths],
        rules_dirs=[Path(folder) for folder in rules],
        config=settings,
        apart=jobs,
        drawn=True,
    )
    return Report(report, facts, problems)


def compare(before: Name, after: Name, tolerance: float = pair.TOLERANCE) -> Comparison:
    """What changed from one run to another. `tolerance` is the share by which a speed may differ.

    Raises UsageProblem where one of them cannot be read.
    """
    (old, _), (new, _) = (pair.read(os.fspath(path), drawn=True) for path in (before, after))
    return pair.compare(old, new, tolerance)


def explain(text: str) -> str | None:
    """What a rule, a log line, a variable, an Xid or an error code means; None where nothing is known about it."""
    return _explain.explain(text)
