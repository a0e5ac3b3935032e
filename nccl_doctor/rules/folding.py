"""Folds the rows of a rule while they are read: counts, hosts and ranks are those of all rows, however many there are."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nccl_doctor.rules.templates import placeholders

KEPT = 5000  # rows of an answer that are kept whole, for evidence and words
MOST = 8  # groups of one rule; nobody reads the ninth
_PLACE = {"host", "rank", "accounted", "ref", "refs", "stamp", "n", "line"}  # columns that say where, not what


class Row(NamedTuple):
    """One bad thing that a rule found."""

    values: dict[str, Any]
    refs: list[int]
    severity: str
    role: str
    confidence: str
    action: str


@dataclass
class Group:
    """Rows that differ in their place only: one finding."""

    rows: list[Row]  # the first ones
    count: int = 0
    hosts: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)  # ids in the accounting of a scheduler
    gpus: set[tuple[str | None, str, int | None]] = field(default_factory=set)  # host, PCI addresses, number
    mixed: bool = False  # the rows differ in what the message says as well

    @property
    def first(self) -> Row:
        """The row that the words are taken from."""
        return self.rows[0]

    def add(self, row: Row, keep: bool) -> None:
        """Count a row."""
        self.count += 1
        if keep:
            self.rows.append(row)
        get = row.values.get
        host, rank, gpu = get("host"), get("rank"), get("gpu")
        if host:
            self.hosts.add(host)
        if job := get("accounted"):
            self.jobs.add(str(job))
        if isinstance(rank, int) and rank >= 0:
            self.ranks.add(rank)
        addresses = str(get("gpus") or get("pci") or "")
        if addresses or isinstance(gpu, int):
            self.gpus.add((host, addresses, gpu if isinstance(gpu, int) else None))

    def without(self, refs: set[int], *, echoes: bool) -> "Group | None":
        """The group without the kept rows of which all evidence is among `refs`; None where that leaves none.

        Without `echoes`, rows that their query calls symptoms go as well.
        """
        left = [
            row
            for row in self.rows
            if not refs.issuperset(row.refs) and (echoes or row.values.get("role") != "symptom")
        ]
        if len(left) == len(self.rows):
            return self
        group = Group([], mixed=self.mixed)
        for row in left:
            group.add(row, keep=True)
        return group if left else None

    def merge(self, other: "Group") -> None:
        """Take over what another group counted."""
        self.rows += other.rows
        self.count += other.count
        self.hosts |= other.hosts
        self.ranks |= other.ranks
        self.jobs |= other.jobs
        self.gpus |= other.gpus
        self.mixed = True


class Folding:
    """The groups of a rule's rows."""

    def __init__(self, message: str) -> None:
        # A number with a format of its own, such as {share:.0%}, is a measurement: rows may differ in it.
        self._details = [name for name in placeholders(message) - _PLACE if f"{{{name}}}" in message]
        self._groups: dict[tuple[Any, ...], Group] = {}
        self._mixed = False
        self._kept = 0

    def add(self, row: Row) -> None:
        """Put a row into its group."""
        kind = row.severity, row.role, row.confidence, row.action
        key = kind if self._mixed else (*kind, *[str(row.values.get(name)) for name in self._details])
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group([], mixed=self._mixed)
        keep = self._kept < KEPT or not group.rows
        self._kept += keep
        group.add(row, keep)
        if not self._mixed and len(self._groups) > MOST:
            self._mix()

    def groups(self) -> list[Group]:
        """What the rows were folded into, in the order of their first rows."""
        return list(self._groups.values())

    def _mix(self) -> None:
        mixed: dict[tuple[Any, ...], Group] = {}
        for key, group in self._groups.items():
            if key[:4] in mixed:
                mixed[key[:4]].merge(group)
            else:
                mixed[key[:4]] = group
        self._groups, self._mixed = mixed, True
