"""From what the user named to a report: read the inputs, derive, ask the rules, diagnose."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Format, Reading
from nccl_doctor.inputs import sources
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.log import job_log, parallel
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.node.runtime import expectations, tree
from nccl_doctor.node.runtime.collect import collect
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.rules import engine, loader, schema
from nccl_doctor.rules.site_config import Config

READABLE = ("nccl-log", "job-log", "text", "json")
TREE_SECONDS = 30.0  # for the collectors that read a kept tree of a node
CAPTURE = (
    "rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET,GRAPH NCCL_DEBUG_FILE=/path/nccl.%h.%p"
    " (some 100 kB a rank; never SUBSYS=ALL in production)"
)


def analyze(
    paths: Sequence[str],
    *,
    rules_dirs: Sequence[Path] = (),
    config: Config | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Report, Facts, list[str]]:
    """Read everything that was named and diagnose it.

    Returns the report, its fact base, and one sentence for each input that could not be read or only in part, and for
    each rule of the site that cannot be used.
    Raises UsageProblem where nothing at all could be read.
    """
    facts, problems = read(paths, progress)
    problems += left_out(rules_dirs)
    return report_of(facts, rules_dirs=rules_dirs, config=config), facts, problems


@parallel.without_garbage_collection()
def read(paths: Sequence[str], progress: Callable[[int, int], None] | None = None) -> tuple[Facts, list[str]]:
    """The fact base of these inputs, derived tables included. A saved fact base is opened as it is."""
    problems: list[str] = []
    to_read: list[sources.Source] = []
    trees = [path for path in paths if path != "-" and tree.is_tree(Path(path))]
    for found in sources.expand([path for path in paths if path not in trees], registry.is_known):
        if isinstance(found, sources.InputProblem):
            problems.append(str(found))
        else:
            to_read.append(found)
    facts = Facts()
    for path in trees:
        _look(facts, path)
    parts: list[job_log.LogPart] = []
    meter = _Meter(progress, sum(source.size or 0 for source in to_read))
    asked = {sources.one_line(path) for path in paths}
    foreign: set[str] = set()  # names in folders and archives of what nothing here reads
    ahead = parallel.ReadAhead((source.path, source.size or 0) for source in to_read if source.plain and source.path)
    for source in to_read:
        meter.begin(source)
        try:
            with sources.open_stream(meter.told(source)) as stream:
                head = stream.read(parallel.HEAD)
                kind = sources.sniff(head, source.name)
                known = registry.recognise(head)
                if known is not None:
                    problems += _read_format(facts, known, source, _Joined(head, stream))
                    continue
                if kind == "sqlite" and len(to_read) == 1 and source.path is not None:
                    return Facts.open(source.path), problems
                if kind not in READABLE:
                    raise sources.ForeignInput(source.name, _unfit(kind))
                note = None
                if source.plain and source.path is not None:
                    meter.begin(source)
                    partial, tail = ahead.scan_file(source.path, meter.tell)
                else:
                    joined = _Joined(head, stream)
                    partial, tail = parallel.scan(joined)
                    note = joined.problem
                    if note:
                        problems.append(note)
        except sources.InputProblem as problem:
            if isinstance(problem, sources.ForeignInput) and source.name not in asked:
                foreign.add(source.name)
            else:
                problems.append(str(problem))
            continue
        finally:
            meter.end(source)
        inside = []
        for known in registry.within(partial.marks):
            with sources.open_stream(source) as again:
                inside.append((known, registry.read(known, again, source.name, facts)))
        read_as = _log_input(source.name, partial, inside, note)
        useless = not read_as.understood and not tail.seen and source.name in asked - {"-"}
        if useless and (reason := sources.no_log(head)):
            problems.append(f"{source.name}: {reason}")
            continue
        parts.append((source.name, partial, tail))
        facts.add([read_as])
        if read_as.note and not note:
            problems.append(f"{source.name}: {read_as.note}")
    ahead.close()
    if foreign:
        more = f" and {len(foreign) - 1} others" if len(foreign) > 1 else ""
        problems.append(f"{min(foreign)}{more}: no log and nothing else that is known, not read")
    told = [name for name, rows in facts.counts().items() if rows and name not in ("input", "evidence")]
    if not parts and not trees and not told and (problems or not to_read):
        raise UsageProblem(problems[0] if problems else "nothing to read: name a log, a folder or - for standard input")
    job_log.add(facts, parts)
    derive_all(facts)
    return facts, problems


def _log_input(name: str, partial: LogCounts, inside: Sequence[tuple[Format, Reading]], note: str | None) -> Input:
    """What a log turned out to be: without NCCL lines it is named after what a reader of something inside it could use."""
    used = [(known, reading) for known, reading in inside if reading.understood]
    note = note or next((reading.note for _, reading in used if reading.note), None)
    if partial.nccl_lines:
        return Input(name, "nccl-log", partial.bytes, partial.lines, partial.nccl_lines, partial.understood, note)
    kind = used[0][0].kind if used else "job-log" if partial.events else "text"
    known = sum(reading.understood for _, reading in used) or sum(event.n for event in partial.events.values())
    return Input(name, kind, partial.bytes, partial.lines, 0, min(known, partial.lines), note)


def _look(facts: Facts, path: str) -> None:
    """Read the tree of a node that `preflight --save` kept."""
    with tree.opened(Path(path)) as folder:
        root = Root(folder)
        host = root.value("/proc/sys/kernel/hostname") or root.value("/etc/hostname")
        collect(facts, root, host, seconds=TREE_SECONDS)
    expectations.add(facts, {})
    facts.add([Input(path, "node", 0, 0, 0, 0, None)])


def _read_format(facts: Facts, known: Format, source: sources.Source, stream: "_Joined") -> list[str]:
    """Read a file that is no log; returns what the user should know about it."""
    reading = registry.read(known, stream, source.name, facts)
    note = reading.note or stream.problem
    facts.add([Input(source.name, known.kind, stream.bytes, reading.lines, 0, reading.understood, note)])
    return [f"{source.name}: {note}"] if note else []


def read_text(text: str, name: str = "log") -> Facts:
    """The fact base of a log given as text, as the examples of rules do it."""
    facts = Facts()
    data = text.encode("utf-8", "surrogateescape")
    partial, tail = parallel.scan(io.BytesIO(data))
    within = registry.within(partial.marks)
    inside = [(known, registry.read(known, io.BytesIO(data), name, facts)) for known in within]
    facts.add([_log_input(name, partial, inside, None)])
    job_log.add(facts, [(name, partial, tail)])
    derive_all(facts)
    return facts


def left_out(rules_dirs: Sequence[Path]) -> list[str]:
    """One sentence for each rule file of these folders that cannot be used."""
    return [f"rule left out: {problem}" for problem in loader.load_usable(tuple(rules_dirs)).problems]


def report_of(facts: Facts, *, rules_dirs: Sequence[Path] = (), config: Config | None = None) -> Report:
    """Ask the rules and order what they found."""
    chosen = (config or Config()).apply(loader.load_usable(tuple(rules_dirs)).rules)
    kinds = {row.kind for row in facts.rows(Input)}
    if "node" not in kinds:  # of the rules about nodes only those on GPUs may have something to say
        asked = "node-gpu" if "nvidia-smi-q" in kinds else ""
        chosen = [rule for rule in chosen if rule.group == asked or not rule.group.startswith(schema.NODE)]
    elif kinds == {"node"}:  # and those about jobs have nothing to say about a node alone
        chosen = [rule for rule in chosen if rule.group.startswith(schema.NODE)]
    answers = engine.ask_all(chosen, facts)
    missing = []
    has_nccl, has_info = facts.query("SELECT coalesce(max(has_nccl), 0), coalesce(max(has_info), 0) FROM job")[0]
    if not has_info and kinds & {"nccl-log", "job-log", "text"}:
        seen = "shows NCCL warnings but not its INFO lines" if has_nccl else "holds no NCCL line"
        missing.append(f"the log {seen}; to see transports, networks and settings {CAPTURE}")
    return diagnose.diagnose(facts, answers, missing)


class _Meter:
    """Tells how far the reading of all sources is, in bytes as they lie on disk or in their archive."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = self._here = self._size = 0

    def begin(self, source: sources.Source) -> None:
        self._here, self._size = 0, source.size or 0

    def told(self, source: sources.Source) -> sources.Source:
        """The same source; reading it is noticed."""
        return source._replace(opener=lambda: parallel.MeteredStream(source.opener(), self.tell))

    def tell(self, size: int) -> None:
        self._here = min(self._here + size, self._size)
        if self._progress is not None:
            self._progress(self._done + self._here, self._total)

    def end(self, source: sources.Source) -> None:
        """Also where a reader stopped early."""
        self._done += self._size
        self._here = self._size = 0
        self.tell(0)


def _unfit(kind: str) -> str:
    if kind == "empty":
        return "is empty"
    if kind == "report":
        return "is a report on a job, not its log"
    return f"looks like {kind}, not like the log of a job"


class _Joined:
    """The head that was read for recognition, then the stream; where the stream breaks it ends, and why is kept."""

    def __init__(self, head: bytes, stream: Readable) -> None:
        self._head = head
        self._stream = stream
        self.problem: str | None = None
        self.bytes = 0

    def read(self, size: int) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            self.bytes += len(data)
            return data
        if self.problem is not None:
            return b""
        try:
            data = self._stream.read(size) or b""
            self.bytes += len(data)
            return data
        except sources.InputProblem as problem:
            self.problem = str(problem)
            return b""
