"""State of all watched nodes: the newest record of each kind, rates, and a short history.

A record is a JSON object of `app.sample`: one kind of one node. Counters become rates here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.derive.hang.job_state import JobState
from nccl_doctor.derive.hang.job_stop import judge
from nccl_doctor.formats.recording.hang_records import Looks
from nccl_doctor.watch.progress import Progress
from nccl_doctor.watch.series import HISTORY, Device, dicts, number

STILL = 0.7  # seconds for which a main thread did not wake up
FORGOTTEN = 3600.0  # seconds after which the steps of a job are no longer shown
STALE = 5.0  # seconds without a record of a kind after which the kind counts as silent
KINDS = ("gpu", "port", "host", "process")
GIGABIT = 1e9 / 8  # bytes


def record_time(record: dict[str, Any]) -> float | None:
    """Returns when a record was sampled, in seconds since the epoch; None if it does not say."""
    return iso_seconds(str(record.get("query_time")), local=True)


@dataclass
class Node:
    """The state of one node."""

    name: str
    gpus: dict[int, Device] = field(default_factory=dict)
    ports: dict[str, Device] = field(default_factory=dict)
    host: Device = field(default_factory=lambda: Device("host"))
    processes: list[dict[str, Any]] = field(default_factory=list)  # ranks and other processes on GPUs
    ranks_since: float | None = None  # when ranks were first sampled, on the clock of the node
    since: float | None = None  # when the first record arrived, or when the node was first expected
    interval: float = 0.0  # seconds between two records of a kind
    last_received: dict[str, float] = field(default_factory=dict)  # kind -> when its last record arrived
    last_sampled: dict[str, float] = field(default_factory=dict)  # kind -> when its last record was sampled
    versions: dict[str, str] = field(default_factory=dict)  # of driver and CUDA
    problems: dict[str, str] = field(default_factory=dict)  # kind -> why it is missing
    gone: str | None = None  # why the whole node does not answer

    def silent(self, kind: str, now: float) -> float | None:
        """Returns seconds since the last record of a kind, or since one was expected; None if it is not overdue."""
        last = self.last_received.get(kind, self.since)
        silence = now - last if last is not None else 0.0
        return silence if silence > STALE + self.interval else None

    def age(self, kind: str, now: float) -> float | None:
        """Returns how old the values of a kind are, in seconds; None while they are fresh."""
        if self.gone is not None and (last := self.last_received.get(kind)) is not None:
            return max(now - last, 0.0)
        return self.silent(kind, now)

    def add_record(self, kind: str, record: dict[str, Any], received_at: float | None) -> None:
        """Add one record; `received_at` is when it arrived, None in a replay."""
        at = record_time(record)
        if at is not None:
            self.last_sampled[kind] = at
        self._note_arrival(kind, at, received_at)
        problem = record.get("error")
        if isinstance(problem, str):
            self.problems[kind] = problem
        else:
            self.problems.pop(kind, None)
        if kind == "gpu":
            self._add_gpus(record, at)
        elif kind == "port":
            self._add_ports(record, at)
        elif kind == "host" and isinstance(record.get("host"), dict):
            self._add_host(record["host"], at)
        elif kind == "process":
            self.processes = dicts(record.get("processes"))
            if self.ranks_since is None:  # the first sample takes a while: its end says since when a rank is known
                self.ranks_since = max(
                    (s for one in self.processes if (s := number(one.get("since"))) is not None), default=None
                )

    def _note_arrival(self, kind: str, at: float | None, received_at: float | None) -> None:
        """Update when the node was last heard of, and its sampling interval."""
        received_at = received_at if received_at is not None else at
        if received_at is not None:
            self.since = received_at if self.since is None else self.since
            self.last_received[kind] = received_at
        if kind == "host" and at is not None and self.host.sampled_at is not None and at > self.host.sampled_at:
            self.interval = min(at - self.host.sampled_at, self.interval or HISTORY)
        self.gone = None

    def _add_gpus(self, record: dict[str, Any], at: float | None) -> None:
        if isinstance(versions := record.get("versions"), dict):
            self.versions = {str(name): one for name, one in versions.items() if isinstance(one, str)}
        for sample in dicts(record.get("gpus")):
            if not isinstance(sample.get("index"), int):
                continue
            gpu = self.gpus.setdefault(sample["index"], Device(f"GPU{sample['index']}"))
            gpu.add_sample(sample, at, {name: number(sample.get(key)) for name, key in GPU_SERIES.items()})

    def _add_ports(self, record: dict[str, Any], at: float | None) -> None:
        for sample in dicts(record.get("ports")):
            if not isinstance(sample.get("name"), str):
                continue
            port = self.ports.setdefault(sample["name"], Device(sample["name"]))
            rates = {
                way: _rate(port.now.get(way), sample.get(way), port.sampled_at, at, GIGABIT) for way in ("rx", "tx")
            }
            grown = _growth(port.now.get("errors"), sample.get("errors"))
            for name, count in grown.items():
                port.errors[name] = port.errors.get(name, 0) + count
            passed = at - port.sampled_at if at is not None and port.sampled_at is not None else 0.0
            rates["errors"] = number(sum(grown.values()) / passed) if passed > 0 else None
            port.add_sample(sample, at, rates)

    def _add_host(self, record: dict[str, Any], at: float | None) -> None:
        values = {name: number(record.get(name)) for name in ("cpu", "memory_used", "shm_used")}
        for name in ("disk_read", "disk_write"):
            values[name] = _rate(self.host.now.get(name), record.get(name), self.host.sampled_at, at, 1 << 20)
        self.host.add_sample(record, at, values)


GPU_SERIES = {
    "util": "utilization.gpu", "mem_util": "utilization.memory",
    "memory": "memory.used", "power": "power.draw", "temperature": "temperature.gpu",
    "clock": "clocks.sm", "pcie_rx": "pcie_rx", "pcie_tx": "pcie_tx", "nvlink_rx": "nvlink_rx", "nvlink_tx": "nvlink_tx",
}  # fmt: skip


def _growth(old: Any, new: Any) -> dict[str, int]:
    """Returns by how much each error counter grew; a counter that was reset did not grow."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {}
    pairs = ((name, old.get(name), value) for name, value in new.items())
    return {name: b - a for name, a, b in pairs if isinstance(a, int) and isinstance(b, int) and 1 << 64 > b > a >= 0}


def _rate(old: Any, new: Any, old_time: float | None, new_time: float | None, unit: float) -> float | None:
    """Returns the growth of a counter in units per second; None when unknown or when the counter was reset."""
    if not isinstance(old, int) or not isinstance(new, int) or old_time is None or new_time is None:
        return None
    passed, growth = new_time - old_time, number(new - old)
    return growth / passed / unit if growth is not None and growth >= 0 and passed > 0 else None


@dataclass
class State:
    """All nodes, in the order in which their first records arrived."""

    nodes: dict[str, Node] = field(default_factory=dict)
    now: float = 0.0  # time of the newest record
    jobs: dict[str, JobState] = field(default_factory=dict)  # jobs that stopped or wait, by name
    looks: Looks = field(default_factory=Looks)  # of the hang monitors of all nodes
    cleared: set[str] = field(default_factory=set)  # jobs that a look found to move
    steps: dict[str, Progress] = field(default_factory=dict)  # of jobs and logs whose steps are known, by name
    totals: Device = field(default_factory=lambda: Device("all nodes"))  # sums over nodes with fresh values, by second

    def headlines(self, now: float) -> list[str]:
        """Returns one sentence for each job that stopped or waits, the stopped ones first."""
        worst_first = sorted([*self.jobs.values()], key=lambda job: (job.state != "stopped", job.since))
        return [job.sentence(now, named=len(worst_first) > 1) for job in worst_first]

    def progress(self, now: float) -> Progress | None:
        """Returns the steps of the job that made one last; None where none is known or its last one is long ago."""
        newest = max(self.steps.values(), key=lambda one: one.at, default=None)
        return newest if newest is not None and now - newest.at < FORGOTTEN else None

    def node(self, name: str) -> Node:
        return self.nodes.setdefault(name, Node(name))

    def expect(self, name: str, now: float) -> None:
        """Add a node that is watched; a kind without records counts as silent from now on."""
        self.node(name).since = now

    def add_record(self, record: Any, received_at: float | None = None) -> Node | None:
        """Add one record of a feed and return its node; ignores anything that is not a record and returns None.

        Silence is measured by `received_at` on our clock, because the clock of another node may be wrong. In a replay it
        is None and the time of the record counts.
        """
        if not isinstance(record, dict) or record.get("kind") not in (*KINDS, "gone", "hang", "log"):
            return None
        if record["kind"] == "hang":
            self._add_look(record)
        for one in dicts(record.get("steps")):
            name = str(one.get("name"))
            self.steps.setdefault(name, Progress(name)).add(one)
        node = self.node(str(record.get("hostname") or "?"))
        if record["kind"] == "gone":
            node.gone = str(record.get("error") or "no answer")
            return node
        if record["kind"] in KINDS:
            node.add_record(record["kind"], record, received_at)
        at = record_time(record) or 0.0
        self.now = max(self.now, at)
        self._add_totals(at if received_at is None else received_at)
        return node

    def watched_ranks(self) -> bool:
        """Returns whether the ranks of all nodes, if any, were sampled for long enough to see that they do not move."""
        watched = ((node.ranks_since, node.last_sampled.get("process")) for node in self.nodes.values())
        return all(since is None or (at is not None and at - since >= STILL) for since, at in watched)

    def still_ranks(self) -> bool:
        """Returns whether at least half of the ranks of a job did not move in the last samples, and nobody has looked twice."""
        jobs: dict[str, list[bool]] = {}
        for node in self.nodes.values():
            for one in node.processes:
                since = number(one.get("since"))
                at = node.last_sampled.get("process")
                if since is not None and at is not None:
                    jobs.setdefault(str(one.get("name")), []).append(at - since >= STILL)
        looked = self.cleared | {job for (job, _), records in self.looks.records.items() if len(records) > 1}
        return any(2 * sum(still) >= len(still) for job, still in jobs.items() if job not in looked)

    def _add_look(self, record: dict[str, Any]) -> None:
        """Judge the job of a look of the hang monitor again."""
        job = self.looks.add(record)
        if job is None:
            return
        if record.get("over"):
            self.cleared.add(job)
        state = judge(self.looks.ranks(job), self.looks.sockets(job))
        if state is not None:
            self.jobs[job] = state
        else:
            self.jobs.pop(job, None)

    def _add_totals(self, at: float) -> None:
        """Add the sums of the last second: mean utilisation, power, network traffic in and out."""
        if at - (self.totals.sampled_at or 0.0) < 1.0:
            return
        gpus = [gpu for node in self.nodes.values() if node.age("gpu", at) is None for gpu in node.gpus.values()]
        ports = [port for node in self.nodes.values() if node.age("port", at) is None for port in node.ports.values()]
        utils = [value for gpu in gpus if (value := gpu.last("util")) is not None]
        sums = {"power": (gpus, "power"), "rx": (ports, "rx"), "tx": (ports, "tx")}
        values: dict[str, float | None] = {"util": sum(utils) / len(utils) if utils else None}
        for name, (devices, series) in sums.items():
            known = [value for device in devices if (value := device.last(series)) is not None]
            values[name] = sum(known) if known else None
        self.totals.add_sample({}, at, values)

    def gpus(self) -> Iterator[tuple[Node, Device]]:
        for node in self.nodes.values():
            for gpu in node.gpus.values():
                yield node, gpu


THROTTLES = (
    (0x80, "power brake"), (0x40, "HW thermal"), (0x8, "HW slowdown"), (0x20, "SW thermal"), (0x4, "power cap"),
    (0x10, "sync boost"), (0x2, "app clocks"), (0x1, "idle"),
)  # fmt: skip


def throttle(reasons: Any) -> str:
    """Returns the most severe of NVML's clock event reasons (nvml.h nvmlClocksEventReason*); empty if there is none."""
    if not isinstance(reasons, int):
        return ""
    return next((word for bit, word in THROTTLES if reasons & bit), "")


QUIET_LINK = 50e6  # bytes/s of NVLink or PCIe that a spinning kernel may cause by polling
QUIET_PORT = 0.05  # Gb/s that ssh, monitoring and the like cause
MIN_SAMPLES = 5


def spinning(node: Node, seconds: float = 60.0) -> tuple[int, float] | None:
    """Returns the number of GPUs that spin in a collective and the highest share of the power limit; None if they work.

    A waiting NCCL kernel keeps utilisation at 100 % and draws little power. All of this must hold for `seconds`: at least
    95 % utilisation, at most 25 % of the power limit, almost no traffic on NVLink, PCIe and the network, and no rank
    writes output. The other GPUs of the node must be idle: one of them belongs to the rank that is missing.
    """
    shares = []
    for gpu in node.gpus.values():
        share = _spinning_share(gpu, (gpu.sampled_at or 0.0) - seconds)
        if share is None:
            return None
        if share:
            shares.append(share)
    quiet_times = [quiet for rank in node.processes if (quiet := number(rank.get("quiet"))) is not None]
    if not shares or any(quiet < seconds for quiet in quiet_times):
        return None
    if any(_port_busy(port, (port.sampled_at or 0.0) - seconds) for port in node.ports.values()):
        return None
    return len(shares), max(shares)


def _spinning_share(gpu: Device, since: float) -> float | None:
    """Returns the share of its power limit that a spinning GPU draws, 0 for an idle one, None if it works or is unknown."""
    utils, powers = gpu.recent("util", since), gpu.recent("power", since)
    limit = number(gpu.now.get("enforced.power.limit"))
    if min(len(utils), len(powers)) < MIN_SAMPLES or not gpu.covers(since) or not limit or _links_busy(gpu, since):
        return None
    if min(utils) >= 95 and max(powers) <= 0.25 * limit:
        return max(powers) / limit
    return 0.0 if max(utils) <= 5 else None


def _links_busy(gpu: Device, since: float) -> bool:
    return any(
        max(gpu.recent(name, since), default=0.0) > QUIET_LINK
        for name in ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx")
    )


def _port_busy(port: Device, since: float) -> bool:
    return any(max(port.recent(way, since), default=0.0) > QUIET_PORT for way in ("rx", "tx"))
