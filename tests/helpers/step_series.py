"""Step lines read by pandas, and scaling tables of several runs, for comparison."""

import re
from collections.abc import Iterable
from pathlib import Path

import pandas

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Scaling
from nccl_doctor.formats.training.steps import step_lines


def raw(path: Path, pattern: str) -> pandas.DataFrame:
    text = path.read_text("utf-8", "replace")
    return pandas.DataFrame([m.groups() for m in re.finditer(pattern, text)]).apply(pandas.to_numeric)


def efficiencies(facts: Facts) -> dict[int, float]:
    return {row.gpus: row.efficiency for row in facts.rows(Scaling)}


def scaling(paths: Iterable[Path]) -> Facts:
    facts = Facts()
    for path in paths:
        with path.open("rb", buffering=0) as stream:
            step_lines.read_format(stream, str(path), facts)
    derive_all(facts)
    return facts
