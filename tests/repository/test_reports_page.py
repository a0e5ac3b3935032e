"""docs/reports.md shows what is printed now."""

import importlib.util

import pytest
from helpers.places import ROOT

SPEC = importlib.util.spec_from_file_location("reports_page", ROOT / "bench" / "reports.py")
assert SPEC is not None
assert SPEC.loader is not None
reports = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reports)


@pytest.mark.parametrize("name", reports.INPUTS)
def test_the_page_shows_the_report_as_it_is_printed(name: str) -> None:
    assert f"After:\n\n```text\n{reports.printed(name)}\n```" in reports.PAGE.read_text("utf-8"), "run bench/reports.py"


def test_the_page_has_ten_reports_and_what_was_printed_before() -> None:
    text = reports.PAGE.read_text("utf-8")
    assert 10 == text.count("\nBefore:\n") == text.count("\nAfter:\n") == len(reports.INPUTS)
    for name in reports.INPUTS:
        assert (reports.BEFORE / f"{name}.txt").read_text("utf-8").rstrip("\n") in text
