"""One log behind any launcher or collector: the same findings on the same hosts and ranks."""

from pathlib import Path
from typing import Any

import pytest
from helpers.log_prefixes import FAULTS, FORMS, Said, analysed, simulated


@pytest.fixture(scope="module", params=FAULTS, ids=lambda fault: fault or "healthy")
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Said], tuple[Any, ...]]:
    lines = simulated(request.param)
    bare = "".join(f"{said.text}\n" for said in lines)
    return lines, analysed(bare, tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("form", FORMS)
def test_a_prefix_changes_no_finding(job: tuple[list[Said], tuple[Any, ...]], form: str, tmp_path: Path) -> None:
    lines, expected = job
    assert expected == analysed("".join(f"{FORMS[form](said)}\n" for said in lines), tmp_path)
