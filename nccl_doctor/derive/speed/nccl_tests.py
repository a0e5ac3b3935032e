"""nccl-tests against the links: the plateau that a run reached, its latency floor, and what NVLink, PCIe or network ports allow."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchLimit, BenchRow, BenchRun, IbPort, NetDevice, TopoNet
from nccl_doctor.knowledge import bandwidth
from nccl_doctor.knowledge.bandwidth import LARGE, SMALL

FULL = 8  # GPUs of a node from which all NVLinks carry a ring, with or without a switch


@derivation(fills=[BenchLimit], needs=[BenchRun], reads=[BenchRow, IbPort, NetDevice, TopoNet])
def bench_limits(facts: Facts) -> Iterator[BenchLimit]:
    """What each run of nccl-tests reached, and what its links allow."""
    runs = {run.run: run for run in facts.rows(BenchRun)}
    rows = facts.each("SELECT run, size, busbw, time_us FROM bench_row ORDER BY run, rowid")
    of_run = {number: _Reached.of([_Row(*row[1:]) for row in of]) for number, of in groupby(rows, itemgetter(0))}
    ports, none = _ports(facts), _Reached.of([])
    for number, run in runs.items():
        limit, basis, why, known = _allowed(run, ports)
        yield BenchLimit(
            run.run, *of_run.get(number, none), limit_=limit, basis=basis, why=why, known=known, ref=run.ref
        )  # fmt: skip


class _Row(NamedTuple):
    """One placement of a size."""

    size: int
    busbw: float
    time_us: float


class _Reached(NamedTuple):
    """What a run reached: columns of BenchLimit."""

    plateau: float | None
    plateau_size: int | None
    floor_us: float | None
    half_size: int | None

    @classmethod
    def of(cls, rows: list[_Row]) -> "_Reached":
        large = sorted({row.size for row in rows if row.size >= LARGE})[-3:]
        reached = [row.busbw for row in rows if row.size in large]
        small = [row.time_us for row in rows if 0 < row.size <= SMALL and row.time_us > 0]
        return cls(
            median(reached) if reached else None,
            large[0] if large else None,
            median(small) if len(small) >= 3 else None,
            _half_size(rows, reached),
        )


class _Ports(NamedTuple):
    """The network ports of the node that has the least of them."""

    gigabits: float
    number: int
    source: str


def _ports(facts: Facts) -> _Ports | None:
    """From ibstat and its like, else from NCCL's own list, else from topology files; None where nothing shows the speed of a port."""
    nodes: dict[str, dict[object, tuple[float, str]]] = defaultdict(dict)
    for port in facts.rows(IbPort):
        if port.state == "Active" and port.rate:
            nodes[port.host or port.file][port.hca, port.port] = (port.rate, "the active ports")
    if not nodes:
        for card in facts.rows(NetDevice):
            if card.rate:
                nodes[card.host or ""][card.name, card.port] = (
                    card.rate / 1000,
                    "the list of devices that NCCL printed",
                )
    if not nodes:
        for net in facts.rows(TopoNet):
            if net.rate:
                nodes[net.file][net.dev, net.name] = (net.rate / 1000, "the topology file")
    sums = [_best(list(ports.values())) for ports in nodes.values()]
    return min(sums, default=None)


def _best(ports: list[tuple[float, str]]) -> _Ports:
    """Slow ports beside fast ones serve storage and management."""
    fastest = max(rate for rate, _ in ports)
    used = [rate for rate, _ in ports if rate >= fastest / 2]
    return _Ports(sum(used), len(used), ports[0][1])


def _half_size(rows: list[_Row], reached: list[float]) -> int | None:
    """The size at which half of the plateau is reached, on a straight line between two sizes; None where no run was slower."""
    by_size: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        by_size[row.size].append(row.busbw)
    half = median(reached) / 2 if reached else 0.0
    before = None
    for size, values in sorted(by_size.items()):
        now = median(values)
        if now >= half:
            if before is None or not half:
                return None
            return round(before[0] + (size - before[0]) * (half - before[1]) / (now - before[1]))
        before = size, now
    return None


def _allowed(run: BenchRun, ports: _Ports | None) -> tuple[float | None, str | None, str | None, int]:
    """(GB/s, basis, clause, 1 where the path is certain) for one run."""
    if run.graph_bw:
        return run.graph_bw, "graph", "NCCL computed this for its rings from the links it found", 1
    gpu = bandwidth.gpu(run.gpu) if run.gpu else None
    if (run.hosts or 0) > 1 and ports is not None:
        # All rings of a node leave it through its ports once, so their sum bounds a ring. NVLink is faster.
        many = ports.number > 1
        what = f"{ports.number} network port{'s' if many else ''} of a node"
        speed = f"({ports.gigabits:g} Gb/s{' together' if many else ''}, from {ports.source})"
        why = f"the {what} {speed} carr{'y' if many else 'ies'} this, if all serve the job"
        return bandwidth.port(ports.gigabits), "network", why, 0
    if gpu is None or run.hosts != 1 or run.shared_gpu or (run.ranks or 0) < 2:
        return None, None, None, 0
    if gpu.nvlink is not None and not gpu.optional:
        full = (run.ranks or 0) >= FULL
        doubt = "" if full else ", if all links lead to the GPUs of the test"
        return gpu.nvlink, "nvlink", f"NVLink {gpu.generation} of {gpu.name} carries this{doubt}", int(full)
    bridge = " without an NVLink bridge" if gpu.optional and gpu.nvlink else ""
    return gpu.pcie, "pcie", f"PCIe x16 of this card{bridge} carries this", 0
