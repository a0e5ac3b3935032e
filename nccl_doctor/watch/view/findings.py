"""The table of findings: those of one rule are one row over all nodes and devices that show it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from nccl_doctor.app.fleet import most_nodes
from nccl_doctor.diagnosis.diagnose import fold_hosts
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.watch.live_diagnosis import Episode
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, Cell, Column, Look, cell

STYLES = {"error": BAD, "warning": FAIR, "note": "cyan"}
_MOST = 1 << 18  # nodes of one finding
SEVERITY_RANKS = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Group:
    """The findings of one rule that are current, or those that are over."""

    episodes: tuple[Episode, ...]  # the newest first

    @property
    def finding(self) -> Finding:
        """The newest finding."""
        return self.episodes[0].finding

    @property
    def over(self) -> bool:
        return self.episodes[0].over

    @property
    def first(self) -> float:
        return min(episode.first for episode in self.episodes)

    @property
    def last(self) -> float:
        return max(episode.last for episode in self.episodes)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes that show it."""
        return tuple(dict.fromkeys(name for one in self.episodes for name in expand(one.finding.hosts)))

    @property
    def message(self) -> str:
        """What the rule says; of several devices, of the newest, with the number of the others."""
        others = len({episode.finding.message for episode in self.episodes}) - 1
        return self.finding.message + (f" (and {others} more like it)" if others else "")


@lru_cache(256)
def expand(hosts: str) -> tuple[str, ...]:
    """Returns the names in a folded set of nodes."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if most_nodes(hosts) > _MOST:  # the name of one host, which anybody may have invented
        return (hosts,)
    try:
        return tuple(str(node) for node in NodeSet(hosts, resolver=RESOLVER_NOGROUP)) or (hosts,)
    except NodeSetException:
        return (hosts,)


def fold(episodes: Iterable[Episode]) -> list[Group]:
    """Returns one group a rule: current before over, then by severity, then the newest first."""
    by_rule: dict[tuple[str, str, bool], list[Episode]] = {}
    for episode in sorted(episodes, key=lambda one: -one.first):
        by_rule.setdefault((episode.finding.name, episode.finding.severity, episode.over), []).append(episode)
    return sorted((Group(tuple(ones)) for ones in by_rule.values()), key=lambda g: (g.over, severity_rank(g), -g.first))


def severity_rank(group: Group) -> int:
    return SEVERITY_RANKS.get(group.finding.severity, 3)


def group_key(group: Group) -> tuple[str, str, bool]:
    return group.finding.name, group.finding.severity, group.over


def _severity(group: Group, look: Look) -> Cell:
    if group.over:
        return cell("over", DIM)
    return cell(group.finding.severity, STYLES.get(group.finding.severity, ""))


FINDINGS = (
    Column("severity", "severity", 8, _severity, severity_rank, letter="s"),
    Column("first", "since", 8, lambda g, _: cell(clock(g.first)), lambda g: g.first, letter="i"),
    Column("last", "until", 8, lambda g, _: cell(clock(g.last) if g.over else "now", DIM if g.over else ""), lambda g: g.last, 1,
           letter="u"),
    Column("hosts", "where", 8, lambda g, _: cell(fold_hosts(g.nodes) or None), lambda g: fold_hosts(g.nodes), 2, 20, "w"),
    Column("name", "finding", 22, lambda g, _: cell(g.finding.name), lambda g: g.finding.name, 0, 30, "f"),
    Column("message", "message", 20, lambda g, _: cell(g.message), lambda g: g.message, 3, 300, "m"),
)  # fmt: skip


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def full_text(group: Group) -> str:
    """Returns all that is known of a finding: message of each node, why, fix and evidence."""
    finding = group.finding
    seen = f"since {clock(group.first)}" + (f", over at {clock(group.last)}" if group.over else "")
    messages = list(dict.fromkeys((one.finding.hosts, one.finding.message) for one in group.episodes))
    said = "\n".join(f"{hosts}  {message}" if hosts else message for hosts, message in messages[:20])
    if len(messages) > 20:
        said += f"\nand {len(messages) - 20} more"
    places = [place for one in group.episodes for place in one.finding.evidence][:6]
    evidence = "\n".join(f"  {place.file}:{place.line} {place.text[:300]}" for place in places)
    return (
        f"{finding.severity}, {finding.confidence}, {finding.rule}, {seen}\n{said}\n\n"
        f"Why\n  {finding.why}\n\nNext\n  {finding.fix}\n\nEvidence\n{evidence}\n"
    )
