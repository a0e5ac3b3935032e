"""A stand-in for libnvidia-ml.so.1, built from C, and what it answers."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml_stub" / "nvml_stub.c"
STUB = {
    "count": 2, "driver": "550.54.15", "nvml": "12.550.54.15", "cuda": 12040, "model": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1",
    "1.uuid": "GPU-2", "util": 97, "1.util": 3, "memory_total": 85520809984, "memory_used": 1073741824, "power_mw": 412345,
    "power_limit_mw": 700000, "clock_sm": 1755, "clock_memory": 2619, "reasons": 0x40, "temperature": 61, "1.temperature": 88,
}  # fmt: skip


@dataclass
class NvmlStub:
    """A folder that holds our libnvidia-ml.so.1."""

    folder: Path

    def environ(self, state: Mapping[str, object], file: Path) -> dict[str, str]:
        """The environment of a program that shall find the library, which answers with `state`, kept in `file`."""
        file.write_text("".join(f"{key}={value}\n" for key, value in state.items()))
        # Root loads libraries from system folders alone: this folder is one for every Python that has it on its path.
        (self.folder / "sitecustomize.py").write_text(
            f"from nccl_doctor.common import trusted\ntrusted.LIBRARIES = ({str(self.folder)!r},)\n"
        )
        return {
            **os.environ, "LD_LIBRARY_PATH": str(self.folder), "NVML_STUB_FILE": str(file), "PYTHONPATH": str(self.folder),
        }  # fmt: skip


def build(folder: Path, *flags: str) -> NvmlStub:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc), so there is no stand-in for libnvidia-ml.so.1")
    subprocess.run(
        [compiler, "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1",
         "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)],
        check=True,
    )  # fmt: skip
    return NvmlStub(folder)
