"""Statistics that a few outliers do not move."""

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises StatisticsError where there is none."""
    import statistics  # loads decimal and random: 5 ms that a prologue would pay for nothing

    return statistics.median(values)


def spread(values: Iterable[float]) -> tuple[float, float]:
    """The median, and the median of the distances from it (MAD)."""
    known = list(values)
    middle = median(known)
    return middle, median(abs(value - middle) for value in known)
