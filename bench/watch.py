"""Measures `watch` and `record` on a node of 8 GPUs and 9 ports: CPU time of the screen with the child that samples, of
the sampler of `record`, and the step time of a small training loop with and without `record`.

GPUs answer from the stand-in for NVML that the tests use, ports from a tree of files.

python bench/watch.py [--seconds 30]
"""

import argparse
import contextlib
import json
import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

STUB = Path(__file__).parent.parent / "tests" / "helpers" / "nvml_stub" / "nvml_stub.c"
GPUS, PORTS, NODES = 8, 9, 32
STATE = {
    "count": GPUS, "driver": "550.54.15", "nvml": "12.550.54.15", "cuda": 12040, "model": "NVIDIA H100 80GB HBM3",
    "util": 97, "util_memory": 41, "memory_total": 85520809984, "memory_used": 60_000_000_000, "power_mw": 612345,
    "power_limit_mw": 700000, "clock_sm": 1755, "clock_memory": 2619, "reasons": 4, "temperature": 61,
    "field.197": 1 << 40, "field.198": 1 << 40, "field.138": 1 << 40, "field.139": 1 << 40, "tasks": "4242:512",
    "util~": 3, "util_memory~": 5, "power_mw~": 30_000, "clock_sm~": 30, "temperature~": 2,
}  # fmt: skip
STEP = """
import sys, time
from array import array
data = array("d", range(20_000))
times = []
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    started = time.perf_counter()
    sum(x * 1.0001 for x in data)
    times.append(time.perf_counter() - started)
times.sort()
print(len(times), times[len(times) // 2])
"""


def tree(folder: Path) -> Path:
    """Creates a /sys with eight InfiniBand ports and one Ethernet interface."""
    for number in range(PORTS - 1):
        port = folder / f"class/infiniband/mlx5_{number}/ports/1"
        for name, value in {"state": "4: ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}.items():
            port.mkdir(parents=True, exist_ok=True)
            (port / name).write_text(value)
        for name in ("port_rcv_data", "port_xmit_data", "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors",
                     "port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors"):  # fmt: skip
            (port / "counters").mkdir(exist_ok=True)
            (port / "counters" / name).write_text("0")
        for name in (
            "out_of_sequence",
            "packet_seq_err",
            "local_ack_timeout_err",
            "rnr_nak_retry_err",
            "out_of_buffer",
        ):
            (port / "hw_counters").mkdir(exist_ok=True)
            (port / "hw_counters" / name).write_text("0")
    interface = folder / "class/net/eth0"
    (interface / "statistics").mkdir(parents=True)
    (interface / "device").mkdir()
    for name, value in {"operstate": "up", "speed": "25000"}.items():
        (interface / name).write_text(value)
    for name in ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"):
        (interface / "statistics" / name).write_text("0")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Returns an environment in which the command and its children find the NVML stub and the tree of ports."""
    subprocess.run(
        [
            "gcc",
            "-O1",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            str(folder / "libnvidia-ml.so.1"),
            str(STUB),
        ],
        check=True,
    )
    (folder / "state").write_text("".join(f"{key}={value}\n" for key, value in STATE.items()))
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        f"from nccl_doctor.common import trusted\ntrusted.LIBRARIES = ({str(folder)!r},)\n"
        "if 'sample' in sys.argv or 'sample' in getattr(sys, 'orig_argv', ()):\n"
        f"    import pathlib, nccl_doctor.app.sample as s\n    s.Ports.__init__.__defaults__ = (pathlib.Path({str(folder / 'sys')!r}),)\n"
    )
    tree(folder / "sys")
    paths = [str(folder), str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STUB_FILE": str(folder / "state"), "NVML_STUB_KEEP": "1",
        "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(paths),
    }  # fmt: skip


def sampler_of_nodes(folder: Path, seconds: int) -> str:
    """Returns a command that prints the records of a node of the demo (first argument), one second after the other."""
    from nccl_doctor.watch.sources.demo import Demo

    invented = Demo()
    lines = [json.dumps(record) for _ in range(seconds) for record in invented.step() if record["hostname"] == "gpu-b"]
    (folder / "records").write_text("\n".join(lines) + "\n")
    program = folder / "node.py"
    program.write_text(
        "import json, sys, time\nfrom datetime import datetime, timezone\nbefore = None\n"
        f"for line in open({str(folder / 'records')!r}):\n"
        "    record = json.loads(line)\n"
        "    if record['query_time'] != before and before is not None:\n        time.sleep(1)\n"
        "    before = record['query_time']\n"
        "    record['query_time'] = datetime.now(timezone.utc).isoformat(timespec='milliseconds')\n"
        "    print(json.dumps(record), flush=True)\n"
    )
    return f"{sys.executable} -S {program} %host"


def many_nodes(environ: dict[str, str], folder: Path, seconds: float) -> dict[str, float]:
    """Measures the screen of 32 nodes, whose samplers are played back beside it and are not counted."""
    command = sampler_of_nodes(folder, 100 + int(seconds))
    return watch(environ, 40.0, seconds, options=[f"--nodes=n[01-{NODES}]", f"--via={command}", "--interval=1"])


def used(pid: int) -> float:
    """Returns CPU seconds of a process and its descendants."""
    import psutil

    total = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def share(pid: int, settle: float, seconds: float) -> dict[str, float]:
    """Returns the use of a core in percent: of all processes, and of the children alone."""
    import psutil

    def now() -> tuple[float, float]:
        own = psutil.Process(pid).cpu_times()
        return used(pid), own.user + own.system

    time.sleep(settle)
    (all_before, own_before), started = now(), time.monotonic()
    time.sleep(seconds)
    (all_after, own_after), passed = now(), time.monotonic() - started
    whole, own = 100 * (all_after - all_before) / passed, 100 * (own_after - own_before) / passed
    return {"all": whole, "own": own, "children": whole - own}


def watch(
    environ: dict[str, str],
    settle: float,
    seconds: float,
    rows: int = 50,
    columns: int = 160,
    options: Sequence[str] = (),
) -> dict[str, float]:
    """Measures the screen in a pseudo terminal."""
    import fcntl
    import struct
    import termios

    command = [sys.executable, "-m", "nccl_doctor", "watch", *options]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environ)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    read = [0]

    def drain() -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(terminal, 1 << 16):
                read[0] += len(piece)

    threading.Thread(target=drain, daemon=True).start()
    found = share(pid, settle, seconds)
    os.write(terminal, b"q")
    for _ in range(50):
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.1)
    else:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return found


def record(environ: dict[str, str], folder: Path, settle: float, seconds: float) -> dict[str, float]:
    """Measures the recorder and its sampler beside a sleeping job."""
    command = [sys.executable, "-m", "nccl_doctor", "record", "-o", str(folder), "--", "sleep", "3600"]
    running = subprocess.Popen(command, env=environ)
    found = share(running.pid, settle, seconds)
    running.terminate()
    running.wait(20)
    return found


def step_times(environ: dict[str, str], folder: Path, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Returns median step times without and with `record`, measured in turns."""
    job = [sys.executable, "-c", STEP, str(seconds)]
    recorder = [sys.executable, "-m", "nccl_doctor", "record", "-o", str(folder), "--"]
    without, with_ = [], []
    for _ in range(rounds):
        for command, into in ((job, without), ([*recorder, *job], with_)):
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
            into.append(float(done.stdout.split()[1]))
    return without, with_


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--only", choices=["watch", "nodes", "record", "step"])
    arguments = parser.parse_args()
    if shutil.which("gcc") is None:
        print("no gcc, so there is no stand-in for NVML: not measured")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = environment(folder)
        print("| what | wanted | measured |\n|---|---|---|")
        if arguments.only in (None, "watch"):
            found = watch(environ, 15.0, arguments.seconds)
            print(f"| watch, 8 GPUs, 9 ports, 1 s, 160x50: % of a core | 2 | {found['all']:.2f} "
                  f"(screen and rules {found['own']:.2f}, sampler {found['children']:.2f}) |", flush=True)  # fmt: skip
        if arguments.only in (None, "nodes"):
            found = many_nodes(environ, folder, max(arguments.seconds, 60.0))
            print(f"| watch, {NODES} nodes, {8 * NODES} GPUs, 1 s: % of a core | 10 | {found['own']:.1f} |", flush=True)
        if arguments.only in (None, "record"):
            found = record(environ, folder / "runs", 5.0, arguments.seconds)
            print(f"| record, the same node, 1 s: % of a core | 2 | {found['all']:.2f} "
                  f"(recorder {found['own']:.2f}, sampler {found['children']:.2f}) |", flush=True)  # fmt: skip
        if arguments.only in (None, "step"):
            without, with_ = step_times(environ, folder / "steps", 5, max(arguments.seconds / 5, 3.0))
            a, b = statistics.median(without), statistics.median(with_)
            print(f"| record: median step of a CPU loop, ms | + 1 % | {1000 * a:.3f} without, {1000 * b:.3f} with: "
                  f"{100 * (b / a - 1):+.2f} % |", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
