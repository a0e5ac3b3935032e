"""The map of a job: hosts by GPUs, with the rank of each and what the report says about it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.picture import Cell, Grid
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

HOSTS = 160  # rows that are shown
RANKS = 1 << 20  # of one span; whoever wrote a saved base may name more
MANY = 16  # hosts from which those with a fault come first
_SPAN = compiled(r"(\d{1,9})(?:-(\d{1,9}))?")
_MARKS = {"bad": " ✗", "odd": " !", "wait": " …"}
_LEGEND = (
    ("bad", "✗ an error names this rank, or others wait for it"),
    ("odd", "! a warning names this rank"),
    ("wait", "… waits for other ranks, or ended because of them"),
    ("good", "no finding tells this rank from the others"),
)
_RANKS = """
SELECT rank, host, coalesce(cuda_dev, nvml_dev) FROM rank WHERE rank IS NOT NULL ORDER BY rank
"""
_HANG = "SELECT rank, state, what FROM hang WHERE rank IS NOT NULL"


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[Grid]:
    """The map, where at least two ranks are known by their hosts."""
    ranks = [(rank, host, device) for rank, host, device in facts.query(_RANKS) if host]
    if len(ranks) < 2:
        return
    said = _said(facts, findings, len(ranks))
    hosts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, host, device in ranks:
        hosts[host][len(hosts[host]) if device is None else device].append(rank)
    devices = range(max(device for places in hosts.values() for device in places) + 1)
    rows = [(host, tuple(_cell(places.get(device, []), said) for device in devices)) for host, places in hosts.items()]
    ailing = [row for row in rows if any(cell.state in ("bad", "odd") for cell in row[1])]
    summary = f"{counted(len(ranks), 'rank')} on {counted(len(hosts), 'host')}"
    if len(rows) > MANY:
        rows = [*ailing, *(row for row in rows if row not in ailing)][:HOSTS]
        summary += ", those with a fault first" if ailing else ""
        summary += f"; {HOSTS} are shown" if len(hosts) > HOSTS else ""
    yield Grid(
        name="job-map",
        title="Map of the job",
        summary=f"{summary}.",
        corner="host",
        columns=tuple(f"GPU {device}" for device in devices),
        rows=tuple(rows),
        legend=tuple(row for row in _LEGEND if any(cell.state == row[0] for _, cells in rows for cell in cells)),
        tables=("hang", "lone_work", "roll_call"),
    )


def _said(facts: Facts, findings: Sequence[Finding], count: int) -> dict[int, tuple[str, str]]:
    """Rank -> its state, and the sentence that gives it. A finding about all ranks tells none apart."""
    said: dict[int, tuple[str, str]] = {}
    for state, chosen in (
        ("bad", [one for one in findings if one.severity == "error" and not one.explained_by]),
        ("odd", [one for one in findings if one.severity == "warning" and not one.explained_by]),
        ("wait", [one for one in findings if one.explained_by]),
    ):
        for finding in chosen:
            named = _numbers(finding.ranks)
            if len(named) < count or state == "wait":
                said = {**dict.fromkeys(named, (state, finding.title)), **said}
    for rank, state, what in facts.query(_HANG):
        if state in ("missing", "behind"):
            said[rank] = ("bad", f"others wait for it in {what}")
        elif state == "waiting":
            said.setdefault(rank, ("wait", f"waits in {what}"))
    return said


def _cell(ranks: Sequence[int], said: dict[int, tuple[str, str]]) -> Cell:
    """The GPU of these ranks; the worst of them gives its state."""
    if not ranks:
        return Cell(state="none", says="no rank is known here")
    worst = min(ranks, key=lambda rank: ("bad", "odd", "wait", "good").index(said.get(rank, ("good", ""))[0]))
    state, says = said.get(worst, ("good", "no finding tells this rank from the others"))
    return Cell(" ".join(map(str, ranks)) + _MARKS.get(state, ""), state, f"rank {worst}: {says}")


def _numbers(folded: str) -> tuple[int, ...]:
    """`0-3,9` -> 0, 1, 2, 3, 9; without what is no rank."""
    spans = (_SPAN.fullmatch(part) for part in folded.split(","))
    known = ((int(span[1]), int(span[2] or span[1])) for span in spans if span is not None)
    return tuple(n for first, last in known for n in range(first, min(last, first + RANKS) + 1))
