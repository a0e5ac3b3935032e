"""How busy each GPU was: a map over time, and the share of time against the 80 % that one should reach."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import fmean

from nccl_doctor.diagnosis.picture import Cell, Chart, Grid, Line, Series
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

GPUS = 64  # rows that are shown, the idlest ones
WINDOWS = 48  # columns
BARS = 256  # GPUs of the chart
_SAMPLES = """
SELECT coalesce(host, ''), gpu, start, seconds, util_mean, power_mean FROM gpu_sample
WHERE util_mean IS NOT NULL AND start IS NOT NULL ORDER BY 1, 2, 3
"""
_USE = """
SELECT coalesce(host, ''), gpu, busy_share FROM gpu_use WHERE busy_share IS NOT NULL AND samples > 1 ORDER BY busy_share
"""
_LEVELS = tuple((f"level-{n}", words) for n, words in enumerate(("below 20 %", "20 %", "40 %", "60 %", "80 % or more")))


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Grid | Chart]:
    """Utilisation over time and the busy share, where samples of GPUs exist."""
    yield from _heat(facts)
    yield from _busy(facts)


def _heat(facts: Facts) -> Iterator[Grid]:
    """GPU by time."""
    rows: dict[tuple[str, int | None], list[tuple[float, float, float | None]]] = defaultdict(list)
    for host, gpu, start, seconds, util, power in facts.query(_SAMPLES):
        rows[host, gpu].append((start + (seconds or 0) / 2, util, power))
    if not rows:
        return
    first = min(when for samples in rows.values() for when, _, _ in samples)
    last = max(when for samples in rows.values() for when, _, _ in samples)
    moments = len({when for samples in rows.values() for when, _, _ in samples})
    windows = max(1, min(WINDOWS, moments))
    width = (last - first) / windows or 1.0
    idlest = sorted(rows, key=lambda gpu: fmean(util for _, util, _ in rows[gpu]))[:GPUS]
    more = f"; shown are the {GPUS} idlest of {len(rows):,}" if len(rows) > GPUS else ""
    yield Grid(
        name="gpu-heat",
        title="Utilisation of the GPUs over time",
        summary=f"Mean over {width:,.3g} s a column, in %{more}. 80 % or more counts as busy.",
        corner="GPU",
        columns=tuple(
            datetime.fromtimestamp(first + at * width, UTC).strftime("%H:%M:%S") if at % 8 == 0 else ""
            for at in range(windows)
        ),
        rows=tuple((_gpu(*gpu), _cells(rows[gpu], first, width, windows)) for gpu in sorted(idlest, key=_place)),
        legend=_LEVELS,
        tables=("gpu_sample", "gpu_use", "gpu_throttle", "throttle_span"),
    )


def _cells(
    samples: Sequence[tuple[float, float, float | None]], first: float, width: float, windows: int
) -> tuple[Cell, ...]:
    parts: list[list[tuple[float, float | None]]] = [[] for _ in range(windows)]
    for when, util, power in samples:
        parts[min(windows - 1, int((when - first) / width))].append((util, power))
    return tuple(_cell(part) for part in parts)


def _cell(part: Sequence[tuple[float, float | None]]) -> Cell:
    """The mean of a window."""
    if not part:
        return Cell(state="none", says="no sample")
    util = fmean(util for util, _ in part)
    watts = [power for _, power in part if power is not None]
    drawn = f", {fmean(watts):,.0f} W" if watts else ""
    return Cell(f"{util:.0f}", f"level-{min(4, int(util // 20))}", f"{util:.0f} %{drawn}")


def _busy(facts: Facts) -> Iterator[Chart]:
    """Share of samples of each GPU in which it was busy."""
    use = facts.query(_USE)
    if len(use) < 2:
        return
    below = sum(share < 0.8 for *_, share in use)
    more = f"; shown are the {BARS} idlest" if len(use) > BARS else ""
    yield Chart(
        name="gpu-busy",
        title="Share of samples in which each GPU is busy",
        summary=f"{below} of {len(use)} GPUs are busy in fewer than 80 % of their samples{more}.",
        x="GPU",
        y="% of the samples",
        series=(
            Series(
                "at 80 % utilisation or more",
                tuple((float(at), 100 * row[2]) for at, row in enumerate(use[:BARS])),
                "bar",
            ),
        ),
        names=tuple(_gpu(host, gpu) for host, gpu, _ in use[:BARS]),
        lines=(Line(80, "y", "80 %"),),
        tables=("gpu_use",),
    )


def _place(gpu: tuple[str, int | None]) -> tuple[str, int]:
    """Host and number; a GPU without a number comes first."""
    return gpu[0], -1 if gpu[1] is None else gpu[1]


def _gpu(host: str, gpu: int | None) -> str:
    return f"{host} {'GPU' if gpu is None else gpu}".strip()
