"""Runs the diagnostic programs that are installed, one after the other: together they would disturb each other.

A program of which nothing is installed is left out. Nothing runs while a process uses a GPU.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.gpu import dcgm
from nccl_doctor.node.deep import parsers
from nccl_doctor.node.gpu import pci
from nccl_doctor.node.runtime.root import Absent, Output, Root

TABLES = (ActiveTest,)
DCGM_SECONDS = {1: 90.0, 2: 300.0, 3: 1800.0}  # a level
SECONDS = {"nvidia-smi": 10.0, "ib_write_bw": 15.0, "nvbandwidth": 60.0, "all_reduce_perf": 90.0}  # a call
COPIES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
HOLDERS = ("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
# The server of ib_write_bw ends with its first client; a client that is too early tries again.
LOOPBACK = (
    "command -v ib_write_bw >/dev/null || exit 127; ib_write_bw -d $1 -F --report_gbits -D 2 -p $2 >/dev/null 2>&1 & s=$!; "
    "for n in 1 2 3 4 5; do sleep 0.5; ib_write_bw -d $1 -F --report_gbits -D 2 -p $2 localhost 2>&1 && exit 0; done; "
    "kill -9 $s 2>/dev/null; exit 1"
)
PORT = 18590  # of the first card
_NAME = re.compile(r"[\w.-]{1,60}")


def collect(root: Root) -> Iterator[ActiveTest]:
    """Results in the order in which the programs ran. Raises Absent where none may run or none is installed."""
    holders = _run(root, *HOLDERS, seconds=SECONDS["nvidia-smi"])
    users = re.findall(r"^\d+$", holders.text, re.MULTILINE) if holders is not None else []
    if users:
        raise Absent(f"{len(users)} processes use the GPUs, so that nothing was run")
    found = False
    for row in chain(_dcgm(root), _loopback(root), _copies(root), _all_reduce(root)):
        found = True
        yield row  # at once: the next test may hang
    if not found:
        raise Absent("none of dcgmi, ib_write_bw, nvbandwidth and all_reduce_perf is installed")


def _run(root: Root, *command: str, seconds: float) -> Output | None:
    """What a program printed; one that does not end is a result with the status 124, as of timeout(1)."""
    try:
        out = root.run(*command, seconds=seconds)
    except TimeoutError as error:
        return Output(124, str(error))
    return None if out is not None and out.status == 127 else out


def _row(tool: str, result: dcgm.Result, unit: str | None, command: str) -> ActiveTest:
    shown = f"{result.test} {result.device or ''}: {result.outcome}"
    shown += f" {result.value:g} {unit}" if result.value is not None else ""
    return ActiveTest(
        host=None, tool=tool, test=result.test, device=result.device, outcome=result.outcome, value=result.value,
        unit=unit, text=result.text or None, ref=Seen(command, f"{shown} {result.text}".strip()),
    )  # fmt: skip


def _failed(tool: str, test: str, device: str | None, out: Output, command: str) -> ActiveTest:
    """A program that told nothing: `other` proves nothing of the hardware."""
    last = next((line.strip() for line in reversed(out.text.splitlines()) if line.strip()), "")
    return _row(tool, dcgm.Result(test, device, "other", None, f"status {out.status}: {last[:300]}"), None, command)


def _dcgm(root: Root) -> Iterator[ActiveTest]:
    level = min(max(int(root.deep), 1), 3)
    command = ("dcgmi", "diag", "-r", str(level), "-j")
    out = _run(root, *command, seconds=DCGM_SECONDS[level])
    if out is None:
        return
    results = dcgm.parse_dcgm(out.text)
    for result in results:
        yield _row("dcgm", result, None, " ".join(command))
    if not results:
        yield _failed("dcgm", f"level {level}", None, out, " ".join(command))


def _loopback(root: Root) -> Iterator[ActiveTest]:
    """Each active port of a card that has verbs of InfiniBand or RoCE; EFA has none that ib_write_bw uses."""
    for number, name in enumerate(root.names("/sys/class/infiniband")):
        state = root.value(f"/sys/class/infiniband/{name}/ports/1/state") or ""
        if "ACTIVE" not in state or name.startswith(("efa", "rdmap")) or not _NAME.fullmatch(name):
            continue
        out = _run(root, "sh", "-c", LOOPBACK, "sh", name, str(PORT + number), seconds=SECONDS["ib_write_bw"])
        if out is None:
            return
        value = parsers.parse_perftest(out.text)
        command = f"ib_write_bw -d {name} localhost"
        if value is None:
            yield _failed("ib_write_bw", "loopback", name, out, command)
        else:
            yield _row("ib_write_bw", dcgm.Result("loopback", name, "pass", value), "Gb/s", command)


def _copies(root: Root) -> Iterator[ActiveTest]:
    for test in COPIES:
        out = _run(root, "nvbandwidth", "-t", test, seconds=SECONDS["nvbandwidth"])
        if out is None:
            return
        results = parsers.parse_nvbandwidth(out.text)
        for result in results:
            yield _row("nvbandwidth", result, "GB/s", f"nvbandwidth -t {test}")
        if not results:
            yield _failed("nvbandwidth", test, None, out, f"nvbandwidth -t {test}")


def _all_reduce(root: Root) -> Iterator[ActiveTest]:
    gpus = 0
    with suppress(Absent):
        gpus = sum(device.kind == "gpu" for device in pci.devices(root))
    if gpus < 2:
        return
    command = ("all_reduce_perf", "-b", "1G", "-e", "1G", "-g", str(gpus))
    out = _run(root, *command, seconds=SECONDS["all_reduce_perf"])
    if out is None:
        return
    result = parsers.parse_all_reduce(out.text)
    if result is None:
        yield _failed("nccl-tests", "all_reduce_perf", None, out, " ".join(command))
    else:
        yield _row("nccl-tests", result, "GB/s", " ".join(command))
