"""Where the time of each rank goes, from traces: computation, exposed communication, copies, idle."""

from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Chart, Series
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

RANKS = 128  # bars
_TRACES = """
SELECT rank, file, span_s, compute_s, exposed_s, copy_s, idle_s FROM trace
WHERE span_s > 0 AND device IS NOT NULL ORDER BY rank, file LIMIT ?
"""
_PARTS = ("computation", "exposed communication", "copies", "idle")


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Chart]:
    """Bars of 100 %, one for each rank whose trace shows a GPU."""
    traces = facts.query(_TRACES, (RANKS,))
    if not traces:
        return
    worst = max(traces, key=lambda row: (row[4] or 0) / row[2])
    names = tuple(str(rank) if rank is not None else file.rpartition("/")[2] for rank, file, *_ in traces)
    of = names[traces.index(worst)]
    yield Chart(
        name="exposed",
        title="Where the time of the GPUs goes",
        summary=f"Exposed communication takes at most {100 * (worst[4] or 0) / worst[2]:.0f} % of the time, on rank {of}.",
        x="rank",
        y="% of the time",
        series=tuple(
            Series(name, tuple((float(i), 100 * (row[3 + at] or 0) / row[2]) for i, row in enumerate(traces)), "bar")
            for at, name in enumerate(_PARTS)
        ),
        names=names,
        tables=("trace", "trace_call", "trace_arrival"),
    )
