"""Injects faults into real jobs of gloo ranks under `record`, and measures what names the rank, and after how many seconds.

`python bench/faults/run.py --torch VENV` needs a virtual environment with torch (CPU). Faults of the network need root and tc:
they are injected into a network namespace of the job.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCTOR = [sys.executable, "-m", "nccl_doctor"]
BAD = 2  # the rank that meets the fault
LIMIT = 40.0  # seconds from the fault to the headline, or to the end of the job


@dataclass(frozen=True)
class Fault:
    """A fault of `train.py` and what has to be said about it: `rank`, and one of these rules."""

    name: str
    rules: tuple[str, ...]
    rank: int | None = BAD
    stalls: bool = True  # else the job ends by itself
    network: bool = False


FAULTS = (
    Fault("sleep", ("rank-outside-collective",)),
    Fault("spin", ("rank-outside-collective",)),
    Fault("loader", ("rank-stuck-in-dataloader",)),
    Fault("loader-worker", ("rank-stuck-in-dataloader",)),
    Fault("slow-loader", ("rank-stuck-in-dataloader",)),
    Fault("gil", ("gil-held",)),
    Fault("sigstop", ("rank-suspended",)),
    Fault("order", ("ranks-in-different-collectives",)),
    Fault("skip", ("ranks-in-different-collectives",)),
    Fault("checkpoint", ("rank-in-checkpoint",)),
    Fault("blocked", ("collective-data-lost",), rank=None, network=True),
    Fault("shape", ("collective-shape-mismatch",), rank=None, stalls=False),
    Fault("sigkill", ("rank-sigkill",), stalls=False),
    Fault("exit", ("rank-exited",), stalls=False),
    Fault("exception", ("python-exception",), stalls=False),
    Fault("memory", ("host-memory-refused",), stalls=False),
    Fault("files", ("nofile-limit",), stalls=False),
)
HEALTHY = ("none", "pause")


class Run:
    """One job under `record`."""

    def __init__(self, torch: Path, fault: str, folder: Path, port: int, steps: int | None, network: bool) -> None:
        self.folder = folder
        self.out = (folder / "out.txt").open("wb")
        command = [
            *DOCTOR, "record", "-o", str(folder / "run"), "--", str(torch / "bin/torchrun"), "--nproc-per-node=4",
            "--master-addr=127.0.0.1", f"--master-port={port}", str(HERE / "train.py"), fault, f"--bad={BAD}", "--at=60",
            f"--folder={folder}", *([f"--steps={steps}"] if steps else []),
        ]  # fmt: skip
        if network:
            command = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *command]
        environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, env=environ, stdout=self.out, stderr=self.out, start_new_session=True)

    def file(self, name: str) -> Path | None:
        """Returns a file of the recording; None until it is there."""
        return next(iter(self.folder.glob(f"run/run-*/{name}")), None)

    def fault_time(self) -> float | None:
        try:
            return float((self.folder / "fault").read_text())
        except (OSError, ValueError):
            return None

    def wait(self, *, headline: bool, limit: float) -> tuple[float | None, str | None]:
        """Waits for the headline, or for the end of the job; returns seconds since the fault, and the headline."""
        end = time.time() + 120
        while time.time() < end and self.process.poll() is None:
            at = self.fault_time()
            if headline and at is not None:
                if file := self.file("headline.txt"):
                    return file.stat().st_mtime - at, file.read_text().strip()
                if time.time() - at > limit:
                    return None, None
            time.sleep(0.1)
        at = self.fault_time()
        return (time.time() - at if at is not None else None), None

    def stop(self) -> None:
        """Ends the job as a scheduler does; then the rest of its session, which a stopped rank would outlive."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        for pid in ranks_of(self.folder):
            for number in (signal.SIGCONT, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.process.wait(30)
        self.out.close()


def ranks_of(folder: Path) -> list[int]:
    """Processes of the job: those whose command line names its folder."""
    mark = f"--folder={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def asked(*words: str, pids: list[int] | None = None) -> dict[str, Any]:
    """Returns the JSON that a command of nccl-doctor prints; empty if there is none."""
    done = subprocess.run([*DOCTOR, *words, "--format", "json"], capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return found


def names_rank(text: str, rank: int | None) -> bool:
    return f"rank {rank} " in text if rank is not None else " of rank " in text


def verdict(report: dict[str, Any], fault: Fault) -> tuple[bool, bool, str]:
    """Returns whether the first finding names the rank, whether it is the right one, and its name."""
    first = next((one for one in report.get("findings", ()) if one["severity"] != "note"), None)
    if first is None:
        return False, False, "nothing"
    named = fault.rank is None or str(fault.rank) == str(first["ranks"])
    return named, first["name"] in fault.rules, first["name"]


def one_fault(fault: Fault, arguments: argparse.Namespace, number: int) -> str:
    """Runs one fault; returns its row of the table."""
    folder = Path(tempfile.mkdtemp(prefix=f"fault-{fault.name}-"))
    run = Run(arguments.torch, fault.name, folder, arguments.port + number, None, fault.network)
    try:
        seconds, headline = run.wait(headline=fault.stalls, limit=LIMIT)
        once = stacks = "-"
        if fault.stalls and headline is not None and not fault.network and arguments.all:
            live = asked("watch", "--once")
            once = "yes" if any(names_rank(job["headline"], fault.rank) for job in live.get("jobs", ())) else "no"
            found = asked("stacks", "--job", f"127.0.0.1:{arguments.port + number}")
            stacks = "yes" if verdict(found, fault)[0] else verdict(found, fault)[2]
    finally:
        run.stop()
    named, right, cause = verdict(asked("analyze", str(folder / "run")), fault)
    said = "yes" if headline and names_rank(headline, fault.rank) else "-" if not fault.stalls else "no"
    took = f"{seconds:.0f}" if seconds is not None else "-"
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    cells = (fault.name, took, said, once, stacks, "yes" if named else "no", f"{'yes' if right else 'no'} ({cause})")
    print(f"    {headline}", file=sys.stderr, flush=True)
    return f"| {' | '.join(cells)} |"


def one_healthy(kind: str, arguments: argparse.Namespace, number: int) -> str:
    """Runs a job without a fault to its end; returns its row."""
    folder = Path(tempfile.mkdtemp(prefix=f"healthy-{kind}-"))
    run = Run(arguments.torch, kind, folder, arguments.port + number, 150, network=False)
    headlines = set()
    try:
        while run.process.poll() is None:
            if file := run.file("headline.txt"):
                headlines.add(file.read_text())
            time.sleep(0.2)
    finally:
        run.stop()
    report = asked("analyze", str(folder / "run"))
    accused = [one["name"] for one in report.get("findings", ()) if one["severity"] in ("error", "warning")]
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return (
        f"| healthy: {kind} | {report.get('verdict')} | {len(headlines)} headlines | {', '.join(accused) or 'nobody'} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", type=Path, required=True, help="virtual environment with torch")
    parser.add_argument("--only", nargs="*", help="names of faults")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=0, help="runs without a fault")
    parser.add_argument("--all", action="store_true", help="ask `watch --once` and `stacks` too")
    parser.add_argument("--port", type=int, default=29700)
    parser.add_argument("--keep", action="store_true", help="keep the recordings")
    arguments = parser.parse_args()
    number = 0
    print("| fault | s to headline or end | headline | once | stacks | analyze: rank | analyze: class |")
    print("|---|---|---|---|---|---|---|")
    for _ in range(arguments.rounds):
        for fault in FAULTS:
            if arguments.only is None or fault.name in arguments.only:
                number += 1
                print(one_fault(fault, arguments, number), flush=True)
    for count in range(arguments.healthy):
        number += 1
        print(one_healthy(HEALTHY[count % 2], arguments, number), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
