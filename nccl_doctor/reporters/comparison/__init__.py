"""Reporters of comparisons: `pair_*` of two runs, `runs_*` of many."""

import importlib

from nccl_doctor.diagnosis.comparison import Comparison, RunsTable
from nccl_doctor.reporters import Options

PAIR = ("terminal", "json", "markdown", "html")
RUNS = (*PAIR, "csv")
SUFFIXES = {".json": "json", ".md": "markdown", ".html": "html", ".htm": "html", ".csv": "csv"}


def render(name: str, shown: Comparison | RunsTable, options: Options | None = None) -> str:
    """Returns the comparison in this format, one of PAIR or of RUNS."""
    kind = "pair" if isinstance(shown, Comparison) else "runs"
    module = importlib.import_module(f"nccl_doctor.reporters.comparison.{kind}_{name}")
    text: str = module.render(shown, options or Options())
    return text
