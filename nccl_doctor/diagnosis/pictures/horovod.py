"""Charts of a Horovod timeline: which rank comes late, and where the time goes."""

from collections.abc import Iterator, Sequence

from nccl_doctor.diagnosis.picture import Chart, Series
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

FILES = 4  # timelines of which charts are drawn
RANKS = 256  # bars
_FILES = "SELECT file, segment, ticked, negotiations FROM timeline ORDER BY length_s DESC LIMIT ?"
_RANKS = """
SELECT rank, late_ms, last FROM timeline_rank WHERE file = ? AND segment = ? AND late_ms IS NOT NULL
ORDER BY late_ms DESC LIMIT ?
"""
_WINDOWS = """
SELECT at_s, length_s, negotiate_s, allreduce_s FROM timeline_window WHERE file = ? AND segment = ? AND length_s > 0
ORDER BY at_s
"""


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Chart]:
    """For each part of a timeline the lateness of its ranks, and the shares of negotiation and allreduce over time."""
    for at, (file, segment, ticked, negotiations) in enumerate(facts.query(_FILES, (FILES,))):
        of = file.rpartition("/")[2] + (f", part {segment + 1}" if segment else "")
        ranks = sorted(facts.query(_RANKS, (file, segment, RANKS)))
        if len(ranks) > 1:
            latest = max(ranks, key=lambda row: row[2])
            yield Chart(
                name=f"horovod-late-{at}",
                title="How late each rank is",
                summary=f"{of}: rank {latest[0]} came last in {latest[2]} of {ticked or negotiations} negotiations.",
                x="rank",
                y="ms behind the first rank, median",
                series=(
                    Series("behind the first rank", tuple((float(i), row[1]) for i, row in enumerate(ranks)), "bar"),
                ),
                names=tuple(str(rank) for rank, *_ in ranks),
                tables=("timeline_rank",),
            )
        windows = facts.query(_WINDOWS, (file, segment))
        if len(windows) > 1:
            share = [
                Series(
                    name,
                    tuple(
                        (float(row[0]), 100 * min(1.0, row[column] / row[1]))
                        for row in windows
                        if row[column] is not None
                    ),
                )
                for name, column in (("negotiation", 2), ("allreduce", 3))
            ]
            yield Chart(
                name=f"horovod-time-{at}",
                title="Where the time of Horovod goes",
                summary=f"{of}: share of each window in which tensors were negotiated or reduced.",
                x="seconds",
                y="% of the time",
                series=tuple(one for one in share if len(one.points) > 1),
                tables=("timeline", "timeline_window", "timeline_gap"),
            )
