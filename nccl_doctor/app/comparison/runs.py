"""Many runs as one table: what each measured, and what was chosen otherwise than in the first one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NamedTuple

from nccl_doctor.app.comparison import pair, queries
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.comparison import CHOSEN, Measure, Measured, RunRow, RunsTable, Varied
from nccl_doctor.diagnosis.report import Finding

NAMED = 3  # settings in the headline
_NUMBERS = [trait for trait in queries.RUNS if isinstance(trait, queries.Number)]
_WORDS = [trait for trait in queries.RUNS if isinstance(trait, queries.Words)]
Key = tuple[str, str, str]  # topic, what, unit


class Number(NamedTuple):
    """A number, the question that it answers, and how it is shown."""

    question: queries.Number
    figure: pair.Figure
    shown: Measured


@dataclass(frozen=True)
class Answers:
    """What one run tells. It holds no fact base, so that hundreds of runs fit in memory."""

    path: str
    verdict: str
    findings: list[Finding]
    asked: frozenset[str]  # rules for which it has facts
    numbers: dict[Key, Number]
    words: list[dict[str, str] | None]  # in the order of the questions; None where the run was not looked at for it
    each: list[dict[str, int]]  # how many values an item has


def ask(run: pair.Run) -> Answers:
    """The answers of one run to all questions."""
    numbers: dict[Key, Number] = {}
    for trait in _NUMBERS:
        for (what, unit), figure in pair.figures(run.facts, trait.query).items():
            shown = Measured(figure.value, pair.digits(figure.value), None, "", pair.places(run.facts, figure.ref))
            numbers.setdefault((trait.topic, what, unit), Number(trait, figure, shown))
    words: list[dict[str, str] | None] = []
    each: list[dict[str, int]] = []
    for question in _WORDS:
        looked = bool(run.facts.covered() & set(question.needs))
        said = pair.sayings(run.facts, question.query) if looked else {}
        words.append(
            {w: pair.listed(values, question.topic == "hosts") for w, values in said.items()} if looked else None
        )
        each.append({what: len(values) for what, values in said.items()})
    asked = frozenset(check.rule for check in run.report.checks if check.outcome in ("found", "clear"))
    return Answers(run.paths[0], run.report.verdict, run.report.findings, asked, numbers, words, each)


def table(runs: Sequence[Answers], tolerance: float = pair.TOLERANCE, by: str = "") -> RunsTable:
    """The runs, best first by the measure whose name contains `by`.

    `tolerance` is the share by which a speed may differ from the first run without a word. Raises UsageProblem if no measure
    has such a name.
    """
    measures = _measures(runs)
    if by:
        chosen = [one for one in measures if by.lower() in one.what.lower()]
        if not chosen:
            raise UsageProblem(
                f"no measure has {by} in its name; there are {', '.join(one.what for one in measures) or 'none'}"
            )
        measures = [*chosen, *(one for one in measures if one not in chosen)]
    varied = _varied(runs)
    names = short_names([run.path for run in runs])
    rows = [_row(at, runs, names[at], measures, varied, tolerance) for at in range(len(runs))]
    severities = {finding.severity for row in rows for finding in row.findings}
    differs = bool(varied) or any(value and value.effect for row in rows for value in row.values)
    told = [[*row.values, *run.words] for row, run in zip(rows, runs, strict=True)]
    shared = any(sum(one is not None for one in column) > 1 for column in zip(*told, strict=True))
    verdict = next((one for one in SEVERITIES if one in severities), "")
    verdict = verdict or ("note" if differs else "same" if shared else "inconclusive")
    if measures and measures[0].better:
        sign = -measures[0].better
        rows.sort(key=lambda row: sign * row.values[0].value if row.values[0] else float("inf"))
    return RunsTable(verdict, _headline(rows, measures, varied), measures, rows, varied)


def _measures(runs: Sequence[Answers]) -> list[Measure]:
    """Every number that a run has, those of most runs first within a topic, topics in their usual order."""
    better = {key: number.question.better for run in runs for key, number in run.numbers.items()}
    topics = list(dict.fromkeys(trait.topic for trait in _NUMBERS))
    count = {key: sum(key in run.numbers for run in runs) for run in runs for key in run.numbers}
    keys = sorted(count, key=lambda key: (topics.index(key[0]), -count[key]))
    return [Measure(*key, better[key]) for key in keys]


def _varied(runs: Sequence[Answers]) -> list[Varied]:
    """What the runs state differently: chosen things first."""
    found = []
    for at, question in enumerate(_WORDS):
        told = [run.words[at] for run in runs]
        items = dict.fromkeys(what for words in told if words is not None for what in words)
        for what in items:
            numbers = [run.each[at].get(what, 0) for run in runs]
            if max(numbers) > pair.MANY and min(numbers) > 1 and question.topic != "hosts":
                continue  # one for each rank or host: any two runs differ
            values = [None if words is None else words.get(what) or question.lacking or None for words in told]
            if len({value for value in values if value is not None}) > 1:
                found.append(Varied(question.topic, what, values, question.topic in CHOSEN))
    return sorted(found, key=lambda one: CHOSEN.index(one.topic) if one.chosen else len(CHOSEN))


def _row(
    at: int, runs: Sequence[Answers], name: str, measures: Sequence[Measure], varied: Sequence[Varied], tolerance: float
) -> RunRow:
    run, first = runs[at], runs[0]
    known = {finding.rule for finding in first.findings}
    new: dict[str, Finding] = {}
    for finding in run.findings:
        if finding.rule not in known and finding.rule in first.asked:
            new.setdefault(finding.rule, finding)
    causes = [finding for finding in new.values() if not new.keys() & set(finding.explained_by)]
    changed = [
        f"{one.what}={value}" if one.topic == "settings" else f"{one.what} {value}"
        for one in varied
        if one.chosen and (value := one.values[at]) is not None and one.values[0] not in (None, value)
    ]
    values = [_measured(run, first, measure, tolerance) for measure in measures]
    return RunRow(name, run.path, at + 1, run.verdict, causes, values, changed)


def _measured(run: Answers, first: Answers, measure: Measure, tolerance: float) -> Measured | None:
    key = measure.topic, measure.what, measure.unit
    if key not in run.numbers:
        return None
    question, figure, shown = run.numbers[key]
    if key not in first.numbers or run is first:
        return shown
    base = first.numbers[key].figure
    ratio = figure.value / base.value if base.value else None
    if not pair.differs(question, base, figure, tolerance):
        return replace(shown, ratio=ratio)
    more = 1 if figure.value > base.value else -1
    effect = "other" if not question.better else "better" if more == question.better else "worse"
    return replace(shown, ratio=ratio, effect=effect)


def _headline(rows: Sequence[RunRow], measures: Sequence[Measure], varied: Sequence[Varied]) -> str:
    """Which run is best, by how much, and what was chosen otherwise in it."""
    if not measures or not measures[0].better or sum(row.values[0] is not None for row in rows) < 2:
        chosen = [one.what for one in varied if one.chosen]
        return f"no number that two runs share; {_some(chosen) or 'nothing chosen'} differs"
    best, value, measure = rows[0], rows[0].values[0], measures[0]
    assert value is not None
    first_name, first = next((row.name, row.values[0]) for row in rows if row.number == 1)
    unit = f" {measure.unit}" if measure.unit else ""
    reached = f"{best.name} is best: {measure.what} {value.text}{unit}"
    if best.number == 1:
        return f"{reached}; no other run is better than this first one"
    if first is None:
        return f"{reached}; the first run, {first_name}, shows no {measure.what}"
    if value.effect != "better":
        return f"no run is better than the first one, {first_name}: {measure.what} {first.text}{unit}"
    share = f", {(value.ratio - 1) * 100:+.0f}% on the first run" if value.ratio else ""
    return f"{reached}{share}, with {_some(best.changed) or 'nothing chosen otherwise that the inputs show'}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {counted(more, 'other difference')}" if more > 0 else "")


def short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of each path, as many as tell all of them apart; equal paths get numbers."""
    parts = [PurePath(path).parts or (path,) for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(set(paths)):
            break
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        names[at] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return names
