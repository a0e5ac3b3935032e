"""Notices that something changed that a rule may ask about, so that rules run then and not all the time.

Values that vary from sample to sample (utilisation, power, memory) are smoothed and cut into bands; a value changes its band only
when it has crossed half of the next one. States, error counters and lists of processes count as they are.
"""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.watch.series import dicts, number

WEIGHT = 0.1  # of a new sample in the smoothed value
BANDS = 5  # of each share


class Bands:
    """The bands of one kind of records of one node."""

    def __init__(self) -> None:
        self._smooth: dict[str, float] = {}
        self._bands: dict[str, int] = {}
        self._states: dict[str, Any] | None = None

    def add(self, record: dict[str, Any]) -> bool:
        """Add a sample; returns whether a band or a state changed."""
        changed = False
        states = dict(_states(record))
        if states != self._states:
            changed, self._states = True, states
        for name, share in _shares(record):
            smooth = self._smooth[name] = self._smooth.get(name, share) + WEIGHT * (
                share - self._smooth.get(name, share)
            )
            band = self._bands.get(name)
            if band is None or abs(smooth * BANDS - (band + 0.5)) > 1.0:
                changed, self._bands[name] = True, min(int(smooth * BANDS), BANDS - 1)
        return changed


def _shares(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for gpu in dicts(record.get("gpus")):
        index = gpu.get("index")
        for name, key, total in (
            ("util", "utilization.gpu", 100.0), ("power", "power.draw", gpu.get("enforced.power.limit")),
            ("memory", "memory.used", gpu.get("memory.total")), ("heat", "temperature.gpu", 100.0),
        ):  # fmt: skip
            yield from _share(f"{name} {index}", gpu.get(key), total)
    host = record.get("host")
    if isinstance(host, dict):
        yield from _share("cpu", host.get("cpu"), 100.0)
        yield from _share("memory", host.get("memory_used"), host.get("memory_total"))
        yield from _share("shm", host.get("shm_used"), host.get("shm_total"))
    for process in dicts(record.get("processes")):
        yield from _share(f"cpu {process.get('pid')}", process.get("cpu"), 100.0)


def _reasons(bits: Any) -> Any:
    """Returns the clock event reasons without those that come and go in healthy training: idle and the power cap."""
    return bits & ~0x5 if isinstance(bits, int) else None


def _share(name: str, value: Any, total: Any) -> Iterator[tuple[str, float]]:
    part, whole = number(value), number(total)
    if part is not None and whole:
        yield name, min(max(part / whole, 0.0), 1.0)


def _states(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "error", record.get("error")
    for gpu in dicts(record.get("gpus")):
        pids = [task.get("pid") for task in dicts(gpu.get("processes"))]
        yield f"gpu {gpu.get('index')}", (_reasons(gpu.get("clock_reasons")), gpu.get("error"), pids)
    for port in dicts(record.get("ports")):
        yield f"port {port.get('name')}", (port.get("state"), port.get("errors"))
    for process in dicts(record.get("processes")):
        yield (
            f"process {process.get('pid')}",
            (process.get("rank"), process.get("state") == "disk-sleep", process.get("cpus")),
        )
