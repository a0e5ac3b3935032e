"""Which host, or which link between two, makes runs of nccl-tests slow that other hosts do faster.

A run goes at the pace of its slowest part. So a host is to blame where most of the runs that it takes part in are slow, whoever
its partners are, and a link where the two hosts that it joins are fast with others.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchHost, BenchLink, BenchMember, BenchRow, BenchRun
from nccl_doctor.knowledge.bandwidth import LARGE

SLOW = 0.15  # a run that is this share below the usual is slow
SPREAD = 4  # scaled deviations of the runs that are no difference
_LARGEST = 3  # sizes of a run that count


_Speeds = dict[int, list[tuple[float, int]]]  # of a run by size: bus bandwidth and evidence of each placement


class _Run(NamedTuple):
    """A run beside others of its kind."""

    hosts: frozenset[str]
    kind: tuple[str | None, int, int | None]  # operation, hosts, ranks
    busbw: float
    usual: float
    ratio: float
    ref: int  # of its largest size


@derivation(fills=[BenchHost, BenchLink], needs=[BenchRun], reads=[BenchRow, BenchMember])
def bench_hosts(facts: Facts) -> Iterator[BenchHost | BenchLink]:
    """Hosts and pairs of hosts in runs that differ in nothing but their hosts; nothing where there are no three sets of hosts."""
    runs = _compared(facts)
    if not runs:
        return
    limit = 1 - _tolerance(runs)
    guilty, unexplained = _guilty(runs, limit)
    yield from _hosts(runs, guilty, limit)
    yield from _links(runs, guilty, unexplained, limit)


def _compared(facts: Facts) -> list[_Run]:
    """The runs with their bandwidth as a share of what the usual host reaches at the same size."""
    hosts: dict[int, set[str]] = defaultdict(set)
    for member in facts.rows(BenchMember):
        hosts[member.run].add(member.host)
    values: dict[int, _Speeds] = {}
    printed = facts.each("SELECT run, size, busbw, ref FROM bench_row WHERE busbw > 0 ORDER BY run, rowid")
    for number, rows in groupby(printed, itemgetter(0)):
        speeds: _Speeds = defaultdict(list)
        for _, size, busbw, ref in rows:
            speeds[size].append((busbw, ref))
        values[number] = {size: speeds[size] for size in _sizes(speeds)}
    kinds: dict[tuple[str | None, int, int | None], list[int]] = defaultdict(list)
    for run in facts.rows(BenchRun):
        if hosts[run.run] and run.run in values:
            kinds[run.operation, len(hosts[run.run]), run.ranks].append(run.run)
    found = []
    for kind, runs in kinds.items():
        if len({frozenset(hosts[number]) for number in runs}) < 3:
            continue
        usual = _usual({number: frozenset(hosts[number]) for number in runs}, values)
        for number in runs:
            sizes = _sizes(values[number])
            top = values[number][sizes[-1]]
            ratios = [median(busbw for busbw, _ in values[number][size]) / usual[size] for size in sizes]
            busbw = median(busbw for busbw, _ in top)
            found.append(_Run(frozenset(hosts[number]), kind, busbw, usual[sizes[-1]], median(ratios), top[0][1]))
    return found


def _sizes(rows: _Speeds) -> list[int]:
    """The largest sizes, from which bandwidth and not latency decides where the run has such."""
    return sorted(size for size in rows if size >= LARGE)[-_LARGEST:] or sorted(rows)[-_LARGEST:]


def _usual(runs: dict[int, frozenset[str]], values: dict[int, _Speeds]) -> dict[int, float]:
    """Size -> what the host in the middle reaches in the better half of its runs."""
    by_size: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run, hosts in runs.items():
        for size in _sizes(values[run]):
            for host in hosts:
                by_size[size][host].append(median(busbw for busbw, _ in values[run][size]))
    return {size: median(map(_better, hosts.values())) for size, hosts in by_size.items()}


def _better(values: Sequence[float]) -> float:
    """The median, of an even number the upper one: one slow partner of two does not make a host slow."""
    return sorted(values, reverse=True)[(len(values) - 1) // 2]


def _tolerance(runs: list[_Run]) -> float:
    """The share below the usual from which a run is slow: more than the runs differ that are no slower than usual."""
    above = [run.ratio - 1 for run in runs if run.ratio >= 1]
    return min(max(SLOW, SPREAD * 1.4826 * median(above)), 0.4) if above else SLOW


def _guilty(runs: list[_Run], limit: float) -> tuple[dict[str, float], list[_Run]]:
    """Slow hosts with what is left of their bandwidth, and the slow runs that they do not explain.

    The host with the largest share of slow runs comes first; the runs with it then say nothing about its partners.
    """
    guilty: dict[str, float] = {}
    left = [run for run in runs if run.ratio < limit]
    while True:
        best: tuple[float, int, str] | None = None
        for host in sorted({host for run in left for host in run.hosts}):
            own = {run.hosts for run in runs if host in run.hosts and not run.hosts & guilty.keys()}
            slow = {run.hosts for run in left if host in run.hosts and not run.hosts & guilty.keys()}
            alone = any(len(hosts) == 1 for hosts in slow)
            if 2 * len(slow) > len(own) and (len(slow) > 1 or alone):
                best = max(best or (0.0, 0, ""), (len(slow) / len(own), len(slow), host))
        if best is None:
            return guilty, left
        host = best[2]
        factor = median(run.ratio for run in left if host in run.hosts and not run.hosts & guilty.keys())
        guilty[host] = factor
        left = [run for run in left if host not in run.hosts or run.ratio < factor * limit]


def _hosts(runs: list[_Run], guilty: dict[str, float], limit: float) -> Iterator[BenchHost]:
    by_host: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        for host in run.hosts:
            by_host[host].append(run)
    for host, own in sorted(by_host.items()):
        main = [run for run in own if run.kind == own[0].kind]
        slowest = min(own, key=lambda run: run.ratio)
        yield BenchHost(
            host=host, runs=len(own), partners=len({run.hosts for run in own}), slow=sum(run.ratio < limit for run in own),
            busbw=median(run.busbw for run in main), usual=median(run.usual for run in main),
            ratio=_better([run.ratio for run in own]), factor=guilty.get(host), ref=slowest.ref,
        )  # fmt: skip


def _links(runs: list[_Run], guilty: dict[str, float], unexplained: list[_Run], limit: float) -> Iterator[BenchLink]:
    by_pair: dict[tuple[str, str], list[_Run]] = defaultdict(list)
    fast: set[str] = set()  # hosts that are fast with somebody
    for run in runs:
        if len(run.hosts) == 2:
            first, second = sorted(run.hosts)
            by_pair[first, second].append(run)
        if run.ratio >= limit:
            fast |= run.hosts
    for (first, second), own in sorted(by_pair.items()):
        main = [run for run in own if run.kind == own[0].kind]
        ratio = _better([run.ratio for run in own])
        culprit = None
        if ratio < limit:
            open_ = any(run in unexplained for run in own)
            if open_:
                culprit = "link" if {first, second} <= fast | guilty.keys() else "unclear"
            else:
                culprit = "both" if {first, second} <= guilty.keys() else "src" if first in guilty else "dst"
        speeds = [run.busbw for run in main]
        yield BenchLink(
            src_host=first, dst_host=second, runs=len(own), busbw=median(speeds), usual=median(run.usual for run in main),
            ratio=ratio, spread=1 - min(speeds) / max(speeds) if len(speeds) > 1 else None, culprit=culprit,
            ref=min(own, key=lambda run: run.ratio).ref,
        )  # fmt: skip
