"""docs/security.md, docs/security-preflight.md and docs/prologues.md: what they name exists."""

import ast
import re
from pathlib import Path

import pytest
from helpers.places import ROOT

TABLES = {name: (ROOT / "docs" / name).read_text() for name in ("security.md", "security-preflight.md")}
PROLOGUES = ROOT / "docs" / "prologues.md"
NAMED = sorted(set(re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", "".join(TABLES.values()))))
TRUST = "## Who trusts whom"  # a section without tests


def functions(file: Path) -> set[str]:
    return {
        one.name for one in ast.parse(file.read_text()).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def rows(text: str) -> list[str]:
    without_trust = re.sub(rf"{TRUST}\n.*?\n## ", "## ", text, flags=re.DOTALL)
    heads = ("| outage", "| attack")
    return [line for line in without_trust.splitlines() if line.startswith("| ") and not line.startswith(heads)]


@pytest.mark.parametrize(("name", "least"), [("security.md", 30), ("security-preflight.md", 40)])
def test_every_row_names_a_test(name: str, least: int) -> None:
    assert len(rows(TABLES[name])) >= least
    assert [] == [
        row
        for row in rows(TABLES[name])
        if re.search(r"tests/[\w/]+\.py::test_\w+", row) is None or 3 != row.count(" | ") + 1
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
