"""Charts of training: the time of steps and the throughput, with stalls and changes of speed."""

from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Chart, Line, Series
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

RUNS = 4  # charts of one kind
_RUNS = """
SELECT r.run, r.tool, r.unit, r.file, r.rank, s.seconds, s.rate FROM throughput_run r LEFT JOIN steady s USING (run)
WHERE r.points > 2 ORDER BY r.points DESC, r.run LIMIT ?
"""
_STEPS = "SELECT step, n, seconds, rate FROM step WHERE run = ? ORDER BY coalesce(step, 0), line"
_STALLS = "SELECT step, seconds FROM stall WHERE run = ? AND step IS NOT NULL ORDER BY step, seconds"
_CHANGES = "SELECT first_step, rate FROM regime WHERE run = ? AND position > 0 AND first_step IS NOT NULL"
TABLES = ("throughput_run", "step", "steady", "stall", "regime", "dip_period", "throttled_steps")


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Chart]:
    """Seconds a step and the rate of each run, the longest runs first."""
    for run, tool, unit, file, rank, seconds, rate in facts.query(_RUNS, (RUNS,)):
        steps = facts.query(_STEPS, (run,))
        of = f"{tool}, {file.rpartition('/')[2]}" + ("" if rank is None else f", rank {rank}")
        changes = tuple(Line(step, "x", "speed changes") for step, _ in facts.query(_CHANGES, (run,)))
        stalls = facts.query(_STALLS, (run,))
        times = tuple((float(at if step is None else step), s) for at, (step, _, s, _) in enumerate(steps) if s)
        if len(times) > 2:
            named = f"; {len(stalls)} stalled" if stalls else ""
            yield Chart(
                name=f"steps-{run}",
                title="Time of a step",
                summary=f"{of}: {_median(seconds, times)} s a step in the steady part{named}.",
                x="step",
                y="seconds",
                series=(
                    Series("time of a step", times),
                    *([Series("stalled", tuple((float(s), t) for s, t in stalls), "points")] * bool(stalls)),
                ),
                lines=(*([Line(seconds, "y", "median")] if seconds else []), *changes),
                tables=TABLES,
            )
        rates = tuple((float(at if step is None else step), r) for at, (step, _, _, r) in enumerate(steps) if r)
        if len(rates) > 2 and unit not in ("steps/s", "epochs/s"):
            yield Chart(
                name=f"rate-{run}",
                title="Throughput",
                summary=f"{of}: {_median(rate, rates)} {unit} in the steady part.",
                x="step",
                y=unit,
                series=(Series(unit, rates),),
                lines=(*([Line(rate, "y", "median")] if rate else []), *changes),
                tables=TABLES,
            )


def _median(known: float | None, points: Sequence[tuple[float, float]]) -> str:
    """The median of the steady part, else that of all points."""
    value = known if known is not None else sorted(y for _, y in points)[len(points) // 2]
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
