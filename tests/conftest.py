"""Fixtures and settings that all tests share."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.register_assert_rewrite("helpers")

from helpers.examples import load_profile  # noqa: E402 - rewritten before it is imported
from helpers.nvml import NvmlStub, build  # noqa: E402

from nccl_doctor.common import budgets  # noqa: E402

load_profile()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; programs under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each of thousands of programs under test would compile 300 modules for half a second, each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Programs under test start with small files allowed. One of them must not be the first that compiles this module:
# Python 3.11 would keep what was cut at the limit, and no program after it could start.
import nccl_doctor.__main__  # noqa: E402, F401

WITHOUT = os.environ.get("NCCL_DOCTOR_TEST_WITHOUT", "")  # an optional package that is installed and must not be used
if WITHOUT:
    absent = Path(__file__).parent / "helpers" / "without" / WITHOUT
    if not absent.is_dir():
        raise pytest.UsageError(f"NCCL_DOCTOR_TEST_WITHOUT={WITHOUT}: no such folder: {absent}")
    sys.path.insert(0, str(absent))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(absent), os.environ.get("PYTHONPATH"))))

IN_MEMORY = Path("/dev/shm")  # thousands of small files are a node's tree: ten times the processor time on a disk
GIB = 2**30


def room_in_memory() -> bool:
    """Whether temporary folders fit there, and programs in them may be started."""
    if not os.access(IN_MEMORY, os.W_OK | os.X_OK):
        return False
    disk = os.statvfs(IN_MEMORY)
    free = min(disk.f_bavail * disk.f_frsize, psutil.virtual_memory().available)
    return free > 6 * GIB and not disk.f_flag & os.ST_NOEXEC


if room_in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def pytest_report_header() -> str:
    return f"without {WITHOUT}" if WITHOUT else ""


@pytest.fixture(autouse=True)
def usual_budgets() -> Iterator[None]:
    """A test that sets a limit sets it for itself only."""
    yield
    budgets.reset()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user may enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="nccl-doctor-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """A library with all functions that we call."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """A library that lacks what a driver 470 lacks."""
    return build(tmp_path_factory.mktemp("nvml470"), "-DDRIVER_470")
