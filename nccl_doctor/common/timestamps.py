"""When a line was written, as its own text says, in any of the forms that jobs and kernels print.

Clocks are not converted: `local` is the wall time of the node that wrote the line, `utc` one that says so. Two moments can be
compared only on the same clock, or where both lines name their zone. Seconds since boot are not a wall time and are ignored.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from nccl_doctor.common.expressions import compiled

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>[\d ]{1,9}))?"
_ZONE = r"(?P<zone>Z|[+-](?:0\d|1[0-4]):?(?:00|15|30|45)\b|[ ]?UTC\b)?"
_ISO = compiled(rf"(?<!\d)(?P<year>(?:19|20)\d\d)[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T_ ]{_CLOCK}{_ZONE}")
_ASCTIME = compiled(
    rf"\b(?P<name>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK}(?: (?P<year>(?:19|20)\d\d)\b)?"
)
_GLOG = compiled(rf"(?:^|[\s\[:])[IWEF](?P<month>\d{{1,2}})(?P<day>\d\d) {_CLOCK} ")
_COMPACT = compiled(  # of nvidia-smi dmon
    rf"(?<!\d)(?P<year>20\d\d)(?P<month>0[1-9]|1[0-2])(?P<day>[0-3]\d)[T_ -]{{1,4}}{_CLOCK}"
)
_MONTH_FIRST = compiled(  # `%m/%d/%Y %H:%M:%S` of loggers
    rf"(?<![\d/])(?P<month>0[1-9]|1[0-2])/(?P<day>[0-3]\d)/(?P<year>20\d\d)[ ,-]{{1,3}}{_CLOCK}"
)
_FORMS = _ISO, _ASCTIME, _GLOG, _COMPACT, _MONTH_FIRST
_EPOCH = datetime(1970, 1, 1)
_LOOKED_AT = 600  # characters of a line


def iso_seconds(text: str, *, local: bool = False) -> float | None:
    """Seconds since the epoch of an ISO date, also with `/`; None if the text is not a date.

    `2024-05-07T12:00:00.25+02:00`, `2024/05/07 12:00:00`. Without a zone it is UTC, or with `local` the zone of this machine.
    """
    text = text.replace("/", "-").removesuffix(" UTC").removesuffix("UTC")
    try:
        when = datetime.fromisoformat(text)
        return when.timestamp() if local or when.tzinfo else (when - _EPOCH).total_seconds()
    except (ValueError, OverflowError, OSError):
        return None


def asctime_seconds(text: str, *, local: bool = False) -> float | None:
    """Seconds since the epoch of `Tue May  7 12:00:00 2024` (asctime(3)); UTC, or with `local` the zone of this machine.

    The months are those of the C locale whatever the locale of the process.
    """
    try:
        _, month, day, clock, year = text.split()
        hour, minute, second = map(int, clock.split(":"))
        if local:
            return datetime(int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second).timestamp()
        if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
            return None
        return _midnight(year, month, day) + 3600 * hour + 60 * minute + second
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(1 << 8)  # the jobs and lines of a day
def _midnight(year: str, month: str, day: str) -> float:
    """Seconds since the epoch of the begin of a day, UTC."""
    return datetime(int(year), _MONTHS.index(month) + 1, int(day), tzinfo=UTC).timestamp()


class Moment(NamedTuple):
    """Seconds since the epoch as the clock of the line shows them, read as UTC."""

    seconds: float
    clock: str  # local or utc
    zone: int | None = None  # seconds by which that clock is ahead of UTC; None where the line does not say

    def words(self) -> str:
        """`10:02:11`."""
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%H:%M:%S")

    def until(self, later: "Moment") -> float | None:
        """Seconds from this moment to another one, negative where that is earlier; None where the clocks may differ.

        Two clocks without a zone count as one: the nodes of a site agree on it. A clock without a zone and one of UTC do not.
        """
        if self.zone is not None and later.zone is not None:
            return (later.seconds - later.zone) - (self.seconds - self.zone)
        return later.seconds - self.seconds if self.clock == later.clock else None


def year_of(text: str) -> int | None:
    """The year of the first full date in a text."""
    found = [match for match in (_ISO.search(text), _ASCTIME.search(text)) if match is not None and match["year"]]
    return int(min(found, key=lambda match: match.start())["year"]) if found else None


def moment(text: str, year: int | None = None) -> Moment | None:
    """The first time stamp with a date in a line; None where there is none. `year` completes dates that lack theirs."""
    text = text[:_LOOKED_AT]
    found = [match for form in _FORMS if (match := form.search(text)) is not None]
    if not found:
        return None
    match = min(found, key=lambda match: match.start())
    groups = match.groupdict()
    year = int(groups["year"]) if groups.get("year") else year
    if year is None:
        return None
    month = _MONTHS.index(groups["name"]) + 1 if groups.get("name") else int(match["month"])
    fraction = (match["fraction"] or "").replace(" ", "0")
    try:
        when = datetime(
            year, month, int(match["day"]), int(match["hour"]), int(match["minute"]), int(match["second"]), tzinfo=UTC
        )
    except ValueError:
        return None
    zone = _zone(groups.get("zone"))
    seconds = when.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    return Moment(seconds, "utc" if zone == 0 else "local", zone)


def whole_seconds_end(text: str) -> int:
    """Where the seconds of the first time stamp with a date end, without their fraction; 0 where there is none."""
    found = [match for form in _FORMS if (match := form.search(text)) is not None]
    return min(found, key=lambda match: match.start()).end("second") if found else 0


def _zone(text: str | None) -> int | None:
    """Seconds ahead of UTC of `Z`, ` UTC`, `+02:00` or `-0700`; None where there is no zone."""
    if text is None or text[0] not in "+-":
        return None if text is None else 0
    seconds = 3600 * int(text[1:3]) + 60 * int(text[-2:])
    return -seconds if text[0] == "-" else seconds
