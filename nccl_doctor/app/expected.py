"""What the user expects of runs of nccl-tests (`analyze --expect all_reduce=350`)."""

import math
import re
from collections.abc import Mapping, Sequence

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchExpected

OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv", "gather", "scatter", "hypercube",
)  # fmt: skip
Expected = Mapping[str | None, float]  # operation, or None for all others -> GB/s of bus bandwidth
_FORM = re.compile(r"(?:(\w+?)(?:_perf)?=)?(\d+(?:\.\d*)?|\.\d+)")


def parse(texts: Sequence[str]) -> dict[str | None, float]:
    """`all_reduce=350` and `300` -> operation and GB/s. Raises UsageProblem for anything else."""
    found: dict[str | None, float] = {}
    for text in texts:
        match = _FORM.fullmatch(text)
        name = match[1] if match is not None else None
        try:
            number = float(match[2]) if match is not None else math.nan
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf or (name is not None and name not in OPERATIONS):
            raise UsageProblem(
                f"--expect {text}: write GB/s of bus bandwidth, or OPERATION=GB/s with one of {', '.join(OPERATIONS)}"
            )
        found[name] = number
    return found


def add(facts: Facts, expected: Expected) -> None:
    """Add what is expected to the facts that rules ask."""
    for operation, busbw in expected.items():
        text = f"--expect {operation}={busbw:g}" if operation else f"--expect {busbw:g}"
        facts.add([BenchExpected(operation, busbw, facts.text_evidence("command line", text))])
