"""Where a series changes its level, whether it drifts, and whether its dips come at a fixed distance.

All of it works on ranks and medians, because step times have long tails: one checkpoint must not look like a new level.
"""

import itertools
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from nccl_doctor.common.robust import median

_SAMPLE = 200  # values that a trend is computed from


def change_points(values: Sequence[float], *, alpha: float = 0.001, least: int = 5, shift: float = 0.05) -> list[int]:
    """Indexes at which a new level begins, ascending.

    Pettitt's test, applied again to both halves: it asks for the place where the ranks before and behind differ most, and how
    likely such a difference is without a change (p = 2 exp(-6 K² / (n³ + n²)), A. N. Pettitt, Applied Statistics 28, 1979). A
    level has at least `least` values, and its median differs from that of the level before by the share `shift`. Of few values a
    place that parts them clearly is enough.
    """
    found: list[int] = []
    waiting = [(0, len(values))]
    while waiting:
        start, stop = waiting.pop()
        place = _split(values[start:stop], alpha, least)
        if place is not None:
            found.append(start + place)
            waiting += [(start, start + place), (start + place, stop)]
    places = _merged(values, sorted(found), shift)
    return _aligned(values, places, least) if places else []


def _split(values: Sequence[float], alpha: float, least: int) -> int | None:
    count = len(values)
    if count < 2 * least:
        return None
    total, best, place = 0.0, 0.0, 0
    for index, rank in enumerate(ranks(values)[:-1], 1):
        total += rank
        distance = abs(2 * total - index * (count + 1))
        if distance > best and least <= index <= count - least:
            best, place = distance, index
    chance = 2 * math.exp(-6 * best * best / (count**3 + count**2))
    return place if chance < alpha or _is_step(values[:place], values[place:]) else None


def _is_step(before: Sequence[float], behind: Sequence[float]) -> bool:
    """Whether two short stretches lie far apart: the gap between them is three times as wide as each, and a quarter of the level.

    Ranks alone prove nothing of fewer than some twenty values.
    """
    if not before or not behind:
        return False
    low, high = sorted((before, behind), key=median)
    gap = min(high) - max(low)
    return gap > 3 * max(max(part) - min(part) for part in (low, high)) and gap > abs(median(high)) / 4


def _merged(values: Sequence[float], places: list[int], shift: float) -> list[int]:
    """Drop the change with the smallest step until each step is large enough."""
    while places:
        edges = [0, *places, len(values)]
        levels = [median(values[a:b]) for a, b in itertools.pairwise(edges)]
        steps = [abs(b - a) / max(abs(a), abs(b), 1e-300) for a, b in itertools.pairwise(levels)]
        smallest = min(range(len(steps)), key=steps.__getitem__)
        if steps[smallest] >= shift:
            break
        del places[smallest]
    return places


def _aligned(values: Sequence[float], places: list[int], least: int) -> list[int]:
    """Move each place by fewer than `least` values, so that those beside it are on the side whose level is nearer.

    Ranks part a series where the values above the middle rank begin, which lie in the longer of two levels.
    """
    edges = [0, *places, len(values)]
    levels = [median(values[a:b]) for a, b in itertools.pairwise(edges)]
    for index, (before, behind) in enumerate(itertools.pairwise(levels), 1):
        place = edges[index]
        low, high = max(edges[index - 1] + least, place - least + 1), min(edges[index + 1] - least, place + least - 1)
        while place < high and abs(values[place] - before) < abs(values[place] - behind):
            place += 1
        while place > low and abs(values[place - 1] - behind) < abs(values[place - 1] - before):
            place -= 1
        edges[index] = place
    return edges[1:-1]


def bumps(
    values: Sequence[float], *, alpha: float = 0.001, least: int = 5, times: float = 1.25, most: int = 3
) -> list[tuple[int, int]]:
    """Stretches of one level that are higher for a while: (first index, index after the last), ascending.

    Pettitt's test asks for one place that parts a series, so it overlooks a short stretch in the middle. A bump is at least `least`
    neighbours that are all `times` the median of the level. So many in a row must be unlikely by chance, judged by how common
    such values are elsewhere. More than `most` are a pattern and not found here: see `period`.
    """
    if len(values) < 3 * least:
        return []
    limit = times * median(values)
    runs: list[tuple[int, int]] = []
    for is_high, group in itertools.groupby(enumerate(values), key=lambda item: item[1] > limit):
        places = [index for index, _ in group]
        if is_high and len(places) >= least:
            near = bool(runs) and places[0] - runs[-1][1] <= 2
            runs.append((runs.pop()[0] if near else places[0], places[-1] + 1))
    inside = sum(stop - start for start, stop in runs)
    share = sum(value > limit for value in values) - sum(value > limit for a, b in runs for value in values[a:b])
    chance = max(share, 1) / (len(values) - inside) if inside < len(values) else 1.0
    if len(runs) > most or inside > len(values) / 3:
        return []
    return [(start, stop) for start, stop in runs if len(values) * chance ** (stop - start) < alpha]


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for index in order[start:stop]:
            result[index] = (start + stop + 1) / 2
        start = stop
    return result


def drift(values: Sequence[float], *, alpha: float = 0.001) -> float | None:
    """Change over the whole series, relative to its median; None where no trend is proved.

    Theil-Sen slope (the median of all slopes between two values), accepted by the Mann-Kendall test with normal approximation.
    """
    stride = -(-len(values) // _SAMPLE)
    chosen = [median(values[i : i + stride]) for i in range(0, len(values), stride)]
    count = len(chosen)
    if count < 10:
        return None
    score = 0  # pairs of which the later value is higher, without those of which it is lower
    before: list[float] = []
    for value in chosen:
        score += bisect_left(before, value) + bisect_right(before, value) - len(before)
        insort(before, value)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if math.erfc(abs(score) / deviation / math.sqrt(2)) >= alpha:
        return None
    slopes = [(chosen[j] - chosen[i]) / (j - i) for i, j in itertools.combinations(range(count), 2)]
    middle = median(chosen)
    return median(slopes) * (count - 1) / middle if middle else None


def period(places: Sequence[int], span: int, stride: int = 1) -> tuple[int, int] | None:
    """(distance, how many places another one follows at it) of events that repeat, None where they do not.

    The autocorrelation of the series that is 1 at the events and 0 elsewhere, looked up at the distances between neighbours:
    the smallest distance at which six of ten events meet another one, and twice as many as chance gives. `span` is the length
    of the series, `stride` the distance of its values; events one stride apart are one stretch, not a period.
    """
    known = sorted(set(places))
    if len(known) < 4 or span <= 0:
        return None
    gaps = sorted({b - a for a, b in itertools.pairwise(known) if b - a > stride})
    for gap in gaps:
        slack = max(stride, gap // 50)
        chance = min(len(known) * (2 * slack // stride + 1) * stride / span, 1.0)
        tries = bisect_right(known, known[-1] + slack - gap)
        if 2 * chance >= 1 or tries < 0.6 * (len(known) - 1):  # no number of them is enough
            continue
        met = sum(_near(known, place + gap, slack) for place in known[:tries])
        if met >= 3 and met >= 0.6 * tries and met >= 0.6 * (len(known) - 1) and met > 2 * chance * tries:
            return gap, met + 1
    return None


def _near(places: list[int], place: int, slack: int) -> bool:
    """Whether one of the places, which ascend, is nearer than the slack."""
    at = bisect_right(places, place - slack)
    return at < len(places) and places[at] < place + slack
