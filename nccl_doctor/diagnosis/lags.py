"""What the clocks say of a finding: how long its evidence came before the symptom that another file shows."""

from collections.abc import Iterable, Sequence
from math import isfinite

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Lead, ThrottledSteps, Undated


class Lags:
    """The leads of a fact base, by the evidence of their events."""

    def __init__(self, facts: Facts) -> None:
        self._leads: dict[int, list[Lead]] = {}
        for lead in facts.rows(Lead):
            self._leads.setdefault(lead.ref, []).append(lead)
        self._steps = {row.ref: row for row in facts.rows(ThrottledSteps)}
        self._undated = {row.ref: row.why for row in facts.rows(Undated)}
        shown = [lead.symptom_ref for leads in self._leads.values() for lead in leads]
        self._places = {
            place.id: f"{place.file.rpartition('/')[2]}:{place.line}" for place in facts.evidence_rows(shown)
        }

    def clause(self, refs: Sequence[int]) -> str:
        """`41 s before the first watchdog timeout (job.log:12)`; what is missing where no clock tells, empty where none is asked."""
        leads = [lead for ref in refs for lead in self._leads.get(ref, ())]
        if leads:
            return self._words(min(leads, key=lambda lead: (lead.hours is not None, lead.seconds)))
        steps = next((self._steps[ref] for ref in refs if ref in self._steps), None)
        if steps is None:
            undated = next((self._undated[ref] for ref in refs if ref in self._undated), "")
            return f"no clock tells whether it belongs to the job: {undated}" if undated else ""
        return f"in {steps.slow_held} of {steps.slow} slow steps and in {steps.others_held} of {steps.others} others"

    def symptoms(self, refs: Iterable[int]) -> frozenset[int]:
        """Evidence of the symptoms that came after this evidence, by clocks that are known to show the same."""
        leads = (lead.symptom_ref for ref in refs for lead in self._leads.get(ref, ()) if lead.hours is None)
        return frozenset(leads)

    def _words(self, lead: Lead) -> str:
        words = f"{duration(lead.seconds)} before {lead.shows} ({self._places.get(lead.symptom_ref, '?')})"
        if lead.waited is not None and lead.waited >= 60:
            words += f", when that operation had already waited for {duration(lead.waited)}"
        if lead.hours is None:
            return words
        apart = "the same" if lead.hours == 0 else f"{abs(lead.hours)} h apart"
        return f"{words} if both clocks are {apart}: one of the files names no time zone"


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `9 min 5 s`, `2 h 10 min`."""
    if not isfinite(seconds):  # of a saved base
        return "? s"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = whole // 60
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
