"""Which GPU, pair of GPUs or host is slow in matrices of copies (nvbandwidth, p2pBandwidthLatencyTest), beside the others there.

No number is expected: what is slow is judged by its peers in the same matrix, since links of machines differ more than
faults do. Levels that belong to the machine, such as pairs below one PCIe switch and pairs across the sockets, are found by the
gaps between the numbers: a level to which many pairs of many GPUs belong is the machine's.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CopyRate, CopySlow, CopyTest

SLOW = 0.8  # of the usual bandwidth, below which a copy is slow
SLOW_LATENCY = 0.6  # latencies differ more between GPUs of a healthy machine
FAR_SLOW = 0.55  # below which half of the GPUs may be slow
_FEW = 0.25  # share of the GPUs of which the others prove that they are slow
_GAP = 0.85  # of the next faster copy, below which a new level begins
_MOSTLY = 0.7  # share of the copies of a GPU that have to be slow
_LARGEST = 1024  # GPUs of a matrix that are compared pair by pair

Gpu = tuple[str, int]  # host or empty, number


class Found(NamedTuple):
    """Something slow in one test."""

    what: str  # see `CopySlow`
    gpu: Gpu | None
    peer: Gpu | None
    value: float | None
    usual: float
    ratio: float
    alone: bool
    ref: int


@derivation(fills=[CopySlow], needs=[CopyTest], reads=[CopyRate])
def slow_copies(facts: Facts) -> Iterator[CopySlow]:
    """One row a culprit, over all tests."""
    tests = {test.number: test for test in facts.rows(CopyTest) if test.status == "passed"}
    rates: dict[int, list[CopyRate]] = defaultdict(list)
    for rate in facts.rows(CopyRate):
        rates[rate.test].append(rate)
    found: dict[tuple[str, Gpu | None, Gpu | None], list[tuple[Found, CopyTest]]] = defaultdict(list)
    for test, ones in _compared(tests, rates):
        for one in ones:
            found[one.what, one.gpu, one.peer].append((one, test))
    blamed = {gpu for what, gpu, _ in found if what in ("gpu", "gpu-far")}
    for (what, gpu, peer), all_of in found.items():
        if (what == "pair" and {gpu, peer} & blamed) or (what == "gpu-far" and ("gpu", gpu, None) in found):
            continue
        worst, test = min(all_of, key=lambda item: item[0].ratio)
        yield CopySlow(
            what=what, host=(gpu[0] or None) if gpu else None, gpu=gpu[1] if gpu and what != "host" else None,
            peer_host=(peer[0] or None) if peer else None, peer=peer[1] if peer else None, tests=len(all_of), test=test.test,
            unit=test.unit, value=worst.value, usual=worst.usual, ratio=worst.ratio,
            alone=int(any(one.alone for one, _ in all_of)), ref=worst.ref,
        )  # fmt: skip


def _compared(
    tests: dict[int, CopyTest], rates: dict[int, list[CopyRate]]
) -> Iterator[tuple[CopyTest, Iterable[Found]]]:
    lists: dict[tuple[str, str, str | None], list[int]] = defaultdict(list)
    matrices: dict[tuple[str, str, str | None], list[int]] = defaultdict(list)
    for number, test in tests.items():
        if test.kind in ("host", "local", "bisect"):
            lists[test.tool, test.test, test.model].append(number)
        elif test.kind == "pair" and "P2P=Disabled" not in test.test:
            matrices[test.tool, test.test, test.model].append(number)
    for numbers in lists.values():  # nodes of one kind are compared with each other
        test = tests[numbers[0]]
        yield test, slow_of_list([rate for number in numbers for rate in rates[number]], test)
    for numbers in matrices.values():
        for number in numbers:
            inside = [rate for rate in rates[number] if rate.host == rate.peer_host]
            between = [rate for rate in rates[number] if rate.host != rate.peer_host]
            yield tests[number], slow_of_matrix(inside, tests[number])
            yield tests[number], slow_of_matrix(between, tests[number], "gpu-far")  # slow to other hosts only
        yield tests[numbers[0]], _slow_hosts([(tests[number], rates[number]) for number in numbers])


def _speed(value: float, test: CopyTest) -> float:
    """What is more where a copy is faster."""
    return value if test.measure == "bandwidth" else 1 / value


def _limit(test: CopyTest) -> float:
    return SLOW if test.measure == "bandwidth" else SLOW_LATENCY


def _gpu(host: str | None, gpu: int) -> Gpu:
    return host or "", gpu


def _usual(values: Iterable[float]) -> float:
    """The median of the better half: that of a list of which half is slow too."""
    ordered = sorted(values)
    return median(ordered[len(ordered) // 2 :])


def slow_of_list(rates: list[CopyRate], test: CopyTest) -> Iterator[Found]:
    """The GPUs whose one number is far below that of the others."""
    known = [(rate, _speed(rate.value, test)) for rate in rates if rate.value]
    if len(known) < 2:
        return
    usual = _usual(speed for _, speed in known)
    slow = [(rate, speed) for rate, speed in known if speed < _limit(test) * usual]
    alone = len(known) > 2 and len(slow) <= max(1, _FEW * len(known))
    if not alone:  # half of the GPUs may have a longer way to memory, not one that is twice as slow
        slow = [(rate, speed) for rate, speed in known if speed < FAR_SLOW * usual]
        if 2 * len(slow) > len(known):
            return
    what = {"host": "host-link", "local": "local", "bisect": "pair"}[test.kind]
    for rate, speed in slow:
        peer = _gpu(rate.peer_host, rate.peer) if rate.peer is not None else None
        normal = usual if test.measure == "bandwidth" else 1 / usual
        yield Found(what, _gpu(rate.host, rate.gpu), peer, rate.value, normal, speed / usual, alone, rate.ref)


class _Cell(NamedTuple):
    column: Gpu
    row: Gpu
    speed: float
    rate: CopyRate


def slow_of_matrix(rates: list[CopyRate], test: CopyTest, of_gpu: str = "gpu") -> Iterator[Found]:
    """GPUs and pairs that a level below the others consists of, but for levels that belong to the machine."""
    gpus = {_gpu(rate.host, rate.gpu) for rate in rates}
    if len(gpus) < 3 or len(gpus) > _LARGEST:
        return
    cells = [
        _Cell(_gpu(rate.host, rate.gpu), _gpu(rate.peer_host, rate.peer), _speed(rate.value, test), rate)
        for rate in rates
        if rate.value and rate.peer is not None
    ]
    yield from _cut_off(rates, cells, gpus, test)
    ordered = sorted({cell.speed for cell in cells}, reverse=True)
    gaps = [(above + below) / 2 for above, below in pairwise(ordered) if below < min(_GAP, _limit(test) + 0.05) * above]
    for limit in gaps[:20]:
        slow = [cell for cell in cells if cell.speed < limit]
        guilty, pairs = _guilty(cells, slow)
        if len(guilty) > max(1, _FEW * len(gpus)) or len(pairs) > max(1, len(gpus) // 8):
            continue
        usual = _usual(cell.speed for cell in cells if cell.speed >= limit)
        own = {gpu: [cell for cell in slow if gpu in (cell.column, cell.row)] for gpu in sorted(guilty)}
        groups: list[tuple[str, Gpu, Gpu | None, list[_Cell]]] = [(of_gpu, gpu, None, of) for gpu, of in own.items()]
        groups += [("pair", min(pair), max(pair), of) for pair, of in pairs.items()]
        for what, gpu, peer, of in groups:
            speed = median(cell.speed for cell in of)
            worst = min(of, key=lambda cell: cell.speed)
            if speed < _limit(test) * usual:
                values = (speed, usual) if test.measure == "bandwidth" else (1 / speed, 1 / usual)
                yield Found(what, gpu, peer, *values, speed / usual, len(gpus) > 3, worst.rate.ref)
        return


def _guilty(cells: list[_Cell], slow: list[_Cell]) -> tuple[set[Gpu], dict[frozenset[Gpu], list[_Cell]]]:
    """GPUs of which most copies as row or as column are slow, and the slow pairs that they do not explain."""
    guilty: set[Gpu] = set()
    left = slow
    while True:
        counts: dict[tuple[Gpu, str], list[int]] = defaultdict(lambda: [0, 0])
        for cell in cells:
            if cell.column not in guilty and cell.row not in guilty:
                counts[cell.column, "column"][1] += 1
                counts[cell.row, "row"][1] += 1
        for cell in left:
            counts[cell.column, "column"][0] += 1
            counts[cell.row, "row"][0] += 1
        shares = [(few / many, few, key[0]) for key, (few, many) in counts.items() if few > 1 and few >= _MOSTLY * many]
        if not shares:
            break
        top = max(shares)[:2]
        guilty |= {gpu for share, few, gpu in shares if (share, few) == top}
        left = [cell for cell in left if cell.column not in guilty and cell.row not in guilty]
    pairs: dict[frozenset[Gpu], list[_Cell]] = defaultdict(list)
    for cell in left:
        pairs[frozenset((cell.column, cell.row))].append(cell)
    return guilty, pairs


def _cut_off(rates: list[CopyRate], cells: list[_Cell], gpus: set[Gpu], test: CopyTest) -> Iterator[Found]:
    """GPUs that can copy to no other one, where the others can."""
    reached = {gpu for cell in cells for gpu in (cell.column, cell.row)}
    if not cells or len(gpus - reached) > max(1, _FEW * len(gpus)):
        return
    usual = _usual(cell.speed for cell in cells)
    for gpu in sorted(gpus - reached):
        ref = next(rate.ref for rate in rates if _gpu(rate.host, rate.gpu) == gpu)
        yield Found("cut-off", gpu, None, None, usual if test.measure == "bandwidth" else 1 / usual, 0.0, True, ref)


def _slow_hosts(matrices: list[tuple[CopyTest, list[CopyRate]]]) -> Iterator[Found]:
    """Hosts of which the whole matrix is slow beside those of hosts of the same kind."""
    known = []
    for test, rates in matrices:
        speeds = [_speed(rate.value, test) for rate in rates if rate.value]
        if test.host and speeds:
            known.append((test, _usual(speeds)))  # of which one slow GPU changes little
    if len({test.host for test, _ in known}) < 3:
        return
    usual = median(speed for _, speed in known)
    slow = [(test, speed) for test, speed in known if speed < _limit(test) * usual]
    if len(slow) > max(1, _FEW * len(known)):
        return
    for test, speed in slow:
        values = (speed, usual) if test.measure == "bandwidth" else (1 / speed, 1 / usual)
        yield Found("host", (test.host or "", 0), None, *values, speed / usual, True, test.ref)
