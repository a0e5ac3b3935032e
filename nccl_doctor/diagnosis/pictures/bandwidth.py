"""Bus bandwidth against message size, as nccl-tests measured it."""

from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Chart, Line, Series
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

RUNS = 8  # curves in one chart
_RUNS = """
SELECT run, coalesce(operation, 'collective'), ranks, hosts, gpu, graph_bw, file FROM bench_run WHERE rows > 1
ORDER BY coalesce(operation, 'collective'), run
"""
_ROWS = """
SELECT size, max(busbw) FROM bench_row WHERE run = ? AND busbw IS NOT NULL AND size > 0 GROUP BY size ORDER BY size
"""


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Chart]:
    """One chart for each operation."""
    runs: dict[str, list[tuple[object, ...]]] = {}
    for run, operation, *rest in facts.query(_RUNS):
        runs.setdefault(operation, []).append((run, *rest))
    for operation, members in runs.items():
        series = []
        for run, ranks, hosts, _, _, file in members[:RUNS]:
            points = tuple((float(size), busbw) for size, busbw in facts.query(_ROWS, (run,)))
            name = f"{ranks} ranks on {hosts} hosts" if hosts and hosts != 1 else f"{ranks} ranks"
            if len(members) > 1:
                name = f"{str(file).rpartition('/')[2]}, {name}"
            series += [Series(name, points)] if len(points) > 1 else []
        if not series:
            continue
        best = max(busbw for one in series for _, busbw in one.points)
        graphs = {float(bw) for *_, bw, _ in members if isinstance(bw, int | float) and bw}
        more = f"; shown are the first {RUNS} of {len(members)} runs" if len(members) > RUNS else ""
        yield Chart(
            name=f"bandwidth-{operation}",
            title=f"Bus bandwidth of {operation}",
            summary=f"At most {best:,.4g} GB/s{more}.",
            x="bytes",
            y="GB/s",
            scale="bytes",
            series=tuple(series),
            lines=(Line(graphs.pop(), "y", "ring that NCCL computed"),) if len(graphs) == 1 else (),
            tables=("bench_run", "bench_row", "bench_limit"),
        )
