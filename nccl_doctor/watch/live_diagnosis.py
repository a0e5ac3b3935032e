"""Live findings: turns the records of the last minutes into facts and runs the rules that read recordings."""

import io
import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from nccl_doctor.derive.registry import derive_all, steps
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input
from nccl_doctor.facts.tables.recorded import Spinning
from nccl_doctor.formats.recording import recorded_files
from nccl_doctor.rules import engine, loader
from nccl_doctor.watch.bands import Bands
from nccl_doctor.watch.series import dicts, number
from nccl_doctor.watch.state import KINDS, State, record_time, spinning

WINDOW = 180.0  # seconds of records that the rules see
SAMPLES = 60  # records per kind and node that the rules see; more cost CPU time and change no answer
ALL_SAMPLES = 320  # records per kind of all nodes, where there are many; at least FEWEST of each
FEWEST = 8
SOON, LATEST = 10.0, 60.0  # seconds from a run to the next one without a change
TABLES = frozenset(
    {"gpu_use", "gpu_throttle", "gpu_counter", "gpu_peer", "gpu_process", "port_use", "port_error", "host_use", "rank_use",
     "spinning"}
)  # fmt: skip


@dataclass
class Episode:
    """A finding, from when it was first seen until it is over."""

    finding: Finding
    first: float  # seconds since the epoch
    last: float
    over: bool = False


class Kept:
    """A record of the window; its line is made when a run of the rules first needs it."""

    __slots__ = ("_line", "at", "number", "record")

    def __init__(self, at: float, number: int, record: dict[str, Any]) -> None:
        self.at, self.number, self.record = at, number, record
        self._line: str | None = None

    def line(self, kind: str) -> str:
        """Returns the record as `record` would have written it."""
        if self._line is None:
            self._line = json.dumps({"kind": kind, **_sanitized(self.record, 3)}, separators=(",", ":"))
        return self._line


class LiveDiagnosis:
    """Keeps a window of records and the history of the findings in it."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._feeds: dict[tuple[str, str], deque[Kept]] = {}
        self._newest = 0.0
        self._bands: dict[tuple[str, str], Bands] = {}
        self._changed_at: float | None = None  # when a fact that rules ask about changed last
        self.ran_at: float | None = None  # time of the newest record in the last run
        self._spins: list[tuple[str, int]] = []
        self._of_logs: list[Finding] = []
        self.episodes: list[Episode] = []

    def add_record(self, record: dict[str, Any], received_at: float | None = None) -> None:
        """Add a record that arrived at `received_at` (None: when it was sampled); drop those older than the window."""
        at = received_at if received_at is not None else record_time(record)
        if at is None or record.get("kind") not in KINDS:
            return
        self._newest = max(self._newest, at)
        feed = self._feeds.setdefault((record["kind"], str(record.get("hostname"))), deque())
        feed.append(Kept(at, feed[-1].number + 1 if feed else 0, record))
        bands = self._bands.setdefault((record["kind"], str(record.get("hostname"))), Bands())
        if bands.add(record):
            self._changed_at = self._newest
        while feed[0].at < at - self._window:
            feed.popleft()

    def set_log_findings(self, findings: list[Finding]) -> None:
        """Take what was found in the logs of the job; it is shown beside what the records show."""
        self._of_logs, self._changed_at = findings, self._newest

    def prepare(self) -> None:
        """Load what the first run of the rules needs, while there is nothing to judge yet."""
        loader.load_rules()
        steps()

    def diagnose(self, state: State) -> list[Finding]:
        """Run the rules on the window and return the findings in report order."""
        return self.run_rules(self.spinning_nodes(state), state.now)

    def spinning_nodes(self, state: State) -> list[tuple[str, int, int, float]]:
        """Returns nodes whose GPUs spin in a collective: name, spinning GPUs, all GPUs, highest share of the power limit."""
        return [
            (node.name, result[0], len(node.gpus), result[1])
            for node in state.nodes.values() if node.gone is None and (result := spinning(node)) is not None
        ]  # fmt: skip

    def run_rules(self, spins: list[tuple[str, int, int, float]], now: float) -> list[Finding]:
        """Like `diagnose`, for a worker thread: does not read the state, which the screen changes meanwhile."""
        self.ran_at = self._newest
        facts = Facts()
        for kind in KINDS:
            lines = self._lines(kind)
            if lines:
                stream = io.BytesIO(("\n".join(lines) + "\n").encode())
                reading = recorded_files.read_format(stream, f"live {kind}", facts)
                facts.add([Input(f"live {kind}", "recording", 0, reading.lines, 0, reading.understood, None)])
        facts.mark_covered("spinning")
        for name, count, gpus, share in spins:
            text = f"{count} of {gpus} GPUs at 95 % or more, at most {share:.0%} of their power limit, no traffic"
            facts.add([Spinning(name, count, gpus, share, 60.0, facts.evidence(f"live {name}", 1, text))])
        derive_all(facts)
        rules = [rule for rule in loader.load_rules() if TABLES.intersection(rule.needs)]
        findings = diagnose.diagnose(facts, engine.ask_all(rules, facts)).findings
        known = {_subject(finding) for finding in findings}
        findings += [finding for finding in self._of_logs if _subject(finding) not in known]
        self._remember(findings, now)
        return findings

    def due(self, state: State) -> bool:
        """Returns whether to run the rules now: after a change at once, then ever less often while the window fills with it.

        Between two runs, what was found last still holds.
        """
        spins = [(name, count) for name, count, _, _ in self.spinning_nodes(state)]
        if spins != self._spins:
            self._spins, self._changed_at = spins, self._newest
        if self.ran_at is None or self._changed_at is None or self._changed_at > self.ran_at:
            return True
        if self._newest - self.ran_at >= min(max((self.ran_at - self._changed_at) / 2, SOON), LATEST):
            return True
        for episode in self.episodes:
            if not episode.over:
                episode.last = state.now
        return False

    def _lines(self, kind: str) -> list[str]:
        """The window as lines of `record`: at most SAMPLES records of each node, evenly spread, and all records of down ports."""
        lines = []
        nodes = sum(feed_kind == kind for feed_kind, _ in list(self._feeds))
        most = max(min(SAMPLES, ALL_SAMPLES // max(nodes, 1)), FEWEST)
        for (feed_kind, _), feed in list(self._feeds.items()):
            if feed_kind != kind:
                continue
            records = [kept for kept in list(feed) if kept.at >= self._newest - self._window]
            step = -(-len(records) // most)
            lines += [
                kept.line(kind) for kept in records
                if kept.number % step == 0 or (kind == "port" and _has_down_port(kept.record))
            ]  # fmt: skip
        return lines

    def _remember(self, findings: list[Finding], now: float) -> None:
        """Update the episodes: prolong those still found, end the others, begin new ones."""
        by_subject = {_subject(finding): finding for finding in findings}
        for episode in self.episodes:
            if episode.over:
                continue
            finding = by_subject.pop(_subject(episode.finding), None)
            if finding is None:
                episode.over = True
            else:
                episode.finding, episode.last = finding, now
        self.episodes += [Episode(finding, now, now) for finding in by_subject.values()]
        del self.episodes[:-500]


def _subject(finding: Finding) -> tuple[str, ...]:
    """Returns what a finding is about, without its numbers, which change from one run to the next."""
    about = (str(finding.values.get(name)) for name in ("gpu", "port", "rank", "who"))
    return (finding.rule, finding.hosts, *about)


def _sanitized(value: Any, depth: int) -> Any:
    """Returns the parts of a record that `record` could have written: a node may send anything."""
    if isinstance(value, dict):
        return {k: _sanitized(v, depth - 1) for k, v in value.items() if depth and _has_type(k, v)}
    if isinstance(value, list):
        return [_sanitized(item, depth) for item in value if isinstance(item, dict)]
    return value


def _has_type(key: str, value: Any) -> bool:
    """Returns whether a value has the type that its key requires: list, object or scalar."""
    if key in ("gpus", "ports", "processes"):
        return isinstance(value, list)
    if key in ("host", "errors"):
        return isinstance(value, dict)
    return value is None or isinstance(value, str) or number(value) is not None


def _has_down_port(record: dict[str, Any]) -> bool:
    return any(port.get("state") not in ("ACTIVE", "UP", None) for port in dicts(record.get("ports")))
