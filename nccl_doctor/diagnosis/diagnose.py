"""From the answers of the rules to one report: causes before symptoms, equal findings folded, a verdict."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.timestamps import Moment, moment
from nccl_doctor.derive.host_names import bus_id
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.diagnosis.accounted import AccountedJobs
from nccl_doctor.diagnosis.capture import capture_of
from nccl_doctor.diagnosis.job_summary import job, lines
from nccl_doctor.diagnosis.lags import Lags
from nccl_doctor.diagnosis.overcome import soften
from nccl_doctor.diagnosis.ranking import Found, order, span
from nccl_doctor.diagnosis.report import JOBS, Check, CoverageRow, Finding, InputSummary, MeasureRow, Place, Report
from nccl_doctor.diagnosis.verdict import decide
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Coverage, Input, Measure
from nccl_doctor.rules.answers import Answer
from nccl_doctor.rules.folding import Group
from nccl_doctor.rules.templates import fill_template

EVIDENCE = 12  # places kept per finding
# Groups whose findings hold for a stretch of time: the moment of a sample or step that shows one is not when it began.
_LASTING = ("performance", "input", "context")
_LAST_NUMBER = compiled(r"(.*?)([0-9]{1,9})([^0-9]*)")
_SPECIAL = frozenset("[]@,&!^*?% ")  # of ClusterShell
_SERIES = 256  # series of names that ClusterShell folds further; it compares each with each
_NUMBERED = compiled(r"(?P<before>[A-Za-z][A-Za-z_.-]{0,60})(?P<number>[0-9]{1,9})(?P<behind>[A-Za-z_.-]{0,120})")
_ELSEWHERE = "SELECT ref FROM known_message WHERE kind IN ('peer', 'timeout')"  # evidence that something else failed
_NO_PEERS = ("resource",)  # what a node lacks, a file server too, is why its ranks are late
# Columns that are not values of the finding.
_OWN = ("ref", "refs", JOBS, "severity", "role", "confidence", "action", "fault")


def diagnose(facts: Facts, answers: Sequence[Answer], missing: Sequence[str] = ()) -> Report:
    """The report of a fact base."""
    year = job_year(facts) if any(answer.outcome == "found" for answer in answers) else None
    inputs = facts.rows(Input)
    lags, restarts, jobs = Lags(facts), _restarts(facts), AccountedJobs(facts)
    elsewhere = {ref for (ref,) in facts.query(_ELSEWHERE)}
    found = [
        one._replace(elsewhere=bool(one.refs) and one.refs <= elsewhere and one.rule.group not in _NO_PEERS)
        for answer in _unclaimed(answers)
        for one in _fold(answer, facts, year, lags, restarts, jobs)
    ]
    soften(found, facts)
    findings = order([one for one in found if not one.rule.fallback or _is_worst(one, found)])
    verdict = decide(facts, findings, inputs, frozenset[int]().union(*(one.refs for one in found)))
    measured, aspects = facts.rows(Measure), facts.rows(Coverage)
    places = _places(facts, [*(one.ref for one in measured), *(one.ref for one in aspects)])
    measures = [MeasureRow(m.name, m.value, m.unit, m.scope, m.of, places.get(m.ref, [])) for m in measured]
    about = job(facts, fold_hosts)
    return Report(
        verdict=verdict.word,
        basis=verdict.basis,
        unread=verdict.unread,
        unread_count=verdict.unread_count,
        coverage=[CoverageRow(c.aspect, c.seen, c.shows or "", c.capture, places.get(c.ref, [])) for c in aspects],
        measures=measures,
        job_lines=lines(about, measures),
        inputs=[
            InputSummary(i.path, i.kind, i.bytes, i.lines, i.understood, i.nccl_lines, i.note or "") for i in inputs
        ],
        job=about,
        findings=findings,
        checks=[Check(a.rule.id, a.rule.name, a.outcome, a.reason, _capture(a)) for a in answers],
        missing=list(missing),
    )


def _unclaimed(answers: Sequence[Answer]) -> Iterable[Answer]:
    """The answers that found something; of rules that want it, without rows that other rules account for.

    These are rows of which another rule shows the evidence, and echoes where another rule found the cause of an error.
    A generic rule says less than the catalogue: it gives up rows whose evidence is an error there.
    """
    found = [answer for answer in answers if answer.outcome == "found"]
    special = [answer for answer in found if not (answer.rule.unclaimed or answer.rule.fallback)]
    claimed = {ref for answer in special if not answer.rule.generic for row in answer.rows for ref in row.refs}
    explained = any(
        row.severity == "error" and (row.values.get("role") or answer.rule.role) != "symptom"
        for answer in special
        for row in answer.rows
    )
    known = {
        ref
        for answer in found
        if answer.rule.unclaimed
        for row in answer.rows
        if row.severity == "error" and row.values.get("role") != "symptom"
        for ref in row.refs
    }
    for answer in found:
        groups = answer.groups
        if answer.rule.unclaimed:
            groups = [group for one in groups if (group := one.without(claimed, echoes=not explained)) is not None]
        elif answer.rule.generic:
            groups = [group for one in groups if (group := one.without(known, echoes=True)) is not None]
        if groups:
            yield answer._replace(groups=groups)


_WORST = ("error", "warning", "inconclusive", "nothing-found", "note", "healthy")


def summarise(across: Report, jobs: Sequence[Report]) -> Report:
    """The report of several jobs: the worst verdict, the jobs in that order, and what was found by comparing them."""
    ordered = sorted(jobs, key=lambda job: _WORST.index(job.verdict))
    counts = Counter(job.verdict for job in ordered)
    alarms = [finding.severity for finding in across.findings if finding.severity != "note"]
    lost = ["nothing-found"] if any(one.kind == "broken" for one in across.inputs) else []
    verdict = min([ordered[0].verdict, *alarms, *lost], key=_WORST.index)
    basis = f"{len(jobs)} jobs: {', '.join(f'{counts[word]} {word}' for word in _WORST if word in counts)}"
    compared = [measure for measure in across.measures if measure.scope in ("host", "pair")]
    return replace(
        across,
        verdict=verdict,
        basis=basis,
        job={},
        job_lines=[],
        coverage=[],
        measures=compared,
        missing=[],
        jobs=ordered,
    )


def fold_hosts(names: Iterable[str | None]) -> str:
    """`node01 node02` -> `node[01-02]`."""
    plain = sorted({name for name in names if name})
    if len(plain) < 2:
        return "".join(plain)
    if (folded := _of_one_series(plain)) is not None:
        return folded
    series = _by_last_number(plain)
    if len(plain) > _SERIES and len(series) > _SERIES:
        return ",".join(series)
    if any(map(_SPECIAL.intersection, plain)):
        return ",".join(plain)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        nodes = NodeSet(resolver=RESOLVER_NOGROUP)  # a name in a log asks nothing of the site's groups
        for names in series:
            nodes.update(NodeSet(names, resolver=RESOLVER_NOGROUP))
        if len(nodes) == len(plain):
            return str(nodes)
    except (NodeSetException, ValueError):  # a number of thousands of digits
        pass
    return ",".join(plain)


def _of_one_series(names: Sequence[str]) -> str | None:
    """The folded names of hosts that differ in one number alone, as nearly all do; None for others."""
    found = [match for match in map(_NUMBERED.fullmatch, names) if match is not None]
    around = {(match["before"], match["behind"]) for match in found}
    numbers = [match["number"] for match in found]
    padded = any(number[0] == "0" and number != "0" for number in numbers)
    if len(found) < len(names) or len(around) > 1 or (padded and len({*map(len, numbers)}) > 1):
        return None
    ((before, behind),) = around
    return f"{before}[{_ranges(numbers, len(numbers[0]) if padded else 1)}]{behind}"


def _by_last_number(names: Sequence[str]) -> list[str]:
    """Hosts that differ in their last number alone folded together, as `10.1.7.[12-19]`."""
    series: dict[tuple[str, str, int], list[str]] = {}
    for name in names:
        found = None if _SPECIAL & set(name) else _LAST_NUMBER.fullmatch(name)
        before, number, behind = found.groups() if found is not None else (name, "", "")
        series.setdefault((before, behind, len(number)), []).append(number)
    return [
        before + (f"[{_ranges(numbers, width)}]" if len(numbers) > 1 else numbers[0]) + behind
        for (before, behind, width), numbers in series.items()
    ]


def fold_ranks(numbers: Iterable[int | None]) -> str:
    """`0 1 2 3 9` -> `0-3,9`."""
    return _ranges((n for n in numbers if n is not None), 1)


def _ranges(numbers: Iterable[int | str], width: int) -> str:
    """Numbers of at least so many digits in ascending order, `3 1 2 9` as `1-3,9`; ClusterShell takes 20 times as long for each."""
    parts: list[list[int]] = []
    for number in sorted(set(map(int, numbers))):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in parts)


def _fold(
    answer: Answer, facts: Facts, year: int | None, lags: Lags, restarts: dict[str, list[int]], jobs: AccountedJobs
) -> Iterable[Found]:
    """One finding for each group of rows."""
    rule = answer.rule
    for group in answer.groups:
        first = group.first
        hosts = fold_hosts(group.hosts)
        numbers = group.ranks
        refs = [ref for row in group.rows for ref in row.refs]
        places = facts.evidence_rows(refs[: 50 * EVIDENCE])
        when = {place.id: moment(place.text, year) for place in places}
        shown = {"host": hosts or "a host", "rank": fold_ranks(numbers) or None}
        values = {**first.values, **{k: v for k, v in shown.items() if k in first.values}}
        message = fill_template(rule.message if hosts else _without_host(rule.message), values)
        own_jobs = jobs.known(group.jobs)
        if called := jobs.named(own_jobs):
            message = f"{called}: {message}"
        if not numbers and "{rank}" not in rule.message and (numbers := _ranks_of_gpus(group, facts)):
            message += f" (rank {fold_ranks(numbers)})"
        message = _with(message, _cut(group))
        message = _with(message, lags.clause(refs))
        if first.severity != "note" and first.role != "context":
            first_of = _first_of(group, when)
            message = _with(message, f"first {first_of}" if first_of else "")
        finding = Finding(
            rule=rule.id, name=rule.name, title=rule.title, severity=first.severity, role=first.role,
            confidence=first.confidence, message=message, why=fill_template(rule.why, values), fix=fill_template(rule.fix, values),
            hosts=hosts, ranks=fold_ranks(numbers),
            values={k: v for k, v in first.values.items() if k not in _OWN} | ({JOBS: called} if called else {}),
            references=list(rule.references), evidence=[Place(p.file, p.line, p.text) for p in _spread(places)],
            count=group.count, action=first.action,
        )  # fmt: skip
        line = min(map(facts.read_line, places), default=0)
        lasting = rule.group in _LASTING or any(table.startswith("gpu_") for table in rule.needs)
        times = span(when.values()) if not lasting else (None, None)
        attempt = min((bisect_right(restarts.get(p.file, []), p.line) for p in places), default=0)
        found = Found(rule, finding, line, *times, frozenset(numbers), frozenset(refs), attempt=attempt)
        yield found._replace(jobs=own_jobs, leads=lags.symptoms(refs))


def _without_host(template: str) -> str:
    """The words of a rule where no host is known."""
    return template.removeprefix("{host}: ").replace(" on {host}", "")


def _restarts(facts: Facts) -> dict[str, list[int]]:
    """The lines of each file at which the job begins again."""
    lines: dict[str, list[int]] = defaultdict(list)
    for file, line in facts.query("SELECT file, line FROM restart ORDER BY line"):
        lines[file].append(line)
    return lines


def _with(message: str, more: str) -> str:
    """A message and what else is to be said, as a sentence of its own where the message ends with one."""
    if not more:
        return message
    return f"{message} {more[0].upper()}{more[1:]}." if message.endswith(".") else f"{message}; {more}"


def _cut(group: Group) -> str:
    """Says how many rows of the finding are not shown."""
    kept = len(group.rows)
    parts = [f"{group.count:,} cases differ in detail, this is the first"] if group.mixed else []
    parts += [f"the evidence is of the first {kept:,} of {group.count:,} rows"] if kept < group.count else []
    return ", ".join(parts)


def _first_of(group: Group, when: dict[int, Moment | None]) -> str:
    """`rank 3 on node02 at 10:02:11`, where several ranks or hosts show the same and their clocks tell."""
    if len(group.rows) < group.count:
        return ""  # the first one may be among the rows that were not kept
    seen: dict[tuple[Any, Any], Moment] = {}
    for row in group.rows:
        known = [moment for ref in row.refs if (moment := when.get(ref)) is not None]
        if known:
            who = row.values.get("host"), _rank(row.values.get("rank"))
            seen[who] = min([*known, seen[who]] if who in seen else known, key=lambda when: when.seconds)
    if len(seen) < 2 or (None, None) in seen or len({moment.clock for moment in seen.values()}) > 1:
        return ""
    (host, rank), first = min(seen.items(), key=lambda item: item[1].seconds)
    if sum(moment.seconds <= first.seconds for moment in seen.values()) > 1:
        return ""
    named = " on ".join([*([f"rank {rank}"] if rank is not None else []), *([str(host)] if host else [])])
    return f"{named} at {first.words()}"


def _ranks_of_gpus(group: Group, facts: Facts) -> set[int]:
    """The ranks on the GPUs that rows name by PCI address or by their number on a host."""
    query = "SELECT rank FROM rank WHERE host = ? AND "
    ranks: set[int] = set()
    for host, addresses, gpu in group.gpus:
        for address in addresses.replace(",", " ").split():
            if bus := bus_id(address):
                ranks |= {rank for (rank,) in facts.query(query + "bus_id = ?", (host, bus))}
        if gpu is not None:
            ranks |= {rank for (rank,) in facts.query(query + "coalesce(nvml_dev, cuda_dev) = ?", (host, gpu))}
    return ranks


def _rank(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _spread(places: list[Any]) -> list[Any]:
    return places[:EVIDENCE]


def _is_worst(one: Found, found: Sequence[Found]) -> bool:
    """Whether no other rule found something as severe; notes do not count, nor what only says that something else failed."""
    as_bad = {"error"} if one.finding.severity == "error" else {"error", "warning"}
    return not any(
        other.finding.severity in as_bad and (one.elsewhere or not other.elsewhere)
        for other in found
        if not other.rule.fallback
    )


def _places(facts: Facts, refs: Iterable[int | None]) -> dict[int | None, list[Place]]:
    """Number of evidence -> the place that it names."""
    rows = facts.evidence_rows(ref for ref in refs if ref is not None)
    return {row.id: [Place(row.file, row.line, row.text)] for row in rows}


def _capture(answer: Answer) -> str:
    """What to capture so that a skipped rule can be asked, from the first table that was never looked at."""
    if answer.outcome != "skipped":
        return ""
    lacking = answer.reason.removeprefix("no facts in table ").split(", ")
    return capture_of(lacking[0])
