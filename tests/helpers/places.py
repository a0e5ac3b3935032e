"""Folders that tests read."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "fixtures"
SHARED = (
    ROOT.parent / "shared"
)  # inputs that are not part of the repository; tests that read them are skipped without them
