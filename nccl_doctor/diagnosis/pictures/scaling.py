"""Throughput against the number of GPUs, beside linear scaling."""

from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Chart, Series
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

_SERIES = "SELECT series, gpus, speedup, ideal, efficiency, basis FROM scaling ORDER BY series, gpus"


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Chart]:
    """One chart for each series of runs."""
    groups: dict[str, list[tuple[int, float, float, float, str]]] = {}
    for series, *row in facts.query(_SERIES):
        groups.setdefault(series, []).append(tuple(row))
    for at, (series, rows) in enumerate(groups.items()):
        if len(rows) < 2:
            continue
        gpus, _, _, efficiency, basis = rows[-1]
        by = " of the work" if basis == "work" else ""
        yield Chart(
            name=f"scaling-{at}",
            title="Scaling",
            summary=f"{series}: efficiency{by} {100 * efficiency:.0f} % at {gpus} GPUs, against {rows[0][0]}.",
            x="GPUs",
            y="speed-up",
            series=(
                Series("measured", tuple((float(row[0]), row[1]) for row in rows)),
                Series("linear", tuple((float(row[0]), row[2]) for row in rows)),
            ),
            tables=("scaling",),
        )
