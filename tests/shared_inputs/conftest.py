"""Everything in this folder reads genuine files that are not part of the repository, and is skipped without them."""

import pytest
from helpers.places import SHARED


@pytest.fixture(autouse=True, scope="session")
def _genuine_files() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no genuine files in {SHARED} (NCCL_DOCTOR_SHARED names another folder)")
