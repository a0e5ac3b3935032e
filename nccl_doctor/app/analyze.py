"""From what the user named to a report: read the inputs, derive, ask the rules, diagnose."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from nccl_doctor.app import expected, jobs
from nccl_doctor.app.reading.input_reader import BROKEN, UNREAD, InputReader, ReadAheadOf, log_input
from nccl_doctor.common import budgets, interruption
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchExpected, Input
from nccl_doctor.formats import registry
from nccl_doctor.inputs import exports
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.log import job_log, parallel
from nccl_doctor.rules import engine, loader, schema
from nccl_doctor.rules.site_config import Config

CAPTURE = (
    "rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET,GRAPH NCCL_DEBUG_FILE=/path/nccl.%h.%p"
    " (some 100 kB a rank; never SUBSYS=ALL in production)"
)


_NODE_GROUPS = {  # groups of rules about nodes, and whether captures of a node show what they judge
    "node-gpu": "SELECT 1 FROM (SELECT ref FROM node_gpu UNION ALL SELECT ref FROM active_test UNION ALL SELECT ref FROM amd_gpu) LIMIT 1",
    "node-software": "SELECT 1 FROM software_version LIMIT 1",
    "node-network": "SELECT 1 FROM bond_member LIMIT 1",
    # what the log of a job prints at its start did not keep that job from running
    "node-host": "SELECT 1 FROM (SELECT ref FROM host_number UNION ALL SELECT ref FROM shared_memory UNION ALL SELECT ref FROM mount)"
    " WHERE NOT EXISTS (SELECT 1 FROM job WHERE has_nccl) AND NOT EXISTS (SELECT 1 FROM throughput_run) LIMIT 1",
}
# A rule about nodes speaks of a log whose messages name its fault.
_NAMED_FAULTS = (
    "SELECT DISTINCT fault FROM known_message WHERE fault IS NOT NULL"
    " UNION SELECT 'link-flapping' FROM message WHERE kind IN ('link-down', 'bond-link-down')"
)
_LOGS = {"nccl-log", "job-log", "text"}  # kinds of inputs
_OUTPUTS = _LOGS | {"training-steps", "nccl-tests"}
_UNSEEN = {"start-up": "whether all ranks came up", "progress": "whether the job made progress", "end": "how it ended"}
_COMPARED = 200  # logs of which it is asked whether they are related
_FILES_OF_JOBS = "SELECT file FROM throughput_run UNION SELECT e.file FROM process p JOIN evidence e ON e.id = p.ref"
_ACROSS = ("scaling", "bench_host", "bench_link")  # the tables whose rules compare jobs


def analyze(
    paths: Sequence[str],
    *,
    rules_dirs: Sequence[Path] = (),
    config: Config | None = None,
    progress: Callable[[int, int], None] | None = None,
    apart: str = "one",
    drawn: bool = False,
    read_ahead: ReadAheadOf = parallel.ReadAhead,
    expect: expected.Expected = MappingProxyType({}),
) -> tuple[Report, Facts, list[str]]:
    """Read everything that was named and diagnose it.

    Returns the report, its fact base, and one sentence for each input that could not be read or only in part, and for
    each rule of the site that cannot be used. `read_ahead` makes what reads plain logs. `apart` says whether they are of one
    job: `auto` by what they show, `one`, `each` a job of its own, or `last` only that whose files were written last. Where
    the inputs are of several jobs, the report holds one for each of them, and the fact base what compares jobs. `drawn` asks for pictures.
    `expect` says what runs of nccl-tests have to reach.
    Raises UsageProblem where nothing at all could be read.
    """
    reader = InputReader(paths, progress, read_ahead)
    with parallel.without_garbage_collection():
        reader.read_all()
    if expect and reader.is_saved:
        raise UsageProblem("--expect needs the logs, not facts that were saved")
    expected.add(reader.facts, expect)
    with interruption.held():  # some of what was read is read a second time
        return _diagnosed(reader, rules_dirs, config, apart, drawn)


def _diagnosed(
    reader: InputReader, rules_dirs: Sequence[Path], config: Config | None, apart: str, drawn: bool
) -> tuple[Report, Facts, list[str]]:
    problems = [*reader.problems, *left_out(rules_dirs)]
    stopped = [reader.interrupted] if reader.interrupted else []
    found = _jobs(reader, apart) if not reader.is_saved else []
    ask = partial(report_of, rules_dirs=rules_dirs, config=config, drawn=drawn)
    if found and apart == "last":
        facts, notes = _last(reader, found)
        report = ask(facts)
        return replace(report, missing=[*stopped, *notes, *report.missing]), facts, [*problems, *notes]
    if found:
        report = _report_of_jobs(reader, found, ask)
        return replace(report, missing=[*stopped, *report.missing]), reader.facts, problems
    if not reader.is_saved:
        problems += [*_complete(reader), *reader.name_unread_sections()]
    report = ask(reader.facts)
    doubt = _doubt(reader, apart)
    return replace(report, missing=[*stopped, *doubt, *report.missing]), reader.facts, [*problems, *doubt]


def _doubt(reader: InputReader, apart: str) -> list[str]:
    """Says that logs of jobs were read as one job although nothing shows that they are."""
    if apart != "auto" or len(reader.logs) < 2:
        return []
    files = {file for (file,) in reader.facts.query(_FILES_OF_JOBS)}  # a kernel log belongs to any job
    logs = [jobs.fingerprint(log) for log in reader.logs if log[0] in files]
    groups = jobs.unrelated(logs[:_COMPARED])
    if groups < 2:
        return []
    return [
        f"nothing relates {groups} of the logs to each other; they were read as one job, --jobs each tells them apart"
    ]


def _jobs(reader: InputReader, apart: str) -> list[jobs.JobFiles]:
    """The jobs that the inputs are of; empty for one."""
    if apart == "each":
        found = jobs.each([*(name for name, *_ in reader.logs), *reader.others])
        return found if len(found) > 1 else []
    if apart == "one" or len(reader.logs) < 2:
        return []
    return jobs.group([jobs.fingerprint(log) for log in reader.logs], reader.others)


def _last(reader: InputReader, found: Sequence[jobs.JobFiles]) -> tuple[Facts, list[str]]:
    """The facts of the job whose logs were written last, and what to say of the others."""
    logs = {name for name, *_ in reader.logs}
    job = max((job for job in found if logs.intersection(job.names)), key=lambda job: max(map(_written, job.names)))
    facts = reader.facts_of(job.names)
    derive_all(facts)
    said = f"{job.label} is the last of {len(found)} jobs by the times of their files; --jobs auto reports all of them"
    return facts, [said, *_cut(facts)]


def _written(name: str) -> float:
    """When a file was written last; 0 for a member of an archive and for standard input."""
    try:
        return Path(name).stat().st_mtime
    except (OSError, ValueError):
        return 0.0


def _report_of_jobs(reader: InputReader, found: Sequence[jobs.JobFiles], ask: Callable[..., Report]) -> Report:
    """One report for each job; what compares them is found in the facts of all."""
    reports = []
    for job in found:
        facts = reader.facts_of(job.names)
        expected.add(facts, {row.operation: row.busbw for row in reader.facts.rows(BenchExpected)})
        derive_all(facts)
        _cut(facts)
        reports.append(replace(ask(facts), name=job.label))
    reader.facts.mark_covered("message", "process")
    derive_all(reader.facts)
    return diagnose.summarise(ask(reader.facts, needs=_ACROSS), reports)


@parallel.without_garbage_collection()
def _complete(reader: InputReader) -> list[str]:
    """Add the logs, derive, and return one sentence for each table that is not whole."""
    job_log.add(reader.facts, reader.logs)
    derive_all(reader.facts)
    return _cut(reader.facts)


@parallel.without_garbage_collection()
def read_facts(paths: Sequence[str], progress: Callable[[int, int], None] | None = None) -> tuple[Facts, list[str]]:
    """The fact base of these inputs, derived tables included, and one sentence for each that was not wholly read.

    A saved fact base is opened as it is. Raises UsageProblem if nothing at all could be read.
    """
    reader = InputReader(paths, progress)
    reader.read_all()
    if not reader.is_saved:
        return reader.facts, [*reader.problems, *_complete(reader)]
    return reader.facts, reader.problems


def _cut(facts: Facts) -> list[str]:
    """One sentence for each table that reached its budget; the report is not `healthy` then."""
    hint = budgets.reached("rows")
    notes = [f"table {name} is full; {count:,} more rows were left out; {hint}" for name, count in facts.cut.items()]
    facts.add([Input("facts", BROKEN, 0, 0, 0, 0, note) for note in notes])
    return notes


def read_text(text: str, name: str = "log") -> Facts:
    """The fact base of a log given as text, as the examples of rules do it."""
    facts = Facts()
    data = text.encode("utf-8", "surrogateescape")
    kind = exports.recognise(data[: parallel.HEAD])

    def opened() -> Readable:
        return io.BytesIO(data) if kind is None else exports.Exported(io.BytesIO(data), kind)

    lines = opened()
    if isinstance(lines, exports.Exported):
        facts.number_lines(name, lines.source_line)
    partial, tail = parallel.scan(lines)
    within = registry.within(partial.marks, data[: parallel.HEAD])
    inside = [(known, registry.read_inside(known, opened(), name, facts)) for known in within]
    facts.add([log_input(name, partial, inside, None)])
    job_log.add(facts, [(name, partial, tail)])
    derive_all(facts)
    return facts


def left_out(rules_dirs: Sequence[Path]) -> list[str]:
    """One sentence for each rule file of these folders that cannot be used."""
    if not rules_dirs:
        return []
    return [f"rule left out: {problem}" for problem in loader.load_usable(tuple(rules_dirs)).problems]


def report_of(
    facts: Facts,
    *,
    rules_dirs: Sequence[Path] = (),
    config: Config | None = None,
    needs: Sequence[str] = (),
    drawn: bool = False,
) -> Report:
    """Ask the rules, or those that need one of some tables, and order what they found; `drawn` adds pictures."""
    kinds = {row.kind for row in facts.rows(Input)} - {UNREAD, BROKEN}
    every = partial(loader.load_usable, tuple(rules_dirs))
    of_node = {group for group, query in _NODE_GROUPS.items() if facts.query(query)}
    of_logs = not rules_dirs and "node" not in kinds and not of_node  # then a third of the rules is not needed
    usable = every(without=schema.NODE) if of_logs else every()
    named = {fault for (fault,) in facts.query(_NAMED_FAULTS)} - {rule.name for rule in usable.rules}
    usable = every() if named else usable
    chosen = (config or Config()).apply(usable.rules, lambda: every().rules)
    if needs:
        chosen = [rule for rule in chosen if not {*needs}.isdisjoint(rule.needs)]
    if "node" not in kinds:  # of the rules about nodes only those on what captures show may have something to say
        chosen = [
            rule
            for rule in chosen
            if rule.name in named or rule.group in of_node or not rule.group.startswith(schema.NODE)
        ]
    elif kinds == {"node"}:  # and those about jobs have nothing to say about a node alone
        chosen = [rule for rule in chosen if rule.group.startswith(schema.NODE)]
    answers = engine.ask_all(chosen, facts)
    report = diagnose.diagnose(facts, answers, _missing(facts, kinds))
    report = replace(report, missing=report.missing or _unseen(report, kinds))
    if not drawn:
        return report
    from nccl_doctor.diagnosis.pictures import draw

    shown = draw(facts, report.findings, chosen)
    return replace(report, pictures=[one for one in shown if not needs or {*needs} & {*one.shown.tables}])


def _unseen(report: Report, kinds: set[str]) -> list[str]:
    """What to capture where the output of a job is there, nothing was found, and health is not proven."""
    rows = {row.aspect: row for row in report.coverage}
    if report.verdict != "nothing-found" or not kinds & _OUTPUTS or all(row.seen == "not" for row in rows.values()):
        return []
    return [
        f"to see {what}: {row.capture}"
        for aspect, what in _UNSEEN.items()
        if (row := rows.get(aspect)) is not None and row.seen == "not"  # of a saved base anybody wrote the rows
    ]


def _missing(facts: Facts, kinds: set[str]) -> list[str]:
    """What to capture next, where the output of a job is there and NCCL's own lines are not."""
    has_nccl, has_info = facts.query("SELECT coalesce(max(has_nccl), 0), coalesce(max(has_info), 0) FROM job")[0]
    of_job = has_nccl or facts.query(
        "SELECT 1 FROM job WHERE ranks > 1 UNION ALL SELECT 1 FROM job_fact WHERE name IN ('launcher', 'framework', 'program') LIMIT 1"
    )
    if has_info or not of_job or not kinds & _LOGS:
        return []
    seen = "does not show how NCCL started" if has_nccl else "holds no NCCL line"
    return [f"the log {seen}; to see transports, networks and settings {CAPTURE}"]
