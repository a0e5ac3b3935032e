"""What a rule answers."""

from collections.abc import Sequence
from typing import NamedTuple

from nccl_doctor.rules.folding import Group, Row
from nccl_doctor.rules.schema import Rule


class Answer(NamedTuple):
    """What a rule said: outcome, the first of its rows, why it was skipped or broke, and all rows folded."""

    rule: Rule
    outcome: str
    rows: list[Row]
    reason: str
    groups: Sequence[Group] = ()

    @property
    def total(self) -> int:
        """The number of all rows."""
        return sum(group.count for group in self.groups)
