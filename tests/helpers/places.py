"""Folders that tests read."""

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "fixtures"
DEMO = FIXTURES / "demo.log"
# Genuine files that are not part of the repository. Only tests/shared_inputs reads them, and is skipped without them.
SHARED = Path(os.environ.get("NCCL_DOCTOR_SHARED") or ROOT.parent / "shared")
