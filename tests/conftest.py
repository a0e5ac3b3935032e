"""Fixtures that several test files share."""

import pytest

pytest.register_assert_rewrite("helpers")

from helpers.nvml import NvmlStub, build  # noqa: E402 - rewritten before it is imported


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """A library with all functions that we call."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """A library that lacks what a driver 470 lacks."""
    return build(tmp_path_factory.mktemp("nvml470"), "-DDRIVER_470")
