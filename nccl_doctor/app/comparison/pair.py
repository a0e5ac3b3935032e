"""Two runs side by side: which findings one of them lacks, and what both tell differently."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from nccl_doctor.app import analyze
from nccl_doctor.app.comparison import queries
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.diagnosis.comparison import Change, Comparison, Side
from nccl_doctor.diagnosis.diagnose import fold_hosts
from nccl_doctor.diagnosis.picture_pairs import side_by_side
from nccl_doctor.diagnosis.report import Finding, Place, Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules.site_config import Config

TOLERANCE = 0.05  # of a speed; runs of the same job differ by some per cent
SHOWN = 3  # values of an item
MANY = 4  # values of an item; more of them are one for each rank or host and differ between any two runs
NOISE = 3.0  # times the spread of the steps, below which a change of speed says nothing


class Figure(NamedTuple):
    """A number measured in a run."""

    value: float
    spread: float  # of it, as a share
    ref: int | None


class Said(NamedTuple):
    """A value that a run states in words."""

    n: int  # how many hosts, ranks or connections state it
    ref: int | None


@dataclass(frozen=True)
class Run:
    """A run as it was read and judged."""

    paths: list[str]
    facts: Facts
    report: Report


def read(
    path: str,
    rules_dirs: Sequence[Path] = (),
    config: Config | None = None,
    progress: Callable[[int, int], None] | None = None,
    drawn: bool = False,
) -> tuple[Run, list[str]]:
    """Read and judge one of the runs. Returns it, and what could not be read. Raises as `analyze.analyze` does.

    `drawn` asks for pictures.
    """
    report, facts, problems = analyze.analyze(
        [path], rules_dirs=rules_dirs, config=config, progress=progress, drawn=drawn
    )
    return Run([path], facts, report), problems


def compare(before: Run, after: Run, tolerance: float = TOLERANCE) -> Comparison:
    """What changed from one run to the other. `tolerance` is the share by which a speed may differ."""
    changes: list[Change] = []
    same, only_before, only_after = [], [], []
    for topic, group in groupby(queries.RUNS, key=lambda trait: trait.topic):
        answers = [_Answers(trait, before.facts, after.facts) for trait in group]
        found = [change for answer in answers for change in answer.changes(tolerance)]
        changes += found
        tells_before, tells_after = (any(answer.tells(side) for answer in answers) for side in (0, 1))
        if found:
            continue
        if any(answer.shared() for answer in answers):
            same.append(topic)
        elif tells_before and not tells_after:
            only_before.append(topic)
        elif tells_after and not tells_before:
            only_after.append(topic)
    changes.sort(key=lambda change: change.effect != "worse")
    appeared = _lacking(after.report, before.report)
    unasked = _unasked(appeared, before.report)
    gone = _lacking(before.report, after.report)
    untold = _unasked(gone, after.report)
    gone = [finding for finding in gone if finding.rule not in untold]
    verdict = _verdict(changes, appeared, gone, same)
    a, b = (Side(run.paths, run.report.verdict, run.report.job) for run in (before, after))
    return Comparison(
        verdict=verdict, before=a, after=b, changes=changes, appeared=appeared, gone=gone, unasked=unasked,
        same=same, only_before=only_before, only_after=only_after,
        pictures=side_by_side(before.report.pictures, after.report.pictures),
    )  # fmt: skip


def _verdict(changes: list[Change], appeared: list[Finding], gone: list[Finding], same: list[str]) -> str:
    severities = {change.severity for change in changes} | {finding.severity for finding in appeared}
    severities |= {"note"} if gone else set()
    worst = next((severity for severity in SEVERITIES if severity in severities), "")
    return worst or ("same" if same else "inconclusive")


def _lacking(has: Report, lacks: Report) -> list[Finding]:
    """Findings of one report whose rule found nothing in the other, one a rule; symptoms go with their cause."""
    known = {finding.rule for finding in lacks.findings}
    new: dict[str, Finding] = {}
    for finding in has.findings:
        if finding.rule not in known:
            new.setdefault(finding.rule, finding)
    return [finding for finding in new.values() if not new.keys() & set(finding.explained_by)]


def _unasked(findings: Iterable[Finding], report: Report) -> list[str]:
    """The rules among these that this run has no facts for."""
    asked = {check.rule for check in report.checks if check.outcome in ("found", "clear")}
    return [finding.rule for finding in findings if finding.rule not in asked]


class _Answers:
    """The answers of two runs to one question."""

    def __init__(self, trait: queries.Words | queries.Number, *runs: Facts) -> None:
        self._trait = trait
        self._runs = runs
        ask = figures if isinstance(trait, queries.Number) else sayings
        # of a run that was not looked at for it: None
        self._told: list[Any] = [ask(run, trait.query) if run.covered() & set(trait.needs) else None for run in runs]

    def tells(self, side: int) -> bool:
        """Whether a run has facts about the item."""
        return bool(self._told[side])

    def shared(self) -> list[Any]:
        """Items about which both runs have facts, including the fact that there is none."""
        old, new = self._told
        if old is None or new is None:
            return []
        if isinstance(self._trait, queries.Words) and self._trait.lacking:
            return [*old, *(what for what in new if what not in old)] or [""]
        return [what for what in old if what in new]

    def changes(self, tolerance: float) -> Iterator[Change]:
        """The items in which the two runs differ."""
        trait = self._trait
        for what in self.shared():
            if isinstance(trait, queries.Number):
                change = self._in_numbers(trait, what, tolerance)
            else:
                change = self._in_words(trait, what)
            if change is not None:
                yield change

    def _in_numbers(self, trait: queries.Number, key: tuple[str, str], tolerance: float) -> Change | None:
        a, b = (told[key] for told in self._told)
        if not differs(trait, a, b, tolerance):
            return None
        more = 1 if b.value > a.value else -1
        effect = "other" if not trait.better else "better" if more == trait.better else "worse"
        what, unit = key
        return Change(
            topic=trait.topic, what=what, before=digits(a.value), after=digits(b.value), effect=effect,
            severity="warning" if effect == "worse" else "note", unit=unit,
            ratio=b.value / a.value if a.value else None,
            evidence=[place for run, figure in zip(self._runs, (a, b), strict=True) for place in places(run, figure.ref)],
        )  # fmt: skip

    def _in_words(self, trait: queries.Words, what: str) -> Change | None:
        a, b = (told.get(what, {}) for told in self._told)
        names = trait.topic == "hosts"
        many = min(len(a), len(b)) > 1 and max(len(a), len(b)) > MANY and not names
        if a.keys() == b.keys() or many:
            return None
        before, after = (listed(said, names) or trait.lacking for said in (a, b))
        lines = [
            place
            for run, said, other in ((self._runs[0], a, b), (self._runs[1], b, a))
            for place in _differing(run, said, other)
        ]
        return Change(trait.topic, what, before, after, "other", "note", evidence=lines)


def differs(trait: queries.Number, a: Figure, b: Figure, tolerance: float) -> bool:
    """Whether two numbers differ by more than the question, the user and the spread of either allow."""
    share = max(tolerance if trait.share is None else trait.share, NOISE * max(a.spread, b.spread))
    return abs(b.value - a.value) > max(share * abs(a.value), trait.least)


def figures(facts: Facts, query: str) -> dict[tuple[str, str], Figure]:
    """What a run measured, by item and unit."""
    figures: dict[tuple[str, str], Figure] = {}
    for what, value, unit, spread, ref in facts.query(query):
        if value is not None:
            figures.setdefault((what, unit), Figure(float(value), spread or 0.0, ref))
    return figures


def digits(value: float) -> str:
    """A number with the digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def sayings(facts: Facts, query: str) -> dict[str, dict[str, Said]]:
    """What a run states, by item: each value and how many state it."""
    sayings: dict[str, dict[str, Said]] = {}
    for what, value, n, ref in facts.query(query):
        if what is not None and value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            sayings.setdefault(str(what), {})[text] = Said(n, ref)
    return sayings


def listed(said: dict[str, Said], names: bool) -> str:
    """`IB`; of several values the most frequent ones with how many state them: `IB (14), Socket (2)`."""
    if names:
        return fold_hosts(said)
    if len(said) < 2:
        return "".join(said)
    frequent = sorted(said.items(), key=lambda item: (-item[1].n, item[0]))
    more = [f"{len(said) - SHOWN} more"] if len(said) > SHOWN else []
    return ", ".join([*(f"{value} ({one.n})" for value, one in frequent[:SHOWN]), *more])


def _differing(facts: Facts, said: dict[str, Said], other: dict[str, Said]) -> list[Place]:
    """The values that one run states and the other does not."""
    return next((places(facts, one.ref) for value, one in said.items() if value not in other), [])


def places(facts: Facts, ref: int | None) -> list[Place]:
    """The line of a reference; empty without one."""
    return (
        [Place(place.file, place.line, place.text) for place in facts.evidence_rows([ref])] if ref is not None else []
    )
