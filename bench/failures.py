"""CPU seconds of `analyze` on a job that fails, for each fault of `simulate`: what a failure costs beside a healthy job of so many ranks.

    python bench/failures.py [--nodes N [N ...]] [--only FAULT [FAULT ...]]

When a job ends, each rank says so in its own words; a rule that names all evidence once for each rank shows here.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import logs

from nccl_doctor.simulate import FAULTS

HEALTHY = "healthy"
RANKS_A_NODE = 8


def written(path: Path, nodes: int, fault: str) -> float | None:
    """Writes the log of a job. Returns its MB; None where the fault needs another kind of job."""
    chosen = [] if fault == HEALTHY else ["--fault", fault]
    command = [sys.executable, "-m", "nccl_doctor", "simulate", "--nodes", str(nodes), *chosen, "--output", str(path)]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        return None
    return path.stat().st_size / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[250], help=f"of {RANKS_A_NODE} ranks")
    parser.add_argument("--only", nargs="+", metavar="FAULT", choices=[HEALTHY, *FAULTS], default=[HEALTHY, *FAULTS])
    args = parser.parse_args()
    print(f"{'fault':32} {'ranks':>7} {'MB':>6} {'seconds':>8} {'CPU s':>7} {'CPU ms a rank':>14} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        for fault in args.only:
            for nodes in args.nodes:
                if (megabytes := written(path, nodes, fault)) is None:
                    print(f"{fault:32} needs another kind of job", flush=True)
                    continue
                command = [sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never", str(path)]
                seconds, processor, peak = logs.run(command)
                ranks = RANKS_A_NODE * nodes
                figures = f"{ranks:7} {megabytes:6.1f} {seconds:8.2f} {processor:7.2f} {1000 * processor / ranks:14.2f}"
                print(f"{fault:32} {figures} {peak:8.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
