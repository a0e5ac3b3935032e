"""Numbers of decoded JSON, whose integers have any number of digits."""

import math
from typing import Any


def finite(value: Any) -> float | None:
    """A number as a float; None for anything else, for NaN and infinity, and beyond the range of floats."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
