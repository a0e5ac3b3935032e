"""The matrix of nccl-tests between pairs of hosts: what each pair reached, the slow ones marked."""

from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Cell, Grid
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

HOSTS = 64  # rows and columns; those of the slowest pairs where there are more
_PAIRS = "SELECT src_host, dst_host, busbw, ratio, culprit FROM bench_link ORDER BY ratio"
_SLOW = 0.8  # share of the usual bandwidth below which a cell is marked
_LEGEND = (
    ("bad", "✗ slow because of one of the hosts or the path"),
    ("odd", f"! below {100 * _SLOW:.0f} % of what is usual"),
    ("good", "as usual"),
)


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Grid]:
    """The matrix, where at least two pairs were measured."""
    rows = facts.query(_PAIRS)
    if len(rows) < 2:
        return
    cells = {(a, b): _cell(a, b, busbw, ratio, culprit) for a, b, busbw, ratio, culprit in rows}
    slowest = list(dict.fromkeys(host for a, b, *_ in rows for host in (a, b)))
    shown = sorted(slowest[:HOSTS])
    more = f"; shown are {HOSTS} of {len(slowest):,} hosts" if len(slowest) > HOSTS else ""
    blank = Cell(state="none", says="this pair was not measured")
    yield Grid(
        name="pairs",
        title="Bus bandwidth of pairs of hosts",
        summary=f"GB/s at large sizes{more}.",
        corner="host",
        columns=tuple(shown),
        rows=tuple((a, tuple(cells.get((a, b)) or cells.get((b, a)) or blank for b in shown)) for a in shown),
        legend=tuple(row for row in _LEGEND if any(cell.state == row[0] for cell in cells.values())),
        tables=("bench_link", "bench_host"),
    )


def _cell(source: str, target: str, busbw: float, ratio: float, culprit: str | None) -> Cell:
    because = {"src": source, "dst": target, "both": "both hosts", "link": "the path"}.get(culprit or "")
    state = "bad" if because else "odd" if culprit or ratio < _SLOW else "good"
    mark = {"bad": " ✗", "odd": " !", "good": ""}[state]
    says = f"{source} and {target}: {busbw:.4g} GB/s, {100 * ratio:.0f} % of what is usual"
    return Cell(f"{busbw:.3g}{mark}", state, says + (f"; slow because of {because}" if because else ""))
