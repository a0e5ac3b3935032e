"""Live findings: the last minutes of records become facts, and the rules that read recordings are asked."""

import io
import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from nccl_doctor import diagnose, rules
from nccl_doctor.derive import derive
from nccl_doctor.facts import Facts
from nccl_doctor.report import Finding
from nccl_doctor.sources import recording_files
from nccl_doctor.tables import Input
from nccl_doctor.tables.recorded import Spinning
from nccl_doctor.watch.state import KINDS, State, moment, spinning

WINDOW = 180.0  # seconds of records that are judged together
TABLES = frozenset(
    {
        "gpu_use",
        "gpu_throttle",
        "gpu_counter",
        "gpu_peer",
        "gpu_process",
        "port_use",
        "port_error",
        "host_use",
        "rank_use",
        "spinning",
    }
)


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
        self._records: deque[tuple[float, dict[str, Any]]] = deque()
        self.episodes: list[Episode] = []

    def take(self, record: dict[str, Any]) -> None:
        """Remember a record; those that are older than the window go."""
        at = moment(record)
        if at is None or record.get("kind") not in KINDS:
            return
        self._records.append((at, record))
        while self._records and self._records[0][0] < at - self._window:
            self._records.popleft()

    def ask(self, state: State) -> list[Finding]:
        """What the rules say now, in the order of the diagnosis. Slow enough to be called in a worker."""
        facts = Facts()
        for kind in KINDS:
            lines = [
                json.dumps(record, separators=(",", ":")) for _, record in list(self._records) if record["kind"] == kind
            ]
            if lines:
                stream = io.BytesIO(("\n".join(lines) + "\n").encode())
                reading = recording_files.read(stream, f"live {kind}", facts)
                facts.add([Input(f"live {kind}", "recording", 0, reading.lines, 0, reading.understood, None)])
        facts.look("spinning")
        for node in list(state.nodes.values()):
            found = spinning(node)
            if found is not None:
                count, share = found
                text = f"{count} of {len(node.gpus)} GPUs at 95 % or more, at most {share:.0%} of their power limit, no traffic"
                facts.add(
                    [
                        Spinning(
                            node.name, count, len(node.gpus), share, 60.0, facts.evidence(f"live {node.name}", 1, text)
                        )
                    ]
                )
        derive(facts)
        asked = [rule for rule in rules.load() if TABLES.intersection(rule.needs)]
        findings = diagnose.diagnose(facts, rules.ask_all(asked, facts)).findings
        self._remember(findings, state.now)
        return findings

    def _remember(self, findings: list[Finding], now: float) -> None:
        seen = {(finding.rule, finding.hosts, finding.message.split(" ")[0]): finding for finding in findings}
        for episode in self.episodes:
            if episode.over:
                continue
            key = (episode.finding.rule, episode.finding.hosts, episode.finding.message.split(" ")[0])
            found = seen.pop(key, None)
            if found is None:
                episode.over = True
            else:
                episode.finding, episode.last = found, now
        self.episodes += [Episode(finding, now, now) for finding in seen.values()]
        del self.episodes[:-500]
