"""Writes docs/reports.md: ten reports, each as the earliest version printed it and as it is printed now.

Run it from the root of the repository: `python bench/reports.py`. The texts of the earliest version are kept in docs/reports.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEFORE = ROOT / "docs" / "reports"
PAGE = ROOT / "docs" / "reports.md"
INPUTS = {
    "log": ("demo.log", "A job that failed while it registered memory"),
    "hang": ("job/xid-hang", "A recording of a job that hung after a GPU fell off the bus"),
    "nccl-tests": ("nccl_tests/a100_8.out", "A healthy run of nccl-tests"),
    "nccl-tests-cut": ("nccl_tests/h100_8_cut.out", "A run of nccl-tests that is cut"),
    "training": ("throughput/megatron_16.log", "A training log without NCCL lines"),
    "timeline": ("timeline/slow_rank2_4r.json", "A Horovod timeline"),
    "flight-recorder": ("torch/fr_missing_rank2", "Dumps of the flight recorder"),
    "stacks": ("stacks/stuck_rank0.txt", "Stacks of a process"),
    "topology": ("topology/node01.xml", "A topology file"),
    "gpu-samples": ("gpu/hot_gpu2.csv", "Samples of GPUs"),
}
HEAD = """# Ten reports, before and after

Each input lies in `fixtures/`; `bench/reports.py` writes this page, and a test compares it with what is printed. *Before* is what the
earliest version with this set of rules printed, kept as text; *after* is what `nccl-doctor analyze` prints on 80 columns.
"""


def printed(name: str, command: tuple[str, ...] = (sys.executable, "-m", "nccl_doctor")) -> str:
    """What `analyze` prints for one of the inputs."""
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "LINES": "24",
        "NO_COLOR": "1",
        "XDG_CONFIG_HOME": "/nonexistent",
        "PYTHONUTF8": "1",
    }
    path = f"fixtures/{INPUTS[name][0]}"
    done = subprocess.run(
        [*command, "analyze", path], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout.rstrip("\n")


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, (path, title) in INPUTS.items():
        before = (BEFORE / f"{name}.txt").read_text("utf-8").rstrip("\n")
        parts += [f"## {title}\n\n`nccl-doctor analyze fixtures/{path}`\n"]
        parts += [f"Before:\n\n```text\n{before}\n```\n", f"After:\n\n```text\n{printed(name)}\n```\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
