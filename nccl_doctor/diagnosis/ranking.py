"""The order of the diagnosis: causes before symptoms, classes of causes, what explains what, and among equals the earlier one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from nccl_doctor.common.levels import CONFIDENCES, SEVERITIES
from nccl_doctor.common.timestamps import Moment
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.rules.schema import Rule
from nccl_doctor.rules.symptoms import with_including

_ROLES = {"cause": 0, "context": 1, "symptom": 2}
_NOTE = 4
_ENDED = 3  # a scheduler that ends the job: behind everything that went wrong before
_SLACK = 60.0  # seconds by which clocks of nodes, and dmesg's of one node, may be apart
_REACH = 6 * 3600.0  # seconds after which an Xid accounts for no further error

_SPEED = ("input", "performance")  # groups of rules that say why a job is slow, not why it failed
_OF_ONE_RANK = ("horovod-straggler", "trace-straggler", "inspector-late-rank", "gpu-straggler")


class Found(NamedTuple):
    """A finding with what decides its place."""

    rule: Rule
    finding: Finding
    line: int  # the first line of its evidence
    first: Moment | None  # the earliest and the latest moment of its evidence
    last: Moment | None
    ranks: frozenset[int] = frozenset()
    refs: frozenset[int] = frozenset()  # its evidence
    jobs: frozenset[str] = frozenset()  # where the accounting of a scheduler lists several
    doubt: int = 0  # of the surest finding of its jobs, so that a job whose end is certain comes before another one
    leads: frozenset[int] = frozenset()  # evidence of symptoms that it came before, by the clocks of their files
    attempt: int = 0  # how often the job had begun again before its first evidence
    is_reason: bool = False  # a symptom that counts as a cause
    elsewhere: bool = False  # all its evidence says that something else failed: a peer, or what was waited for
    is_aside: bool = False  # a warning that is not why the job failed, and stands behind what ended that


def span(moments: Iterable[Moment | None]) -> tuple[Moment | None, Moment | None]:
    """The earliest and the latest of these, on the clock that most of them have."""
    known = [moment for moment in moments if moment is not None]
    local = [moment for moment in known if moment.clock == "local"]
    same = local if 2 * len(local) >= len(known) else [moment for moment in known if moment.clock == "utc"]
    return (min(same, key=_seconds), max(same, key=_seconds)) if same else (None, None)


def _strength(found: Found) -> tuple[int, ...]:
    finding = found.finding
    role = _ROLES["cause" if found.is_reason else "symptom" if found.is_aside else finding.role]
    if finding.role == "symptom" and found.rule.group == "scheduler":
        role = _ENDED
    sure = CONFIDENCES.index(finding.confidence) // 2  # likely counts as certain: the class of the cause says more
    if finding.severity == "note":
        return _NOTE, role, sure
    return role, SEVERITIES.index(finding.severity), sure


def _class(found: Found) -> tuple[int, ...]:
    """What a finding is sorted by first.

    Jobs of an accounting of which one thing is sure, what was there before a restart, causes that were seen here before those
    concluded from what others failed to do, special rules before messages of programs, then the class of the rule.
    """
    elsewhere = found.elsewhere and found.finding.role == "cause"
    return *_strength(found), found.doubt, found.attempt, int(elsewhere), int(found.rule.unclaimed), found.rule.order


def order(items: Sequence[Found]) -> list[Finding]:
    """Causes first, then what nothing explains; an explained finding is placed under the first finding that explains it."""
    items = _with_doubts(_with_reasons(_without_guesses(_without_slowness(items))))
    accounts = _Accounts(items)
    ranked = sorted(items, key=accounts.place)
    under = _parents(ranked, accounts)
    children: dict[int, list[Finding]] = defaultdict(list)
    for item in ranked:
        if id(item.finding) in under:
            children[id(under[id(item.finding)].finding)].append(item.finding)
    ordered: list[Finding] = []

    def put(finding: Finding) -> None:
        ordered.append(finding)
        for child in children[id(finding)]:
            put(child)

    for _, group in groupby((item for item in ranked if id(item.finding) not in under), key=_class):
        for root in _by_time(list(group)):
            put(root.finding)
    return ordered


def _without_slowness(items: Sequence[Found]) -> Sequence[Found]:
    """The findings; where something failed, a warning that says why the job was slow is no cause of that."""
    if not any(_is_error(item, "symptom") and item.rule.group != "scheduler" for item in items):
        return items
    return [
        item._replace(is_aside=True) if item.rule.group in _SPEED and item.finding.severity == "warning" else item
        for item in items
    ]


def _without_guesses(items: Sequence[Found]) -> Sequence[Found]:
    """The findings; where something failed, a warning that may be wrong and accounts for nothing known is no cause of that."""
    errors = [item for item in items if _is_error(item, "symptom") and item.rule.group != "scheduler"]
    if not errors:
        return items
    accounts = _Accounts(items)

    def is_guess(item: Found) -> bool:
        finding = item.finding
        return (
            (finding.severity, finding.confidence, finding.role) == ("warning", "possible", "cause")
            and not item.leads
            and not any(accounts(item.rule.id, error.rule.id) for error in errors if not error.rule.fallback)
        )

    return [item._replace(is_aside=True) if is_guess(item) else item for item in items]


def _with_reasons(items: Sequence[Found]) -> Sequence[Found]:
    """The findings; where a job failed and began again before the first cause, what accounts for that failure is its reason."""
    first = min((item.attempt for item in items if _is_error(item, "cause")), default=0)
    if not first:
        return items
    accounts = _Accounts(items)

    def is_reason(item: Found) -> bool:
        same = (other.rule.id for other in items if other.attempt == item.attempt)
        return item.attempt < first and _is_error(item, "symptom") and any(accounts(item.rule.id, id_) for id_ in same)

    return [item._replace(is_reason=True) if is_reason(item) else item for item in items]


def _with_doubts(items: Sequence[Found]) -> Sequence[Found]:
    """The findings, each with how sure the surest of its job is, where there are several jobs."""
    surest: dict[str, int] = {}
    for item in items:
        confidence = CONFIDENCES.index(item.finding.confidence)
        for job in item.jobs if item.finding.severity == "error" else ():
            surest[job] = min(surest.get(job, confidence), confidence)
    return [item._replace(doubt=min((surest.get(job, 0) for job in item.jobs), default=0)) for item in items]


def _is_error(item: Found, role: str) -> bool:
    return item.finding.severity == "error" and item.finding.role == role


class _Accounts:
    """Which rules account for which, by the names and classes that their files declare."""

    def __init__(self, items: Sequence[Found]) -> None:
        self._explains = {item.rule.id: set(item.rule.explains) for item in items}
        self._called = {item.rule.id: {*item.rule.keys, *with_including(item.rule.symptom_of)} for item in items}
        self._kinds: dict[tuple[int, ...], set[str]] = defaultdict(set)  # class -> ids of its rules
        for item in items:
            self._kinds[_class(item)].add(item.rule.id)

    def __call__(self, parent: str, child: str) -> bool:
        return parent != child and not self._explains[parent].isdisjoint(self._called[child])

    def place(self, item: Found) -> tuple[Any, ...]:
        """What a finding is sorted by: its class, how sure it is, how many of its class it accounts for, its line."""
        kind = _class(item)
        confidence = CONFIDENCES.index(item.finding.confidence)
        below = sum(self(item.rule.id, other) for other in self._kinds[kind])
        return *kind, confidence, -below, item.line, item.rule.id


def _parents(ranked: Sequence[Found], accounts: _Accounts) -> dict[int, Found]:
    """Finding -> the finding it is placed under; all explanations are recorded in both."""
    under: dict[int, Found] = {}
    for index, child in enumerate(ranked):
        parents = [
            parent
            for position, parent in enumerate(ranked)
            if (accounts(parent.rule.id, child.rule.id) or _leads_to(parent, child))
            and (position < index or not accounts(child.rule.id, parent.rule.id))
            and _strength(parent) <= _strength(child)
            and _accounts_for(parent, child)
            and not _stands_under(parent, child, under)
        ]
        if not parents:
            continue
        child.finding.explained_by = list(dict.fromkeys(parent.rule.id for parent in parents))
        for parent in parents:
            if child.rule.id not in parent.finding.explains:
                parent.finding.explains.append(child.rule.id)
        under[id(child.finding)] = parents[0]
    return under


def _leads_to(parent: Found, child: Found) -> bool:
    """Whether the evidence of a cause came shortly before the symptom that another finding shows."""
    return parent is not child and child.finding.role != "context" and not parent.leads.isdisjoint(child.refs)


def _stands_under(item: Found, other: Found, under: dict[int, Found]) -> bool:
    """True if a finding is placed, directly or through others, under another one."""
    above = under.get(id(item.finding))
    while above is not None:
        if above.finding is other.finding:
            return True
        above = under.get(id(above.finding))
    return False


def _by_time(roots: list[Found]) -> list[Found]:
    """The dated ones of a class in the order of their time, in the places that dated ones have."""
    dated = [index for index, root in enumerate(roots) if root.first is not None]
    if len({root.first.clock for root in roots if root.first is not None}) != 1:
        return roots
    early = sorted((roots[index] for index in dated), key=lambda root: root.first.seconds if root.first else 0.0)
    result = list(roots)
    for index, root in zip(dated, early, strict=True):
        result[index] = root
    return result


def _accounts_for(parent: Found, child: Found) -> bool:
    """A note explains notes only, an alarm anything at or below it; and nothing explains what was there before it.

    A slow GPU makes its own rank late and no other one. What came after a restart did not cause what came before; a dead GPU
    stays dead after it, a refused connection does not. What only says that something else failed is not why something failed here.
    One job does not explain another.
    """
    if parent.elsewhere and not child.elsewhere and (child.finding.role == "cause" or child.rule.fallback):
        return False
    if parent.attempt > child.attempt or (parent.is_reason and parent.attempt < child.attempt):
        return False
    if parent.finding.severity == "note" and child.finding.severity != "note":
        return False
    if parent.jobs and child.jobs and not child.jobs <= parent.jobs:
        return False
    if child.rule.name in _OF_ONE_RANK and parent.ranks and child.ranks and not parent.ranks & child.ranks:
        return False
    if parent.first is None or child.last is None:
        return True
    apart = parent.first.until(child.last)
    if apart is not None and apart < -_SLACK:
        return False
    lag = parent.last.until(child.first) if child.first is not None and parent.last is not None else None
    late = lag is not None and lag > _REACH
    return not (late and "xid" in parent.rule.needs and child.finding.severity == "error")


def _seconds(moment: Moment) -> float:
    return moment.seconds
