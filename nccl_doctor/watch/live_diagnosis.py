"""Live findings: the last minutes of records become facts, and the rules that read recordings are asked."""

import io
import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from nccl_doctor.derive.job import derive
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input
from nccl_doctor.facts.tables.recorded import Spinning
from nccl_doctor.formats.recording import recorded_files
from nccl_doctor.rules import engine, loader
from nccl_doctor.watch.state import KINDS, State, moment, number, spinning

WINDOW = 180.0  # seconds of records that are judged together
SAMPLES = 60  # of each kind and node that are judged; more cost processor time and say the same
TABLES = frozenset(
    {"gpu_use", "gpu_throttle", "gpu_counter", "gpu_peer", "gpu_process", "port_use", "port_error", "host_use", "rank_use",
     "spinning"}
)  # fmt: skip


@dataclass
class Episode:
    """A finding from the moment it was first seen until it was gone."""

    finding: Finding
    first: float  # seconds since the epoch
    last: float
    over: bool = False


class Judge:
    """Keeps a window of records and the history of what was found in it."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._feeds: dict[tuple[str, str], deque[tuple[float, dict[str, Any]]]] = {}
        self._newest = 0.0
        self.episodes: list[Episode] = []

    def take(self, record: dict[str, Any], came: float | None = None) -> None:
        """Remember a record that came at this moment, or when it was made; older ones than the window go."""
        at = came if came is not None else moment(record)
        if at is None or record.get("kind") not in KINDS:
            return
        self._newest = max(self._newest, at)
        feed = self._feeds.setdefault((record["kind"], str(record.get("hostname"))), deque())
        feed.append((at, record))
        while feed[0][0] < at - self._window:
            feed.popleft()

    def ask(self, state: State) -> list[Finding]:
        """What the rules say now, in the order of the diagnosis."""
        return self.judge(self.spins(state), state.now)

    def spins(self, state: State) -> list[tuple[str, int, int, float]]:
        """Nodes whose GPUs spin in a collective: name, how many, of how many, highest share of the power limit."""
        return [
            (node.name, found[0], len(node.gpus), found[1])
            for node in state.nodes.values() if node.gone is None and (found := spinning(node)) is not None
        ]  # fmt: skip

    def judge(self, spins: list[tuple[str, int, int, float]], now: float) -> list[Finding]:
        """The same for a worker: it reads no state that the screen changes meanwhile."""
        facts = Facts()
        for kind in KINDS:
            lines = self._lines(kind)
            if lines:
                stream = io.BytesIO(("\n".join(lines) + "\n").encode())
                reading = recorded_files.read_format(stream, f"live {kind}", facts)
                facts.add([Input(f"live {kind}", "recording", 0, reading.lines, 0, reading.understood, None)])
        facts.look("spinning")
        for name, count, gpus, share in spins:
            text = f"{count} of {gpus} GPUs at 95 % or more, at most {share:.0%} of their power limit, no traffic"
            facts.add([Spinning(name, count, gpus, share, 60.0, facts.evidence(f"live {name}", 1, text))])
        derive(facts)
        asked = [rule for rule in loader.load_rules() if TABLES.intersection(rule.needs)]
        findings = diagnose.diagnose(facts, engine.ask_all(asked, facts)).findings
        self._remember(findings, now)
        return findings

    def _lines(self, kind: str) -> list[str]:
        """The window as `record` would have written it: of each node SAMPLES, evenly spread, and each port that was down."""
        lines = []
        for (of, _), feed in list(self._feeds.items()):
            if of != kind:
                continue
            records = [record for came, record in list(feed) if came >= self._newest - self._window]
            step = -(-len(records) // SAMPLES)
            lines += [
                json.dumps({"kind": kind, **_kept(record, 3)}, separators=(",", ":"))
                for number, record in enumerate(records) if number % step == 0 or (kind == "port" and _down(record))
            ]  # fmt: skip
        return lines

    def _remember(self, findings: list[Finding], now: float) -> None:
        seen = {_subject(finding): finding for finding in findings}
        for episode in self.episodes:
            if episode.over:
                continue
            found = seen.pop(_subject(episode.finding), None)
            if found is None:
                episode.over = True
            else:
                episode.finding, episode.last = found, now
        self.episodes += [Episode(finding, now, now) for finding in seen.values()]
        del self.episodes[:-500]


def _subject(finding: Finding) -> tuple[str, ...]:
    """What a finding is about, without its figures, which change from one look to the next."""
    about = (str(finding.values.get(name)) for name in ("gpu", "port", "rank", "who"))
    return (finding.rule, finding.hosts, *about)


def _kept(value: Any, depth: int) -> Any:
    """What `record` could have written of a record: a node may send anything."""
    if isinstance(value, dict):
        return {k: _kept(v, depth - 1) for k, v in value.items() if depth and _fits(k, v)}
    if isinstance(value, list):
        return [_kept(one, depth) for one in value if isinstance(one, dict)]
    return value


def _fits(key: str, value: Any) -> bool:
    """Lists and objects stand under the names at which they are expected, and nothing else does."""
    if key in ("gpus", "ports", "processes"):
        return isinstance(value, list)
    if key in ("host", "errors"):
        return isinstance(value, dict)
    return value is None or isinstance(value, str) or number(value) is not None


def _down(record: dict[str, Any]) -> bool:
    ports = record.get("ports")
    return isinstance(ports, list) and any(
        isinstance(one, dict) and one.get("state") not in ("ACTIVE", "UP", None) for one in ports
    )
