"""Two runs side by side: which findings one of them lacks, and what both tell differently."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from nccl_doctor import analyze, traits
from nccl_doctor.comparison import Change, Comparison, Side
from nccl_doctor.config import Config
from nccl_doctor.diagnose import fold_hosts
from nccl_doctor.facts import Facts
from nccl_doctor.report import SEVERITIES, Finding, Place, Report

TOLERANCE = 0.05  # of a speed; runs of the same job differ by some per cent
SHOWN = 3  # values of an item
MANY = 4  # values of an item; more of them are one for each rank or host and differ between any two runs
_NOISE = 3.0  # times the spread of the steps, below which a change of speed says nothing


class _Figure(NamedTuple):
    """A number that a run tells."""

    value: float
    unit: str
    spread: float  # of it, as a share
    ref: int | None


class _Said(NamedTuple):
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
) -> tuple[Run, list[str]]:
    """Read and judge one of the runs. Returns it, and what could not be read. Raises as `analyze.analyze` does."""
    report, facts, problems = analyze.analyze([path], rules_dirs=rules_dirs, config=config, progress=progress)
    return Run([path], facts, report), problems


def compare(before: Run, after: Run, tolerance: float = TOLERANCE) -> Comparison:
    """What changed from one run to the other. `tolerance` is the share by which a speed may differ."""
    changes: list[Change] = []
    same, only_before, only_after = [], [], []
    for topic, group in groupby(traits.RUNS, key=lambda trait: trait.topic):
        asked = list(group)
        told = [(_tells(before.facts, trait), _tells(after.facts, trait)) for trait in asked]
        both = [trait for trait, has in zip(asked, told, strict=True) if all(has)]
        found = [change for trait in both for change in _changes(trait, before.facts, after.facts, tolerance)]
        changes += found
        if both and not found:
            same.append(topic)
        elif not both and any(a for a, _ in told):
            only_before.append(topic)
        elif not both and any(b for _, b in told):
            only_after.append(topic)
    changes.sort(key=lambda change: change.effect != "worse")
    appeared = _lacking(after.report, before.report)
    unasked = _unasked(appeared, before.report)
    gone = _lacking(before.report, after.report)
    untold = _unasked(gone, after.report)
    gone = [finding for finding in gone if finding.rule not in untold]
    verdict = _verdict(changes, appeared, gone, same)
    a, b = (Side(run.paths, run.report.verdict, run.report.job) for run in (before, after))
    return Comparison(verdict, a, b, changes, appeared, gone, unasked, same, only_before, only_after)


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
    """Which of these rules this run could not answer, because facts are missing."""
    asked = {check.rule for check in report.checks if check.outcome in ("found", "clear")}
    return [finding.rule for finding in findings if finding.rule not in asked]


def _tells(facts: Facts, trait: traits.Words | traits.Number) -> bool:
    """Whether a run says anything of it, be it that there is none."""
    if not facts.looked() & set(trait.needs):
        return False
    return (isinstance(trait, traits.Words) and bool(trait.lacking)) or bool(facts.own(trait.query))


def _changes(trait: traits.Words | traits.Number, before: Facts, after: Facts, tolerance: float) -> Iterable[Change]:
    if isinstance(trait, traits.Words):
        return _in_words(trait, before, after)
    return _in_numbers(trait, before, after, tolerance)


def _in_numbers(trait: traits.Number, before: Facts, after: Facts, tolerance: float) -> Iterable[Change]:
    old, new = _figures(before, trait), _figures(after, trait)
    for what in old.keys() & new.keys():
        a, b = old[what], new[what]
        share = tolerance if trait.share is None else trait.share
        share = max(share, _NOISE * max(a.spread, b.spread))
        if abs(b.value - a.value) <= max(share * abs(a.value), trait.least):
            continue
        more = (b.value > a.value) - (b.value < a.value)
        effect = "other" if not trait.better else "better" if more == trait.better else "worse"
        yield Change(
            trait.topic, what[0], _digits(a.value), _digits(b.value), effect, "warning" if effect == "worse" else "note",
            a.unit, b.value / a.value if a.value else None, _places(before, a.ref) + _places(after, b.ref),
        )  # fmt: skip


def _figures(facts: Facts, trait: traits.Number) -> dict[tuple[str, str], _Figure]:
    figures: dict[tuple[str, str], _Figure] = {}
    for what, value, unit, spread, ref in facts.own(trait.query):
        if value is not None:
            figures.setdefault((what, unit), _Figure(float(value), unit, spread or 0.0, ref))
    return figures


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _in_words(trait: traits.Words, before: Facts, after: Facts) -> Iterable[Change]:
    old, new = _sayings(before, trait), _sayings(after, trait)
    for what in sorted(old.keys() | new.keys()):
        a, b = old.get(what, {}), new.get(what, {})
        if a.keys() == b.keys() or not (trait.lacking or (a and b)):
            continue
        names = trait.topic == "hosts"
        if not names and min(len(a), len(b)) > 1 and max(len(a), len(b)) > MANY:
            continue
        yield Change(
            trait.topic, what, _listed(a, names) or trait.lacking, _listed(b, names) or trait.lacking, "other", "note",
            evidence=[place for facts, said, other in ((before, a, b), (after, b, a)) for place in _differing(facts, said, other)],
        )  # fmt: skip


def _sayings(facts: Facts, trait: traits.Words) -> dict[str, dict[str, _Said]]:
    sayings: dict[str, dict[str, _Said]] = {}
    for what, value, n, ref in facts.own(trait.query):
        if what is not None and value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            sayings.setdefault(str(what), {})[text] = _Said(n, ref)
    return sayings


def _listed(said: dict[str, _Said], names: bool) -> str:
    """`IB`; of several values the most frequent ones with how many state them: `IB (14), Socket (2)`."""
    if names:
        return fold_hosts(said)
    if len(said) < 2:
        return "".join(said)
    frequent = sorted(said.items(), key=lambda item: (-item[1].n, item[0]))
    more = [f"{len(said) - SHOWN} more"] if len(said) > SHOWN else []
    return ", ".join([*(f"{value} ({one.n})" for value, one in frequent[:SHOWN]), *more])


def _differing(facts: Facts, said: dict[str, _Said], other: dict[str, _Said]) -> list[Place]:
    """Where a run states what the other does not state."""
    return next((_places(facts, one.ref) for value, one in said.items() if value not in other), [])


def _places(facts: Facts, ref: int | None) -> list[Place]:
    return [Place(place.file, place.line, place.text) for place in facts.places([ref])] if ref is not None else []
