"""Small logs in the words of one program, and what a report says of them."""

from pathlib import Path
from textwrap import dedent

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report


def report_of(folder: Path, log: str) -> Report:
    path = folder / "job.log"
    path.write_text(dedent(log).lstrip("\n"))
    return analyze.analyze([str(path)])[0]


def first_of(folder: Path, log: str) -> str:
    """The name of the first finding; empty where nothing was found."""
    return next((found.name for found in report_of(folder, log).findings), "")


def alarms_of(folder: Path, log: str) -> list[str]:
    """The names of the findings that are more than notes."""
    return [found.name for found in report_of(folder, log).findings if found.severity != "note"]
