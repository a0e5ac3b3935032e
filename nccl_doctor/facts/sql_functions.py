"""Functions and aggregates that rules may use in SQL, beside those of SQLite."""

import json
import re
import sqlite3
from functools import cache, lru_cache
from typing import Any

from nccl_doctor.common.robust import spread

_REMEMBERED = 4_096  # answers of REGEXP: all ranks of a host print its names and addresses
_SHORT = 100  # characters of texts of which they are remembered


def version_number(text: str | None) -> int | None:
    """`2.21.5+cuda12.4` -> 22105, NCCL's own code since 2.9; None where the text holds no version."""
    match = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?!\d)", text or "")
    return int(match[1]) * 10_000 + int(match[2]) * 100 + int(match[3] or 0) if match else None


def ip_private(text: str | None) -> int | None:
    """1 for an address of a private range, 0 for a public one, None where the text is not an address."""
    import ipaddress

    try:
        return int(ipaddress.ip_address((text or "").split("%")[0]).is_private)
    except ValueError:
        return None


_FIRST = (
    r"\[ *[01] */ *\d{1,18}(?!.{0,900}\[ *\d+ */ *\d)"  # [1][0/3416], and no such pair behind it
    r"|\b(batch|iter|iteration|step):? *\[?[01](/\d+)?\b(?![.])"
)


def first_of_epoch(text: str | None) -> int:
    """1 where a step line is that of the first step of an epoch, in which a loader starts its workers; else 0."""
    return _matches("(?i)" + _FIRST, text)


def _field(fields: str | None, name: str) -> Any:
    try:
        return json.loads(fields or "{}").get(name)
    except (ValueError, AttributeError):
        return None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _matches(pattern: str, text: Any) -> int:
    """1 where a text holds a match: `text REGEXP pattern`."""
    if not text or len(text) > _SHORT:
        return int(_pattern(pattern).search(text or "") is not None)
    return _matches_short(pattern, text)


@lru_cache(_REMEMBERED)
def _matches_short(pattern: str, text: str) -> int:
    return int(_pattern(pattern).search(text) is not None)


class _Percentile:
    """Aggregate percentile(value, p) with p in 0..100, by linear interpolation; NULLs are left out."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.share = 50.0

    def step(self, value: float | None, share: float = 50.0) -> None:
        if value is not None:
            self.values.append(value)
        self.share = share

    def finalize(self) -> float | None:
        if not self.values:
            return None
        self.values.sort()
        position = (len(self.values) - 1) * min(max(self.share, 0.0), 100.0) / 100
        low = int(position)
        high = min(low + 1, len(self.values) - 1)
        return self.values[low] + (self.values[high] - self.values[low]) * (position - low)


class _Mad(_Percentile):
    """Aggregate mad(value): the median of the distances from the median."""

    def finalize(self) -> float | None:
        return spread(self.values)[1] if self.values else None


def register_functions(db: sqlite3.Connection) -> None:
    """Make them known to a connection."""
    db.create_function("field", 2, _field, deterministic=True)
    db.create_function("regexp", 2, _matches, deterministic=True)
    db.create_function("version_number", 1, version_number, deterministic=True)
    db.create_function("ip_private", 1, ip_private, deterministic=True)
    db.create_function("first_of_epoch", 1, first_of_epoch, deterministic=True)
    db.create_aggregate("percentile", 2, _Percentile)  # type: ignore[arg-type]
    db.create_aggregate("median", 1, _Percentile)  # type: ignore[arg-type]
    db.create_aggregate("mad", 1, _Mad)  # type: ignore[arg-type]
