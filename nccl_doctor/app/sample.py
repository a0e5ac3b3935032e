"""Samples a node once a second: GPUs, network ports, the host and the ranks of jobs, as lines of JSON.

`record` writes them to files, `watch` reads them from pipes of this and other nodes. Each kind has its own thread, so a
blocked driver delays only its own kind.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from nccl_doctor.app.hang.processes import Processes, mib
from nccl_doctor.app.recorder.spool import Spool

WAITING = 1 << 20  # bytes of one kind that wait for a file that cannot be written
RETRY = 15.0  # seconds before NVML is tried again after a failure
PORTS_EVERY = 30.0  # seconds between two searches for ports
ERRORS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
)  # fmt: skip
HARDWARE_ERRORS = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_buffer")
NET_ERRORS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
_SATURATED = {255, 65535, 4294967295}  # maximum values at which counters stop


class Feed(Protocol):
    """A source of one kind of samples."""

    def read(self) -> dict[str, Any]:
        """Returns the current sample. May block."""
        ...


class Gpus:
    """GPUs through NVML, with the field names of `gpustat --json`; `error` if NVML fails.

    `pids` receives the processes that are on the GPUs of this PID namespace.
    """

    def __init__(self, pids: set[int] | None = None) -> None:
        self._pids = set() if pids is None else pids
        self._nvml: Any = None
        self._failed: tuple[float, str] | None = None
        self._names: dict[int, tuple[str | None, str | None, str | None]] = {}
        self._versions: dict[str, str | None] = {}

    def read(self) -> dict[str, Any]:
        from nccl_doctor.node.gpu.nvml import Nvml, NvmlFailure

        if self._failed is not None and time.monotonic() - self._failed[0] < RETRY:
            return {"gpus": [], "error": self._failed[1]}
        try:
            if self._nvml is None:
                self._nvml = Nvml()
                self._names = {gpu: self._named(gpu) for gpu in range(self._nvml.count())}
                cuda = self._nvml.get("nvmlSystemGetCudaDriverVersion_v2")
                self._versions = {
                    "driver": self._nvml.get("nvmlSystemGetDriverVersion"),
                    "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else None,
                }
            found = self._nvml.sample(pcie=True)
        except (NvmlFailure, OSError, ImportError) as error:
            self._nvml = None
            self._failed = time.monotonic(), str(error)
            return {"gpus": [], "error": str(error)}
        self._failed = None
        now = {task.pid for one in found for task in one.tasks}
        self._pids |= now
        self._pids &= now
        return {"versions": self._versions, "gpus": [self._record(one) for one in found]}

    def _named(self, gpu: int) -> tuple[str | None, str | None, str | None]:
        """Returns name, UUID and the CPUs near the GPU; all None if the GPU is lost."""
        from nccl_doctor.node.gpu.nvml import NvmlFailure

        try:
            handle = self._nvml.handle(gpu)
            pci = self._nvml.get("nvmlDeviceGetPciInfo", handle)
            return self._nvml.get("nvmlDeviceGetName", handle), self._nvml.get("nvmlDeviceGetUUID", handle), _near(pci)
        except NvmlFailure:
            return None, None, None

    def _record(self, one: Any) -> dict[str, Any]:
        name, uuid, cpus = self._names.get(one.gpu, (None, None, None))
        return {
            "index": one.gpu, "uuid": uuid, "name": name, "utilization.gpu": one.util,
            "utilization.memory": one.util_memory, "memory.used": mib(one.memory_used),
            "memory.total": mib(one.memory_total), "power.draw": one.power, "enforced.power.limit": one.power_limit,
            "temperature.gpu": one.temperature, "clocks.sm": one.clock_sm, "clocks.mem": one.clock_memory,
            "clock_reasons": one.reasons, "pcie_tx": one.pcie_tx, "pcie_rx": one.pcie_rx, "nvlink_tx": one.nvlink_tx,
            "nvlink_rx": one.nvlink_rx, "error": one.error, "cpus": cpus,
            "processes": [{"pid": task.pid, "gpu_memory_usage": mib(task.memory), "sm": task.sm} for task in one.tasks],
        }  # fmt: skip


class Ports:
    """InfiniBand and RoCE ports (/sys/class/infiniband) and Ethernet interfaces with hardware behind them (/sys/class/net).

    Files stay open from one sample to the next, because opening costs five times as much as reading.
    """

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys
        self._found_at = -PORTS_EVERY
        self._ports: list[Path] = []
        self._interfaces: list[Path] = []
        self._files: dict[tuple[Path, str], int | None] = {}

    def read(self) -> dict[str, Any]:
        if time.monotonic() - self._found_at >= PORTS_EVERY:
            self._find_ports()
        return {"ports": [*map(self._infiniband, self._ports), *map(self._ethernet, self._interfaces)]}

    def _find_ports(self) -> None:
        """Search for ports and close the files of the last search."""
        self._found_at = time.monotonic()
        for file in self._files.values():
            if file is not None:
                os.close(file)
        self._files.clear()
        self._ports = sorted(self._sys.glob("class/infiniband/*/ports/*"))
        self._interfaces = [one for one in sorted(self._sys.glob("class/net/*")) if (one / "device").exists()]

    def _read_text(self, folder: Path, name: str) -> str:
        """Returns the content of a file, kept open between samples; empty if it is missing or unreadable."""
        key = (folder, name)
        if key not in self._files:
            try:
                self._files[key] = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._files[key] = None
        file = self._files[key]
        try:
            return os.pread(file, 256, 0).decode("ascii", "replace").strip() if file is not None else ""
        except OSError:
            return ""

    def _count(self, folder: Path, name: str) -> int | None:
        text = self._read_text(folder, name)
        return int(text) if text.isdecimal() and int(text) not in _SATURATED else None

    def _infiniband(self, port: Path) -> dict[str, Any]:
        errors = {name: value for name in ERRORS if (value := self._count(port, f"counters/{name}")) is not None}
        for name in HARDWARE_ERRORS:
            if (value := self._count(port, f"hw_counters/{name}")) is not None:
                errors[name] = value
        received, sent = self._count(port, "counters/port_rcv_data"), self._count(port, "counters/port_xmit_data")
        if received is None:  # EFA counts bytes, not words of four
            rx, tx = self._count(port, "hw_counters/rx_bytes"), self._count(port, "hw_counters/tx_bytes")
        else:
            rx, tx = received * 4, sent * 4 if sent is not None else None
        rate = self._read_text(port, "rate").split(" ")[0]
        return {
            "name": f"{port.parent.parent.name}/{port.name}",
            "kind": {"InfiniBand": "ib", "Ethernet": "roce"}.get(self._read_text(port, "link_layer"), "efa"),
            "state": self._read_text(port, "state").partition(": ")[2] or None, "rx": rx, "tx": tx,
            "speed": float(rate) if rate.replace(".", "", 1).isdecimal() else None, "errors": errors,
        }  # fmt: skip

    def _ethernet(self, interface: Path) -> dict[str, Any]:
        speed = self._count(interface, "speed")
        counts = {name: self._count(interface, f"statistics/{name}") for name in ("rx_bytes", "tx_bytes", *NET_ERRORS)}
        return {
            "name": interface.name, "kind": "ethernet", "state": self._read_text(interface, "operstate").upper() or None,
            "rx": counts["rx_bytes"], "tx": counts["tx_bytes"],
            "speed": speed / 1000 if speed is not None and speed > 0 else None,
            "errors": {name: value for name in NET_ERRORS if (value := counts[name]) is not None},
        }  # fmt: skip


class Host:
    """CPU, memory, disks and /dev/shm of the node."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        psutil.cpu_percent(None)

    def read(self) -> dict[str, Any]:
        memory, swap = self._psutil.virtual_memory(), self._psutil.swap_memory()
        disk = self._psutil.disk_io_counters()
        record = {
            "cpu": self._psutil.cpu_percent(None), "cpus": self._psutil.cpu_count(), "load": os.getloadavg()[0],
            "memory_used": mib(memory.total - memory.available), "memory_total": mib(memory.total),
            "swap_used": mib(swap.used), "disk_read": disk.read_bytes if disk else None,
            "disk_write": disk.write_bytes if disk else None,
        }  # fmt: skip
        try:
            shm = os.statvfs("/dev/shm")
            record["shm_total"] = mib(shm.f_blocks * shm.f_frsize)
            record["shm_used"] = mib((shm.f_blocks - shm.f_bfree) * shm.f_frsize)
        except OSError:
            pass
        return {"host": {**record, **tcp_segments()}}


def tcp_segments(file: Path = Path("/proc/net/snmp")) -> dict[str, int]:
    """Returns the TCP segments sent and sent again since boot (RFC 4022); empty where the kernel does not say."""
    try:
        names, values = (line.split() for line in file.read_text().splitlines() if line.startswith("Tcp:"))
        counts = dict(zip(names, values, strict=True))
        return {"tcp_sent": int(counts["OutSegs"]), "tcp_repeated": int(counts["RetransSegs"])}
    except (OSError, ValueError, KeyError):
        return {}


def make_feeds() -> dict[str, Callable[[], Feed]]:
    """Returns a maker of each kind of samples; the processes are told which of them are on GPUs."""
    on_gpus: set[int] = set()
    return {
        "gpu": lambda: Gpus(on_gpus),
        "port": Ports,
        "host": Host,
        "process": lambda: Processes(lambda: tuple(on_gpus)),
    }


KINDS = ("gpu", "port", "host", "process")


class Sampler:
    """Reads each kind once per interval in its own thread and passes on the records, until stopped."""

    def __init__(
        self, put: Callable[[str, dict[str, Any]], None], interval: float = 1.0,
        feeds: Mapping[str, Callable[[], Feed]] | None = None,
    ) -> None:  # fmt: skip
        self._put = put
        self._interval = interval
        self._feeds = make_feeds() if feeds is None else feeds
        self._stopped = threading.Event()
        self._host = socket.gethostname()

    def start(self) -> None:
        for kind, feed in self._feeds.items():
            threading.Thread(target=self._run, args=(kind, feed), name=f"sample-{kind}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, kind: str, make: Callable[[], Feed]) -> None:
        feed: Feed | None = None
        due = time.monotonic()
        while not self._stopped.is_set():
            now = time.time()
            started = time.monotonic()
            try:
                feed = feed or make()
                found = feed.read()
            except Exception as error:  # a node can answer anything; the other kinds must continue
                found = {"error": f"{type(error).__name__}: {error}"}
            stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
            took = round(time.monotonic() - started, 4)
            self._put(kind, {"kind": kind, "hostname": self._host, "query_time": stamp, "took": took, **found})
            due = max(due + self._interval, time.monotonic())
            self._stopped.wait(due - time.monotonic())


class Files:
    """Appends records to `<kind>.jsonl` in a folder; each line is on disk before the next sample.

    A full disk or a folder that is gone costs records, never the job: see `Spool`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spools: dict[str, Spool] = {}

    def put(self, kind: str, record: dict[str, Any]) -> None:
        """Append a record; called by one thread a kind."""
        spool = self._spools.get(kind)
        if spool is None:
            spool = self._spools[kind] = Spool(self._folder / f"{kind}.jsonl", _gap, memory=WAITING, sync=0.0)
        spool.add(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        spool.flush()


def _gap(dropped: int, why: str) -> bytes:
    return json.dumps({"dropped": dropped, "why": why}, separators=(",", ":")).encode() + b"\n"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _near(pci: Any) -> str | None:
    """Returns the CPUs near a PCI device as in sysfs `local_cpulist`: `0-55,112-167`."""
    if pci is None:
        return None
    name = pci.busId.decode() if isinstance(pci.busId, bytes) else str(pci.busId)
    domain, _, rest = name.lower().partition(":")
    return _text(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/local_cpulist")) or None
