"""docs/security-preflight.md and docs/prologues.md: what they name exists."""

import ast
import re
from pathlib import Path

import pytest
from helpers.places import ROOT

TABLE = (ROOT / "docs" / "security-preflight.md").read_text()
PROLOGUES = ROOT / "docs" / "prologues.md"
NAMED = sorted(set(re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", TABLE)))
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith(("| outage", "| attack"))]


def functions(file: Path) -> set[str]:
    return {
        one.name for one in ast.parse(file.read_text()).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_row_names_a_test() -> None:
    assert len(ROWS) > 40
    assert [] == [
        row for row in ROWS if re.search(r"tests/[\w/]+\.py::test_\w+", row) is None or 3 != row.count(" | ") + 1
    ]


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name or file for file, name in NAMED])
def test_the_test_exists(file: str, name: str) -> None:
    assert not name or name in functions(ROOT / file)
    assert (ROOT / file).exists()


def test_the_documented_scripts_are_the_shipped_ones() -> None:
    text = PROLOGUES.read_text()
    shipped = {file.name for file in (ROOT / "docs" / "prologues").iterdir()}
    named = set(re.findall(r"(?:/etc/nccl-doctor/|prologues/|\| )([\w-]+\.(?:sh|py|yaml|json|timer))", text))
    assert shipped == named


def test_limits_of_the_launcher_and_of_slurm_fit_together() -> None:
    launch = (ROOT / "docs" / "prologues" / "launch.sh").read_text()
    limit = re.search(r"(?m)^LIMIT=(\d+)", launch)
    slurm = re.search(r"PrologEpilogTimeout=(\d+)", PROLOGUES.read_text())
    assert limit is not None
    assert slurm is not None
    assert int(limit[1]) + 5 < int(slurm[1])
