"""One rank works alone while the others wait: a progress bar of preparing data runs on when their wait fails.

Rank 0 tokenises, downloads or filters, and the other ranks stand in a barrier (`main_process_first`) that has the time limit of the
process group. Neither side is broken. A bar that ended, or that ran much shorter than the limit, does not explain a time-out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.derive.declaration import Rows, derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LoneWork, Message, Watchdog

_SHARE = 0.8  # of the limit that the work must have taken at least

_BARS = """
SELECT host, rank, field(fields, 'label'), CAST(field(fields, 'percent') AS INTEGER), field(fields, 'elapsed'), ref, last_line
FROM message WHERE kind = 'preparation-bar'
"""
_WAITS = """
SELECT 'timeout', CAST(field(fields, 'ms') AS INTEGER) / 1000, ref FROM message
WHERE kind IN ('store-wait-timed-out', 'tcpstore-wait-timeout')
UNION ALL SELECT 'timeout', timeout_ms / 1000, ref FROM watchdog WHERE event = 'timeout'
UNION ALL SELECT 'barrier', NULL, ref FROM message WHERE kind = 'waits-for-main-process'
"""


class _Bar(NamedTuple):
    host: str | None
    rank: int | None
    label: str
    percent: int
    elapsed: int
    ref: int


def seconds(clock: str) -> int:
    """Seconds of `12:05` or `1:02:03`."""
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return total


@derivation(fills=[LoneWork], reads=[Watchdog], needs=[Message])
def lone_work(facts: Facts) -> Rows:
    """Bars of preparation that had not ended, beside a sign that other ranks waited for them."""
    furthest: dict[str, _Bar] = {}
    for host, rank, label, percent, elapsed, ref, _ in facts.query(_BARS):
        bar = _Bar(host, rank, label, percent, seconds(elapsed), ref)
        if label not in furthest or furthest[label].percent <= percent:
            furthest[label] = bar
    waits = list(facts.query(_WAITS)) if furthest else []
    return _beside(list(furthest.values()), waits)


def _beside(bars: list[_Bar], waits: list[tuple[str, int | None, int]]) -> Iterator[LoneWork]:
    for bar in bars:
        if bar.percent >= 100:
            continue
        fitting = [wait for wait in waits if wait[1] is None or bar.elapsed >= _SHARE * wait[1]]
        if not fitting:
            continue
        sign, limit, ref = min(fitting, key=lambda wait: (wait[1] is None, wait[2]))
        yield LoneWork(
            host=bar.host, rank=bar.rank, label=bar.label, percent=bar.percent, elapsed=bar.elapsed, limit_=limit,
            sign=sign, ref=bar.ref, refs=f"{bar.ref},{ref}",
        )  # fmt: skip
