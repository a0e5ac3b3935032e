"""What the clocks say of a finding: how long its evidence came before the symptom that another file shows, or slow steps after what."""

from collections.abc import Iterable, Sequence
from math import isfinite

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import EventSteps, Lead, ThrottledSteps, Undated

_EVENTS = {
    "gpu": "an error of a GPU",
    "link": "the loss of a link",
    "storage": "a file server that does not answer",
    "slowed": "an error of hardware that goes on",
}


class Lags:
    """The leads of a fact base, by the evidence of their events."""

    def __init__(self, facts: Facts) -> None:
        self._leads: dict[int, list[Lead]] = {}  # by the event
        self._of_steps: dict[int, list[Lead]] = {}  # by the slow step
        for lead in facts.rows(Lead):
            self._leads.setdefault(lead.ref, []).append(lead)
            if lead.symptom == "slow-step":
                self._of_steps.setdefault(lead.symptom_ref, []).append(lead)
        self._steps = {row.ref: row for row in facts.rows(ThrottledSteps)}
        self._again = {row.ref: row for row in facts.rows(EventSteps)}
        self._undated = {row.ref: row.why for row in facts.rows(Undated)}
        shown = [ref for leads in self._leads.values() for lead in leads for ref in (lead.ref, lead.symptom_ref)]
        self._places = {
            place.id: f"{place.file.rpartition('/')[2]}:{place.line}" for place in facts.evidence_rows(shown)
        }

    def clause(self, refs: Sequence[int]) -> str:
        """`41 s before the first watchdog timeout (job.log:12)`; what is missing where no clock tells, empty where none is asked."""
        again = next((self._again[ref] for ref in refs if ref in self._again), None)
        if again is not None:
            return _in_slow_steps(again)
        leads = [lead for ref in refs for lead in self._leads.get(ref, ())]
        if leads:
            return self._words(min(leads, key=_closeness))
        if after := [lead for ref in refs for lead in self._of_steps.get(ref, ())]:
            return self._after(min(after, key=_closeness))
        steps = next((self._steps[ref] for ref in refs if ref in self._steps), None)
        if steps is None:
            undated = next((self._undated[ref] for ref in refs if ref in self._undated), "")
            return f"no clock tells whether it belongs to the job: {undated}" if undated else ""
        return _in_slow_steps(steps)

    def symptoms(self, refs: Iterable[int]) -> frozenset[int]:
        """Evidence of the symptoms that came after this evidence, by clocks that are known to show the same."""
        leads = (lead.symptom_ref for ref in refs for lead in self._leads.get(ref, ()) if lead.hours is None)
        return frozenset(leads)

    def _words(self, lead: Lead) -> str:
        words = f"{_lag(lead)} before {lead.shows} ({self._places.get(lead.symptom_ref, '?')})"
        if lead.waited is not None and lead.waited >= 60:
            words += f", when that operation had already waited for {duration(lead.waited)}"
        return words + _if_clocks(lead)

    def _after(self, lead: Lead) -> str:
        """`8.7 s after the loss of a link on node01 (kern.log:2)`."""
        what = _EVENTS.get(lead.event, "an event") + (f" on {lead.host}" if lead.host else "")
        shown = lead.shows.removeprefix("the end of ").partition(",")[0].partition(" that took")[0]
        return f"{shown} ended {_lag(lead)} after {what} ({self._places.get(lead.ref, '?')}){_if_clocks(lead)}"


def _in_slow_steps(steps: ThrottledSteps | EventSteps) -> str:
    return f"in {steps.slow_held} of {steps.slow} slow steps and in {steps.others_held} of {steps.others} others"


def _closeness(lead: Lead) -> tuple[bool, float]:
    return lead.hours is not None, lead.seconds or 0.0


def _lag(lead: Lead) -> str:
    return "just" if lead.seconds is None else duration(lead.seconds)


def _if_clocks(lead: Lead) -> str:
    """What is assumed where one of the two clocks names UTC and the other no zone."""
    if lead.hours is None:
        return ""
    zone = "UTC" if lead.hours == 0 else f"{abs(lead.hours)} h away from UTC"
    return f" if the times of the file that names no time zone are {zone}; the other file is in UTC"


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
