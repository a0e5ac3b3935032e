"""From the paths that the user named to one fact base: trees of nodes, logs, and files of every known format."""

import io
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from nccl_doctor.app.reading.input_streams import INTERRUPTED, KeptStream, ReadProgress, RejoinedStream
from nccl_doctor.app.reading.kept_trees import is_tree, read_tree
from nccl_doctor.app.reading.packed_logs import READABLE, PackedLogs
from nccl_doctor.app.reading.pasted import Pasted, is_pasted
from nccl_doctor.common import interruption
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.plurals import counted
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input
from nccl_doctor.formats import pastes, registry
from nccl_doctor.formats.declaration import Format, Reading
from nccl_doctor.inputs import conversions, exports, sources
from nccl_doctor.inputs.exports import partials
from nccl_doctor.inputs.streams import Readable, open_regular
from nccl_doctor.inputs.text_lines import Joined, read_ahead, read_head
from nccl_doctor.log import job_log, parallel
from nccl_doctor.log.counts import LogCounts, beyond
from nccl_doctor.log.ranks.rank_progress import RankProgress, of_programs
from nccl_doctor.log.readers.followed import GONE, Vanished

UNREAD = "unread"  # the kind of inputs that nothing here reads
BROKEN = "broken"  # of those that may hold a log and could not be read; no report on them is `healthy`
_FURTHER = 1 << 20  # bytes in which the log of a job begins behind what its script printed
ZEROS = "holds runs of zero bytes in the place of lines that were lost, as after a crash or a truncation"
_EVIDENCE_IN = "SELECT 1 FROM evidence WHERE file = ? AND line BETWEEN ? AND ? LIMIT 1"
_OF_STEPS = ("throughput_run", "scalar")  # what step lines fill
TOLD = 3  # problems that are told where nothing could be read


class LogReader(Protocol):
    """What reads the plain logs among the inputs."""

    def scan_file(self, path: Path, on_bytes: parallel.OnBytes | None = None) -> tuple[LogCounts, RankProgress]:
        """The counts of a file and what its end shows."""

    def vanished(self, read: Collection[Path]) -> Iterable[Vanished]:
        """Logs that were read at an earlier look and are no longer there; `read` are the files that were read at this one."""

    def close(self) -> None:
        """Called when everything was asked for."""


ReadAheadOf = Callable[[Iterable[tuple[Path, int]]], LogReader]


class _Log(NamedTuple):
    """A log that was scanned and not added yet."""

    head: bytes
    counts: LogCounts
    tail: RankProgress
    note: str | None  # why its stream ended early
    text: KeptStream | None = None  # what was scanned, where it is no plain file
    pasted: Pasted | None = None  # of a text that holds outputs of commands


class _Part(NamedTuple):
    """An input that was read, for a second look at some of them."""

    source: sources.Source
    row: Input
    formats: tuple[Format, ...]  # that of the file, or those inside a log
    log: job_log.LogPart | None


class InputReader:
    """Reads inputs one by one into `facts`, `logs` and `problems`."""

    def __init__(
        self,
        paths: Sequence[str],
        progress: Callable[[int, int], None] | None = None,
        read_ahead: ReadAheadOf = parallel.ReadAhead,
    ) -> None:
        """`read_ahead` makes what reads plain logs from their names and sizes."""
        self.facts = Facts()
        self.logs: list[job_log.LogPart] = []
        self.problems: list[str] = []
        self.interrupted: str | None = None  # after how much reading was asked to stop
        self.is_saved = False  # the only input is a saved fact base, which `facts` now is
        self._parts: dict[str, _Part] = {}  # what was read of each source
        self._pasted: dict[str, Pasted] = {}
        self._exports: dict[str, tuple[str, exports.Exported]] = {}  # kind and lines of exported logs
        self._led: set[str] = set()  # logs behind the output of another command
        self._named = {sources.one_line(path) for path in paths}
        self._trees = [path for path in paths if is_tree(path)]
        self._sources: list[sources.Source] = []
        self._foreign: dict[str, list[str]] = {}  # why files are not read -> their names
        self._sections: list[tuple[str, conversions.Section]] = []  # of logs, with output that may be unread
        for source in sources.expand([path for path in paths if path not in self._trees], registry.is_known):
            if isinstance(source, sources.InputProblem):
                self._add_problem(source)
            else:
                self._sources.append(source)
            if interruption.requested():
                break
        self._progress = ReadProgress(progress, sum(source.size or 0 for source in self._sources))
        self._ahead = read_ahead(
            (source.path, source.size or 0) for source in self._sources if source.plain and source.path
        )
        self._packed = PackedLogs(self._sources)

    @property
    def others(self) -> list[str]:
        """The names of the inputs that are no logs: captures and trees of nodes."""
        return [*self._trees, *(name for name, part in self._parts.items() if part.log is None)]

    @cached_property
    def _by_name(self) -> dict[str, tuple[int, list[job_log.LogPart]]]:
        """The place of each input that was read, and its logs: there may be as many jobs as inputs."""
        found: dict[str, tuple[int, list[job_log.LogPart]]] = {name: (at, []) for at, name in enumerate(self._parts)}
        for log in self.logs:
            found[log[0]][1].append(log)
        return found

    def facts_of(self, names: Collection[str]) -> Facts:
        """The facts of some of the inputs, as if nothing else had been named. Consumes the counters of their logs."""
        whole, self.facts = self.facts, Facts()
        mine = sorted((self._by_name[name][0], name) for name in {*names} if name in self._by_name)
        try:
            for path in self._trees:
                if path in names:
                    read_tree(self.facts, path)
            for _, name in mine:
                part = self._parts[name]
                if name in self._exports:
                    self.facts.number_lines(name, self._exports[name][1].source_line)
                notes = [self._read_again(known, part.source, part.log is not None)[1] for known in part.formats]
                if name in self._pasted:
                    self._pasted[name].read(name, self.facts)
                self.facts.add([part.row._replace(note=part.row.note or next(filter(None, notes), None))])
            job_log.add(self.facts, [log for _, name in mine for log in self._by_name[name][1]])
            return self.facts
        finally:
            self.facts = whole

    def read_all(self) -> None:
        """Read every input. Raises UsageProblem if nothing at all could be read."""
        for path in self._trees:
            read_tree(self.facts, path)
        for number, source in enumerate(self._sources):
            if interruption.requested() and source.size is not None:
                self._leave_unread(self._sources[number:])
                break
            self._read_source(source)
            if self.is_saved:
                break
        for gone in self._ahead.vanished({part.source.path for part in self._parts.values() if part.source.path}):
            self._keep_vanished(gone)
        self._ahead.close()
        self._packed.close()
        if interruption.requested() and self._has_nothing():
            raise KeyboardInterrupt
        if any((row.note or "").endswith(INTERRUPTED) for row in self.facts.rows(Input)):
            self.interrupted = f"interrupted after {self._progress}; what was not read may hold the cause"
            self.problems.append(self.interrupted)
        self._name_foreign()
        if self._has_nothing() and (self.problems or not self._sources):
            text = "nothing to read: name a log, a folder or - for standard input"
            raise UsageProblem("; ".join(self.problems[:TOLD]) or text)

    def _name_foreign(self) -> None:
        """Say which files nothing here reads, those of one kind together."""
        for reason, names in self._foreign.items():
            named = f"{names[0]} and {len(names) - 1:,} more" if len(names) > 1 else names[0]
            self.problems.append(f"{named}: {reason}")
            self.facts.add([Input(named, UNREAD, 0, 0, 0, 0, reason)])

    def _leave_unread(self, rest: Sequence[sources.Source]) -> None:
        """Note that reading was interrupted before these sources."""
        more = f" and {len(rest) - 1} more" if len(rest) > 1 else ""
        self.facts.add([Input(f"{rest[0].name}{more}", BROKEN, 0, 0, 0, 0, f"not read: {INTERRUPTED}")])

    def name_unread_sections(self) -> list[str]:
        """Add and return what says that sections of logs are not read: those of which no fact has evidence."""
        unread: dict[tuple[str, str], list[conversions.Section]] = {}  # file and advice -> its sections
        for name, section in self._sections:
            last = section.last if section.last is not None else sys.maxsize
            if not self.facts.query(_EVIDENCE_IN, (name, section.first + 1, last)):
                unread.setdefault((name, section.advice), []).append(section)
        found = []
        for (name, advice), (first, *others) in unread.items():
            more = f" and of {counted(len(others), 'more command')}" if others else ""
            found.append((f"{name}:{first.first}", f"the output of `{first.command}`{more} is not read; {advice}"))
        self.facts.add([Input(name, UNREAD, 0, 0, 0, 0, reason) for name, reason in found])
        return [f"{name}: {reason}" for name, reason in found]

    def _has_nothing(self) -> bool:
        filled = any(rows for name, rows in self.facts.counts().items() if name not in ("input", "evidence"))
        return not self.logs and not self._trees and not filled

    def _read_source(self, source: sources.Source) -> None:
        self._progress.begin(source)
        try:
            with sources.open_stream(self._progress.metered(source)) as stream:
                log = self._read_stream(source, stream)
        except sources.InputProblem as problem:
            self._add_problem(problem)
            return
        finally:
            self._progress.end()
        if log is not None:
            self._keep_log(source, log)

    def _add_problem(self, problem: sources.InputProblem) -> None:
        """Keep why an input was not read; one that could hold a log counts as broken."""
        if isinstance(problem, sources.ForeignInput):
            self._foreign.setdefault(problem.reason, []).append(problem.name)
        else:
            self.problems.append(str(problem))
            self.facts.add([Input(problem.name, BROKEN, 0, 0, 0, 0, problem.reason)])

    def _read_stream(self, source: sources.Source, stream: Readable) -> _Log | None:
        """Add the facts of an input with a format of its own; scan a log and return it."""
        head = stream.read(parallel.HEAD)
        kind = sources.sniff(head, source.name)
        format_ = registry.recognise(head)
        if format_ is not None and (format_.leads or kind == "json"):
            further = read_ahead(stream, _FURTHER)
            stream = Joined(further, stream)
            if registry.goes_on(format_, head + further):
                self._led.add(source.name)
                format_ = None
        if format_ is not None and registry.is_logged(format_, head):
            format_ = None
        if format_ is not None and not (kind in READABLE and kind != "json" and is_pasted(head)):
            self._read_format(format_, source, RejoinedStream(head, stream))
            return None
        if kind == "sqlite" and len(self._sources) == 1 and source.path is not None:
            self.facts, self.is_saved = Facts.open(source.path), True
            return None
        if kind not in READABLE:
            raise sources.ForeignInput(source.name, sources.why_foreign(kind))
        export = None if source.plain else exports.recognise(head)
        if source.plain:
            with sources.open_stream(source) as again:
                export = partials.recognise_later(head, again)
        rejoined = RejoinedStream(head, stream, stoppable=source.size is not None)
        begun = read_head(rejoined, pastes.LONGEST + 1) if export is None and pastes.may_hold(head) else b""
        pasted = Pasted.found(begun) if begun else None
        if format_ is not None and not pastes.is_session(head) and (pasted is None or not pasted.outputs):
            self._read_format(format_, source, RejoinedStream(begun, rejoined), rejoined)
            return None
        if pasted is not None:
            if rejoined.problem:
                self.problems.append(f"{source.name}: {rejoined.problem}")
            self._pasted[source.name] = pasted
            kept = KeptStream(io.BytesIO(pasted.rest))
            return _Log(pasted.rest[: parallel.HEAD], *parallel.scan(kept), rejoined.problem, kept, pasted)
        if export is None and source.plain and source.path is not None:
            self._progress.begin(source)
            with suppress(OSError):  # removed since it was opened, or its disk fails: `stream` gives what there is
                return self._scan_file(head, source, source.path)
            self._progress.begin(source)
        if export is None and (packed := self._packed.log(source)) is not None:
            if packed.problem:
                self.problems.append(f"{source.name}: {packed.problem}")
            return _Log(head, *packed)
        lines: Readable = Joined(begun, rejoined) if export is None else self._exported(source, rejoined, export)
        if export in exports.COLLECTED:
            opened = lines.read(parallel.HEAD)
            lines = RejoinedStream(opened, lines)
            if (format_ := registry.recognise(opened)) is not None:
                self._read_format(format_, source, lines)
                return None
        kept = KeptStream(lines)
        counted = parallel.scan(kept)
        note = rejoined.problem
        if source.name in self._exports and (problem := self._exports[source.name][1].problem) is not None:
            note = note or problem
        if note:
            self.problems.append(f"{source.name}: {note}")
        return _Log(head, *counted, note, kept)

    def _scan_file(self, head: bytes, source: sources.Source, path: Path) -> _Log:
        counts, tail = self._ahead.scan_file(path, self._progress.advance)
        if not interruption.requested() or counts.bytes >= (source.size or 0):
            return _Log(head, counts, tail, None)
        self._progress.begin(source)
        self._progress.advance(counts.bytes)
        return _Log(head, counts, tail, f"read only in part: {INTERRUPTED}")

    def _keep_vanished(self, gone: Vanished) -> None:
        row = log_input(gone.name, gone.counts, [], GONE)
        part = gone.name, gone.counts, gone.end
        source = sources.Source(gone.name, Path(gone.name), None, False, lambda: open_regular(gone.name))
        self.logs.append(part)
        self.facts.add([row])
        self._parts[gone.name] = _Part(source, row, (), part)
        self.problems.append(f"{gone.name}: {GONE}")

    def _exported(self, source: sources.Source, stream: Readable, kind: str) -> exports.Exported:
        """The lines inside an exported log; evidence of it names the lines of the file."""
        lines = exports.Exported(stream, kind)
        self.facts.number_lines(source.name, lines.source_line)
        self._exports[source.name] = kind, lines
        return lines

    def _read_again(
        self, format_: Format, source: sources.Source, is_log: bool, text: KeptStream | None = None
    ) -> tuple[Reading, str | None]:
        """Add the facts that a format holds in a file, or inside a log, and say why the file could not be opened again.

        `text` are the lines of the log, if they were kept.
        """
        read = registry.read_inside if is_log else registry.read_file
        try:
            if text is not None and (again := text.again()) is not None:
                return read(format_, RejoinedStream(b"", again), source.name, self.facts), None
            if source.name in self._pasted:
                return read(format_, io.BytesIO(self._pasted[source.name].rest), source.name, self.facts), None
            with sources.open_stream(source) as stream:
                lines: Readable = RejoinedStream(b"", stream)
                if source.name in self._exports:
                    lines = exports.Exported(lines, self._exports[source.name][0])
                return read(format_, lines, source.name, self.facts), None
        except sources.InputProblem as problem:
            return Reading(0, 0, None), f"read only in part: {problem.reason}"

    def _read_format(
        self, format_: Format, source: sources.Source, stream: RejoinedStream, inner: RejoinedStream | None = None
    ) -> None:
        """Add the facts of a file; `inner` is the stream that `stream` reads from where that one may break off, too."""
        reading = registry.read_file(format_, stream, source.name, self.facts)
        note = reading.note or stream.problem or (inner.problem if inner is not None else None)
        row = Input(source.name, format_.kind, stream.bytes, reading.lines, 0, reading.understood, note)
        self.facts.add([row])
        self._parts[source.name] = _Part(source, row, (format_,), None)
        if note:
            self.problems.append(f"{source.name}: {note}")

    def _keep_log(self, source: sources.Source, log: _Log) -> None:
        """Add what other formats inside a log hold, and keep the log for `job_log.add`."""
        inside = log.pasted.read(source.name, self.facts) if log.pasted is not None else []
        pieces = len(inside)
        note = log.note or beyond(log.counts) or (ZEROS if parallel.LOST in log.counts.marks else None)
        for format_ in registry.within(log.counts.marks, log.head, led=source.name in self._led):
            reading, problem = self._read_again(format_, source, True, log.text)
            inside.append((format_, reading))
            note = note or problem
        row = log_input(source.name, log.counts, inside, note)
        row, inside = self._read_rest(source, log, row, inside)
        useless = not row.understood and not log.tail.is_labelled and source.name in self._named - {"-", *self._exports}
        if useless and (reason := sources.no_log(log.head)):
            self._add_problem(sources.ForeignInput(source.name, reason))
            return
        if source.name not in self._exports:
            text = log.head.decode("utf-8", "replace")
            self._sections += [(source.name, section) for section in conversions.sections(text)]
        part = source.name, log.counts, of_programs(log.head, log.tail)
        self.logs.append(part)
        self.facts.add([row])
        self._parts[source.name] = _Part(source, row, tuple(format_ for format_, _ in inside[pieces:]), part)
        if row.note and not log.note:
            self.problems.append(f"{source.name}: {row.note}")

    def _read_rest(
        self, source: sources.Source, log: _Log, row: Input, inside: list[tuple[Format, Reading]]
    ) -> tuple[Input, list[tuple[Format, Reading]]]:
        """Search a log for numbers with names of their own, where no reader could use it or knows its step lines."""
        if self.facts.query("SELECT 1 FROM comm_op LIMIT 1") or any(
            self.facts.query(f"SELECT 1 FROM {table} WHERE file = ? LIMIT 1", (row.path,)) for table in _OF_STEPS
        ):
            return row, inside
        is_other = row.kind == "training-steps" or (row.kind == "text" and not row.understood)
        for format_ in registry.of_other_text() if is_other else registry.of_other_loops(log.counts.marks):
            reading, problem = self._read_again(format_, source, True, log.text)
            if reading.understood:
                inside = [(format_, reading)] if is_other else [*inside, (format_, reading)]
                row = log_input(source.name, log.counts, inside, row.note or problem)
                if is_other and 4 * reading.understood > reading.lines:
                    break  # a table of which the next reader would see the numbers alone
        return row, inside


def log_input(name: str, counts: LogCounts, inside: Sequence[tuple[Format, Reading]], note: str | None) -> Input:
    """What a log is: one without NCCL lines is named after the format inside it that a reader could use."""
    used = [(format_, reading) for format_, reading in inside if reading.understood]
    note = note or next((reading.note for _, reading in used if reading.note), None)
    if counts.nccl_lines:
        return Input(name, "nccl-log", counts.bytes, counts.lines, counts.nccl_lines, counts.understood, note)
    kind = used[0][0].kind if used else "job-log" if counts.events else "text"
    understood = sum(reading.understood for _, reading in used) or sum(event.n for event in counts.events.values())
    return Input(name, kind, counts.bytes, counts.lines, 0, min(understood, counts.lines), note)
