"""Genuine logs, cases and recorded files are taken for the special formats that they are and for no other."""

from pathlib import Path

import pytest
from helpers.places import SHARED

from nccl_doctor.formats import registry

PATHS = [
    path
    for pattern in ("cases/*/log.txt", "real/*/*", "artifacts/*/*.*", "knowledge/*.md")
    for path in sorted(SHARED.glob(pattern))
    if path.is_file()
]


@pytest.fixture(scope="module")
def taken() -> dict[str, set[Path]]:
    """Kind -> the files that are recognised as such."""
    kinds: dict[str, set[Path]] = {}
    for path in PATHS:
        with path.open("rb") as file:
            known = registry.recognise(file.read(1 << 16))
        if known is not None:
            kinds.setdefault(known.kind, set()).add(path)
    return kinds


@pytest.mark.parametrize("kind", ["kubernetes", "packages", "nccl-ras", "nccl-inspector"])
def test_nothing_is_taken_for_a_format_of_which_there_is_no_file(taken: dict[str, set[Path]], kind: str) -> None:
    assert set() == taken.get(kind, set())


@pytest.mark.parametrize(("kind", "pattern"), [("gpu-samples", "*monitor.jsonl"), ("nccl-topology", "*.xml")])
def test_only_these_files_are_taken_for_a_format(taken: dict[str, set[Path]], kind: str, pattern: str) -> None:
    assert {path for path in PATHS if path.match(pattern)} == taken[kind]
