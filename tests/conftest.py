"""Fixtures that several test files share."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

SOURCE = Path(__file__).parent / "nvml_stub" / "nvml_stub.c"


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


@dataclass
class NvmlStub:
    """A folder that holds our libnvidia-ml.so.1."""

    folder: Path

    def environ(self, state: Mapping[str, object], file: Path) -> dict[str, str]:
        """The environment of a program that shall find the library, which answers with `state`, kept in `file`."""
        file.write_text("".join(f"{key}={value}\n" for key, value in state.items()))
        return {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "NVML_STUB_FILE": str(file)}


def _build(folder: Path, *flags: str) -> NvmlStub:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc), so there is no stand-in for libnvidia-ml.so.1")
    subprocess.run(
        [compiler, "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1",
         "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)],
        check=True,
    )  # fmt: skip
    return NvmlStub(folder)


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """A library with all functions that we call."""
    return _build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """A library that lacks what a driver 470 lacks."""
    return _build(tmp_path_factory.mktemp("nvml470"), "-DDRIVER_470")
