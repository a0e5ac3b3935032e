"""What is known now of every node that is watched: the newest record of each kind, rates, and a short history.

Records are those of `sampling`: one JSON object of one kind of one node. Counters become rates here, once.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from math import isfinite
from typing import Any

HISTORY = 600  # samples that are kept of each series
STALE = 5.0  # seconds without a record of a kind after which it is said
HOLE = 15.0  # seconds without a sample after which nothing is said of the time in between
KINDS = ("gpu", "port", "host", "process")
GIGABIT = 1e9 / 8  # bytes


def moment(record: dict[str, Any]) -> float | None:
    """Seconds since the epoch of a record."""
    try:
        return datetime.fromisoformat(str(record.get("query_time"))).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if isfinite(found) else None


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; nothing for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


@dataclass
class Series:
    """Newest values of one quantity, oldest first; None where a sample lacked it."""

    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, value: float | None) -> None:
        self.values.append(value)

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


@dataclass
class Device:
    """A GPU or a port: what its last record said, and series by name."""

    name: str
    now: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    times: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))  # of the values in every series
    moment: float | None = None
    errors: dict[str, int] = field(default_factory=dict)  # growth of each error counter since the watch began

    def sampled(self, record: dict[str, Any], at: float | None, values: dict[str, float | None]) -> None:
        """Take in what was read at one moment."""
        self.now, self.moment = record, at
        self.times.append(at if at is not None else 0.0)
        for name, value in values.items():
            self.series.setdefault(name, Series()).add(value)

    def recent(self, name: str, since: float) -> list[float]:
        """Known values from a moment on."""
        series = self.series.get(name)
        if series is None:
            return []
        pairs = zip(reversed(self.times), reversed(series.values), strict=False)
        return [value for at, value in takewhile(lambda pair: pair[0] >= since, pairs) if value is not None]

    def covers(self, since: float) -> bool:
        """Whether samples reach back to a moment without a hole."""
        later = self.times[-1] if self.times else since
        for at in reversed(self.times):
            if later - at > HOLE:
                return False
            if at <= since:
                return True
            later = at
        return False

    def last(self, name: str) -> float | None:
        series = self.series.get(name)
        return series.last if series is not None else None


@dataclass
class Node:
    """One node."""

    name: str
    gpus: dict[int, Device] = field(default_factory=dict)
    ports: dict[str, Device] = field(default_factory=dict)
    host: Device = field(default_factory=lambda: Device("host"))
    ranks: list[dict[str, Any]] = field(default_factory=list)
    since: float | None = None  # when the first record came, or the node was expected
    every: float = 0.0  # seconds between two records of a kind
    heard: dict[str, float] = field(default_factory=dict)  # kind -> when its last record came
    problems: dict[str, str] = field(default_factory=dict)  # kind -> why it is missing
    gone: str | None = None  # why the whole node does not answer

    def silent(self, kind: str, now: float) -> float | None:
        """Seconds since a kind was last heard of, or since it could have been; None where that is not long."""
        heard = self.heard.get(kind, self.since)
        since = now - heard if heard is not None else 0.0
        return since if since > STALE + self.every else None

    def take(self, kind: str, record: dict[str, Any], came: float | None) -> None:
        """Take in one record that came at this moment."""
        at = moment(record)
        came = came if came is not None else at
        if came is not None:
            self.since = came if self.since is None else self.since
            self.heard[kind] = came
        if kind == "host" and at is not None and self.host.moment is not None and at > self.host.moment:
            self.every = min(at - self.host.moment, self.every or HISTORY)
        self.gone = None
        problem = record.get("error")
        if isinstance(problem, str):
            self.problems[kind] = problem
        else:
            self.problems.pop(kind, None)
        if kind == "gpu":
            self._gpus(record, at)
        elif kind == "port":
            self._ports(record, at)
        elif kind == "host" and isinstance(record.get("host"), dict):
            self._host(record["host"], at)
        elif kind == "process":
            self.ranks = dicts(record.get("processes"))

    def _gpus(self, record: dict[str, Any], at: float | None) -> None:
        for one in dicts(record.get("gpus")):
            if not isinstance(one.get("index"), int):
                continue
            gpu = self.gpus.setdefault(one["index"], Device(f"GPU{one['index']}"))
            gpu.sampled(one, at, {name: number(one.get(key)) for name, key in GPU_SERIES.items()})

    def _ports(self, record: dict[str, Any], at: float | None) -> None:
        for one in dicts(record.get("ports")):
            if not isinstance(one.get("name"), str):
                continue
            port = self.ports.setdefault(one["name"], Device(one["name"]))
            rates = {way: _rate(port.now.get(way), one.get(way), port.moment, at, GIGABIT) for way in ("rx", "tx")}
            before, errors = port.now.get("errors"), one.get("errors")
            if isinstance(before, dict) and isinstance(errors, dict):
                for name, value in errors.items():
                    old = before.get(name)
                    if isinstance(value, int) and isinstance(old, int) and value > old:
                        port.errors[name] = port.errors.get(name, 0) + value - old
            port.sampled(one, at, rates)

    def _host(self, record: dict[str, Any], at: float | None) -> None:
        values = {name: number(record.get(name)) for name in ("cpu", "memory_used", "shm_used")}
        for name in ("disk_read", "disk_write"):
            values[name] = _rate(self.host.now.get(name), record.get(name), self.host.moment, at, 1 << 20)
        self.host.sampled(record, at, values)


GPU_SERIES = {
    "util": "utilization.gpu", "memory": "memory.used", "power": "power.draw", "temperature": "temperature.gpu",
    "clock": "clocks.sm", "pcie_rx": "pcie_rx", "pcie_tx": "pcie_tx", "nvlink_rx": "nvlink_rx", "nvlink_tx": "nvlink_tx",
}  # fmt: skip


def _rate(then: Any, now: Any, before: float | None, at: float | None, unit: float) -> float | None:
    if not isinstance(then, int) or not isinstance(now, int) or before is None or at is None:
        return None
    passed, growth = at - before, number(now - then)
    return growth / passed / unit if growth is not None and growth >= 0 and passed > 0 else None


@dataclass
class State:
    """All nodes, in the order in which they were first heard of."""

    nodes: dict[str, Node] = field(default_factory=dict)
    now: float = 0.0  # time of the newest record

    def node(self, name: str) -> Node:
        return self.nodes.setdefault(name, Node(name))

    def expect(self, name: str, now: float) -> None:
        """A node that is asked: what it does not say is missing from now on."""
        self.node(name).since = now

    def take(self, record: Any, came: float | None = None) -> Node | None:
        """Take in one record of a feed that came at this moment, or when it was made; anything else is passed over.

        The time at which it came is what counts for silence, because the clock of another node may be wrong.
        """
        if not isinstance(record, dict) or record.get("kind") not in (*KINDS, "gone"):
            return None
        node = self.node(str(record.get("hostname") or "?"))
        if record["kind"] == "gone":
            node.gone = str(record.get("error") or "no answer")
            return node
        node.take(record["kind"], record, came)
        self.now = max(self.now, moment(record) or 0.0)
        return node

    def gpus(self) -> Iterator[tuple[Node, Device]]:
        for node in self.nodes.values():
            for gpu in node.gpus.values():
                yield node, gpu


THROTTLES = (
    (0x80, "power brake"), (0x40, "HW thermal"), (0x8, "HW slowdown"), (0x20, "SW thermal"), (0x4, "power cap"),
    (0x10, "sync boost"), (0x2, "app clocks"), (0x1, "idle"),
)  # fmt: skip


def throttle(reasons: Any) -> str:
    """The gravest of NVML's clock event reasons (nvml.h nvmlClocksEventReason*) in words; empty where none holds."""
    if not isinstance(reasons, int):
        return ""
    return next((word for bit, word in THROTTLES if reasons & bit), "")


QUIET_LINK = 50e6  # bytes/s of NVLink or PCIe that a spinning kernel may cause by polling
QUIET_PORT = 0.05  # Gb/s that ssh, monitoring and the like cause
LEAST = 5  # samples


def spinning(node: Node, seconds: float = 60.0) -> tuple[int, float] | None:
    """How many GPUs spin in a collective, and the highest share of its power limit that one draws; None where they work.

    A kernel of NCCL that waits keeps utilisation at 100 % and draws little: for `seconds` at least 95 % utilisation, at most
    25 % of the power limit, next to no traffic on NVLink, PCIe and the network, and no rank that writes output. The other
    GPUs of the node are idle: one of them belongs to the rank that does not come.
    """
    shares = []
    for gpu in node.gpus.values():
        since = (gpu.moment or 0.0) - seconds
        utils, powers = gpu.recent("util", since), gpu.recent("power", since)
        limit = number(gpu.now.get("enforced.power.limit"))
        if min(len(utils), len(powers)) < LEAST or not gpu.covers(since) or not limit or _moves(gpu, since):
            return None
        if min(utils) >= 95 and max(powers) <= 0.25 * limit:
            shares.append(max(powers) / limit)
        elif max(utils) > 5:
            return None
    silent = [quiet for one in node.ranks if (quiet := number(one.get("quiet"))) is not None]
    if not shares or any(quiet < seconds for quiet in silent):
        return None
    if any(_traffic(port, (port.moment or 0.0) - seconds) for port in node.ports.values()):
        return None
    return len(shares), max(shares)


def _moves(gpu: Device, since: float) -> bool:
    return any(
        max(gpu.recent(name, since), default=0.0) > QUIET_LINK
        for name in ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx")
    )


def _traffic(port: Device, since: float) -> bool:
    return any(max(port.recent(way, since), default=0.0) > QUIET_PORT for way in ("rx", "tx"))
