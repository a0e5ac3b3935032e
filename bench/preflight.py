"""Measures `preflight` on the tree of a node: cold starts to the verdict, in milliseconds and megabytes.

    python bench/preflight.py [--times N] [--machine TYPE]

A run is a new process of Python. Processor time is that of the parent and of all collectors, also of those that it left
behind; memory is the highest sum, over all processes at one moment, of what each holds (pages that several share are
divided between them), taken in runs of their own because looking disturbs. Needs Linux.
"""

import argparse
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from nccl_doctor.simulate import node  # noqa: E402  (of this checkout)

PR_SET_CHILD_SUBREAPER = 36
COMMAND = (sys.executable, "-m", "nccl_doctor", "preflight", "--state=-")
HEAVY = ("pandas", "numpy", "textual", "rich", "zstandard", "yaml")


def started(tree: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "--root", str(tree), *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)


def reaped(pid: int) -> tuple[float, int]:
    """Returns CPU seconds of a process with its children, and its own peak resident memory in kB."""
    busy, peak = 0.0, 0
    with suppress(ChildProcessError):
        while True:
            found, _, usage = os.wait4(-1, 0)
            busy += usage.ru_utime + usage.ru_stime
            peak = usage.ru_maxrss if found == pid else peak
    return busy, peak


def timed(tree: Path) -> tuple[float, float, int]:
    """Returns wall-clock and CPU time of the command in milliseconds, and peak resident memory in kB."""
    before = time.perf_counter()
    child = started(tree)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    wall = time.perf_counter() - before
    busy, peak = reaped(child.pid)
    child.returncode = 0
    return wall * 1000, busy * 1000, peak


def held(tree: Path) -> float:
    """Returns the peak of the summed memory of all processes of a run, in MB."""
    child = started(tree)
    highest = 0
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        pids = [child.pid]
        with suppress(OSError):
            pids += map(int, Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split())
        highest = max(highest, sum(map(share, pids)))
    reaped(child.pid)
    child.returncode = 0
    return highest / 1000


def share(pid: int) -> int:
    """Returns the proportional set size of a process in kB; 0 if it has exited."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def hung(tree: Path, seconds: float) -> tuple[float, int]:
    """Returns seconds until the verdict when no source answers, and the exit status (3 is unknown)."""
    folder = tree.with_name("hung")
    content = node.build("dgx-h100")
    content.write(folder)
    for path in (*content.files, *(f"/{node.EXTRA}/{name}.json" for name in content.extra)):
        place = folder / path.lstrip("/")
        if path != "/proc/sys/kernel/hostname":
            place.unlink()
            os.mkfifo(place)  # whoever reads it waits for ever
    before = time.perf_counter()
    child = started(folder, f"--timeout={seconds}")
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    took = time.perf_counter() - before
    status = child.wait()
    reaped(0)
    return took, status


def fleet(tree: Path, nodes: int) -> tuple[float, float, int]:
    """Wall clock and processor time in seconds until `--nodes` has judged so many nodes that answer at once, and the status.

    What a node costs itself is left out: each answers with facts that were collected before.
    """
    facts = tree.with_name("facts")
    with facts.open("wb") as file:
        subprocess.run(
            [*COMMAND, "--format=facts", "--timeout=60", "--root", str(tree)], cwd=ROOT, stdout=file, check=True
        )
    via = f"sed s/{node.build('dgx-h100').host}/%host/g {facts} #"
    before = time.perf_counter()
    child = subprocess.Popen(
        [*COMMAND, f"--nodes=g[001-{nodes:03d}]", f"--via={via}"], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    took = time.perf_counter() - before
    busy, _ = reaped(child.pid)
    return took, busy, child.wait()


def loaded(tree: Path) -> list[str]:
    """Returns the slow packages that the command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nccl_doctor", "preflight", "--state=-", "--root", str(tree)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    return sorted(names.intersection(HEAVY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="cold starts")
    parser.add_argument("--machine", default="dgx-h100", choices=list(node.MACHINES))
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has bytecode, whatever the caller sets
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        tree = Path(folder) / "tree"
        node.build(options.machine).write(tree)
        timed(tree)  # writes bytecode and what is kept of the rules
        runs = [timed(tree) for _ in range(options.times)]
        walls, busy, peaks = ([run[column] for run in runs] for column in range(3))
        print(f"{'':30} {'median':>8} {'best':>8} {'worst':>8}")
        for label, figures in (("wall ms", walls), ("CPU ms, all processes", busy)):
            print(f"{label:30} {statistics.median(figures):8.0f} {min(figures):8.0f} {max(figures):8.0f}")
        print(f"{'resident MB, parent':30} {max(peaks) / 1000:8.0f}")
        print(f"{'MB, all processes at once':30} {max(held(tree) for _ in range(3)):8.0f}")
        print(f"{'slow packages':30} {', '.join(loaded(tree)) or 'none':>8}")
        for nodes in (1, 64):
            took, busy_seconds, _ = fleet(tree, nodes)
            print(f"{f'--nodes, {nodes} nodes':30} {took:8.2f} s, {busy_seconds:.2f} s CPU")
        took, status = hung(tree, 1.0)
        print(f"{'all hung, --timeout 1':30} {took:8.2f} s, exit status {status}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
