"""Metrics as a program exposes them to Prometheus: gauges of rates and times, and the means of its summaries and histograms."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import kind_of, unit_in

_NAME = compiled(rb"[A-Za-z_:][\w:]{0,200}")
_VALUE = compiled(rb"(-?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)(?: \d{10,13})?\r?")
_LONGEST = 3000  # bytes of a line
_PARTS = ("_bucket", "_created", "_sum", "_count", "_total")
_MOST = 10_000  # summaries whose count or sum did not come yet


class ExposedMetrics:
    """The metrics of one file.

    Source: the exposition format of Prometheus 0.0.4::

        app:queue_seconds_bucket{le="0.5",model="m"} 12
        app:queue_seconds_count{model="m"} 20
        app:queue_seconds_sum{model="m"} 8.5
        app:tokens_per_second{model="m"} 812.5
    """

    def __init__(self, series: NumberSeries) -> None:
        self._series = series
        self._halves: dict[tuple[str, bytes], tuple[str, float]] = {}

    def take(self, line: bytes, number: int) -> bool | None:
        """Take a line; whether it told a number, and None for one that is no metric."""
        if not is_exposed(line):
            return None
        begin, end = line.find(b"{"), line.rfind(b"} ") + 1
        found = _VALUE.fullmatch(line, end + 1)
        if found is None:
            return None
        name, labels, value = line[:begin].decode(), line[begin:end], float(found[1])
        part = next((part for part in _PARTS if name.endswith(part)), "")
        if part in ("_sum", "_count"):
            return self._mean(name.removesuffix(part), labels, part, value, Place(number, line))
        if part or kind_of(name, "") is None:
            return False
        return self._series.add(name, unit_in(name), value, Place(number, line))

    def _mean(self, name: str, labels: bytes, part: str, value: float, place: Place) -> bool:
        """Take the sum or the count of a summary; with the second of the two its mean is known."""
        other = self._halves.pop((name, labels), None)
        if other is None or other[0] == part:
            if len(self._halves) < _MOST:
                self._halves[name, labels] = part, value
            return False
        total, count = (value, other[1]) if part == "_sum" else (other[1], value)
        if count <= 0 or kind_of(name, "") is None:
            return False
        return self._series.add(f"mean {name}", unit_in(name), total / count, place)


def is_exposed(line: bytes) -> bool:
    """Whether a line begins with the name and the labels of a metric."""
    begin, end = line.find(b"{"), line.rfind(b"} ") + 1
    return 0 < begin < end and len(line) <= _LONGEST and _NAME.fullmatch(line, 0, begin) is not None
