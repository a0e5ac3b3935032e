"""How many examples a property is tried with."""

import os
from typing import Any

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("NCCL_DOCTOR_FUZZ") or 1)  # `make properties` sets it


def examples(count: int, **others: Any) -> settings:
    """Settings of one property: `count` examples, and many times as many in a fuzz run."""
    return settings(max_examples=count * TIMES, **others)


def load_profile() -> None:
    """Equal runs try equal examples, but a fuzz run tries new ones each time. Nothing depends on how long one takes."""
    fuzz = TIMES > 1
    settings.register_profile(
        "nccl-doctor", max_examples=100 * TIMES, deadline=None, derandomize=not fuzz, print_blob=fuzz,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    settings.load_profile("nccl-doctor")
