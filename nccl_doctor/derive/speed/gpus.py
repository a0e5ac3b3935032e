"""How each GPU compares with its peers, from samples of all of them."""

from collections.abc import Iterator

from nccl_doctor.common.robust import spread
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.speed import GpuPeer
from nccl_doctor.facts.tables.gpu import GpuUse

_SAMPLES = 20  # fewer prove nothing about a GPU, but for one that works as the others do at a clock far below theirs
_WORKING = 80.0  # % of utilisation
_IDLE = 5.0  # % of utilisation; less is none
_MANY = 64  # from so many GPUs on one more or less does not move the median
_IN_USE = 1024.0  # MiB
_METRICS = {
    "utilisation": ("util_mean", 1.0),
    "SM activity": ("sm_active", 100.0),
    "power": ("power_median", 1.0),
    "clock": ("clock_median", 1.0),
}  # the column of each, and what makes it % (W, MHz)
_FLOOR = 0.01  # of the median: a spread below that is noise of the reading


@derivation(fills=[GpuPeer], needs=[GpuUse])
def gpu_peers(facts: Facts) -> Iterator[GpuPeer]:
    """How each sampled GPU compares with the others."""
    uses = facts.rows(GpuUse)
    many = any(_is_sampled(use) for use in uses)
    for metric, (column, unit) in _METRICS.items():
        rows = [use for use in uses if _taking_part(use, many) and getattr(use, column) is not None]
        values = [unit * float(getattr(use, column)) for use in rows]
        if len(rows) < 2:
            continue
        whole = spread(values) if len(rows) >= _MANY else None
        for number, (use, value) in enumerate(zip(rows, values, strict=True)):
            median, mad = whole or spread(values[:number] + values[number + 1 :])
            if median <= 0:
                continue
            score = (value - median) / max(1.4826 * mad, _FLOOR * median)
            yield GpuPeer(
                host=use.host, gpu=use.gpu, metric=metric, value=value, median=median, mad=mad, score=score,
                ratio=value / median, peers=len(rows) - 1, samples=None if use.source == "jobstats" else use.samples, ref=use.ref,
            )  # fmt: skip


def _is_sampled(use: GpuUse) -> bool:
    return use.samples >= _SAMPLES or use.source == "jobstats"


def _taking_part(use: GpuUse, many: bool) -> bool:
    if not many:
        return (use.util_mean or 0) >= _WORKING
    if use.memory_max is None and use.util_mean is None and use.sm_active is not None:
        return _is_sampled(use) and use.sm_active >= _IDLE / 100
    return _is_sampled(use) and ((use.memory_max or 0) >= _IN_USE or (use.util_mean or 0) >= _IDLE)
