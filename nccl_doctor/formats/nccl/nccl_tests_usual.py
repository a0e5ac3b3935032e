"""Runs of nccl-tests that are as the others of their file, such as those of each two of many nodes: which of their rows are kept."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from nccl_doctor.common.robust import median
from nccl_doctor.knowledge.bandwidth import LARGE, SMALL

WHOLE = 200  # runs of one kind of which all rows are kept, and by which the further ones are judged
# Bytes of a size, and the share of the usual bandwidth within which it is as usual: less than any rule calls slow. Latency varies more.
_NEAR = ((1 << 20, 0.1), (64 << 10, 0.2))
_PLATEAU = 3  # largest sizes that show what a run reached


class Numbers(NamedTuple):
    """The rows of a run, each with both placements, which stand behind each other in times and bandwidths."""

    sizes: tuple[int, ...]  # ascending
    times: list[float]  # microseconds
    busbw: list[float]  # GB/s


class _Usual(NamedTuple):
    """What the first runs of a kind reach."""

    least: list[float]  # GB/s of each placement
    most: list[float]
    small: list[int]  # places of what shows the latency
    large: list[int]  # of what shows the plateau


class UsualRuns:
    """What runs of a kind reach, from the first ones of a file."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, ...], list[list[float]]] = {}  # bandwidths of these
        self._usual: dict[tuple[Any, ...], _Usual] = {}  # once there are enough of them

    def kept(self, kind: tuple[Any, ...], run: Numbers) -> list[int] | None:
        """Which placements are enough of a run that is as those of its kind; None where all are kept.

        Plateau, latency floor and the size of half the bandwidth are those of all of them.
        """
        usual = self._usual.get(kind)
        if usual is None:
            first = self._first.setdefault(kind, [])
            first.append(run.busbw)
            if len(first) >= WHOLE:
                self._usual[kind] = _usual(run.sizes, first)
                del self._first[kind]
            return None
        busbw = run.busbw
        if any(
            value < least or value > most for value, least, most in zip(busbw, usual.least, usual.most, strict=True)
        ):
            return None
        half = _around_half(busbw, median([busbw[at] for at in usual.large]) / 2) if usual.large else None
        if half is None or run.sizes[half[0] // 2] <= SMALL:
            return None
        times = run.times
        small = sorted((at for at in usual.small if times[at] > 0), key=times.__getitem__)
        spare = max((len(small) - 3) // 2, 0)  # on each side of those whose median is that of all
        return sorted({*small[spare : len(small) - spare], *half, *usual.large})


def _usual(sizes: tuple[int, ...], runs: list[list[float]]) -> _Usual:
    least, most = [], []
    for at, values in enumerate(zip(*runs, strict=True)):
        size, middle = sizes[at // 2], median(values)
        share = next((share for bytes_, share in _NEAR if size >= bytes_), None)
        least.append(middle * (1 - share) if share is not None else float("-inf"))
        most.append(middle * (1 + share) if share is not None else float("inf"))
    small = [at for at in range(2 * len(sizes)) if 0 < sizes[at // 2] <= SMALL]
    return _Usual(least, most, small, [at for at in range(2 * len(sizes)) if sizes[at // 2] >= LARGE][-2 * _PLATEAU :])


def _around_half(busbw: Sequence[float], half: float) -> tuple[int, ...] | None:
    """The placements of the sizes below and from which half of the plateau is reached; None where no size is below it."""
    for at in range(0, len(busbw), 2):
        if busbw[at] + busbw[at + 1] >= 2 * half:
            return tuple(range(at - 2, at + 2)) if at and half else None
    return None
