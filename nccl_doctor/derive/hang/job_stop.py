"""Why a job stands still, from looks at all its ranks: who waits, and who is suspected.

Nobody is suspected after one look: a rank outside a collective may be on its way to it. In the second look a rank that waits has
not moved; one that is elsewhere is suspected, and the words say whether it moves.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.hang.job_state import JobState, Suspect
from nccl_doctor.derive.hang.stacks import WAITS
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import JobStop
from nccl_doctor.facts.tables.stacks import RankState, StuckSocket

_SHARE = 0.5  # of the ranks: where fewer wait, the job computes
_GONE = ("ended", "zombie")
_LOST = 3  # retransmissions of one segment, 1.4 s apart or more, from which the network is at fault
_PLACES = {"backward": "the backward pass", "cuda-sync": "a CUDA call", "rendezvous": "the start of the process group"}
_BUSY = 20.0  # % of a processor from which a rank computes


def judge(looks: Iterable[RankState], sockets: Sequence[StuckSocket] = ()) -> JobState | None:
    """Returns the state of one job from the looks at its ranks; None where it runs, or was looked at only once."""
    latest: dict[tuple[str | None, int], RankState] = {}
    for one in looks:
        key = one.host, one.pid
        if key not in latest or latest[key].look < one.look:
            latest[key] = one
    ranks = sorted(latest.values(), key=lambda one: (one.rank is None, one.rank or 0))
    if not ranks or all(one.moved is None for one in ranks):
        return None
    world = max([len(ranks), *(one.world for one in ranks if one.world)])
    broken = [one for one in ranks if one.state in (*_GONE, "stopped")]
    waiting = [one for one in ranks if one not in broken and one.doing in WAITS and not one.moved]
    outside = [one for one in ranks if one not in broken and one not in waiting]
    if len(waiting) < _SHARE * (len(ranks) - len(broken)) or (outside and not waiting):
        return None
    suspects, kind, note = _suspected(waiting, outside, broken, sockets)
    still = [one for one in waiting if one not in suspects]
    moves = kind not in ("apart", "network") and any(one.moved for one in suspects)
    return JobState(
        job=ranks[0].job or "", state="waiting" if moves else "stopped", since=_since(still or waiting or ranks), ranks=world,
        waiting=len(still), operation=_operation(still), kind=kind,
        suspects=tuple(Suspect(one.rank, one.host, one.pid, one.gpu, _words(one, kind)) for one in suspects), note=note,
    )  # fmt: skip


def _since(waiting: Sequence[RankState]) -> float:
    """Returns when the last of the waiting ranks stopped."""
    return max(one.since if one.since is not None else one.at for one in waiting)


def _operation(waiting: Sequence[RankState]) -> str | None:
    """Returns the function in which most of them wait."""
    names = Counter(one.op or _PLACES.get(one.doing) for one in waiting)
    return names.most_common(1)[0][0] if names else None


def _suspected(
    waiting: Sequence[RankState],
    outside: Sequence[RankState],
    broken: Sequence[RankState],
    sockets: Sequence[StuckSocket],
) -> tuple[list[RankState], str, str | None]:
    """Returns the suspected ranks, the class of the cause, and a note where no rank is suspected."""
    if broken:
        return list(broken), "ended" if any(one.state in _GONE for one in broken) else "suspended", None
    if outside:
        return list(outside), _kind(outside[0]), None
    if any(one.retransmits >= _LOST for one in sockets):  # what is sent before the loss leaves ranks a step apart
        return [], "network", _network(sockets)
    groups: dict[tuple[str | None, str | None, int | None], list[RankState]] = defaultdict(list)
    for one in waiting:
        groups[one.op, one.site, one.step].append(one)
    if len(groups) > 1:
        sizes = sorted(groups.values(), key=len)
        if len(sizes[-2]) < len(sizes[-1]):
            return [one for group in sizes[:-1] for one in group], "apart", None
        words = " and ".join(_together(group) for group in sizes[-2:])
        return [], "apart", words
    unseen = max((one.world or 0 for one in waiting), default=0) - len(waiting)
    if unseen > 0 and not sockets:
        return [], "unseen", f"nothing is known of the other {unseen}"
    return [], "network", _network(sockets)


def _together(group: Sequence[RankState]) -> str:
    """Returns `ranks 0, 1 wait in broadcast at train (train.py:9)`."""
    words = _words(group[0], "apart")
    numbers = ", ".join(str(one.rank) for one in group)
    return f"rank {numbers} {words}" if len(group) == 1 else f"ranks {numbers} {words.replace('waits', 'wait', 1)}"


def _network(sockets: Sequence[StuckSocket]) -> str:
    if sockets:
        worst = max(sockets, key=lambda one: (one.retransmits, one.queued))
        if not worst.queued:
            return (
                f"all are there, but {worst.peer} does not answer when rank {worst.rank} connects from {worst.local}"
                f" ({worst.retransmits} repetitions)"
            )
        return (
            f"all are there, but {worst.peer} does not acknowledge {worst.queued} bytes from {worst.local} of rank"
            f" {worst.rank} ({worst.retransmits} retransmissions)"
        )
    return "all are in the same call: their process groups differ, or data does not arrive"


def _kind(one: RankState) -> str:
    if one.state == "disk-sleep":
        return "kernel"
    if one.holder is not None and one.doing not in ("dataloader", "checkpoint"):
        return "gil"
    return one.doing if one.doing in ("dataloader", "checkpoint", "compiling") else "outside"


def _words(one: RankState, kind: str) -> str:
    """Returns what a suspected rank does, to follow its name."""
    if one.state == "stopped":
        return "is stopped by a signal (state T)"
    if one.state in _GONE:
        return "has ended"
    place = one.worker or one.site or one.doing
    if kind == "apart":
        step = f", {one.counter} {one.step}" if one.step is not None else ""
        return f"waits in {one.op or one.doing} at {place}{step}"
    if kind == "gil" and one.holder is not None:
        return f"is in {place} while its thread {one.holder} holds the interpreter's lock"
    if one.state == "disk-sleep":
        return f"waits in the kernel (state D) in {place}"
    return f"is busy in {place}" if one.moved and (one.busy or 0.0) >= _BUSY else f"is in {place}"


@derivation(fills=[JobStop], needs=[RankState], reads=[StuckSocket])
def job_stops(facts: Facts) -> Iterator[JobStop]:
    """The jobs that stood still, with the ranks that are suspected."""
    jobs: dict[str | None, list[RankState]] = defaultdict(list)
    for one in facts.rows(RankState):
        jobs[one.job].append(one)
    sockets = facts.rows(StuckSocket)
    for job, looks in jobs.items():
        found = judge(looks, [one for one in sockets if one.job == job])
        if found is None:
            continue
        last = max(one.at for one in looks)
        refs = {(one.host, one.pid): one.ref for one in sorted(looks, key=lambda one: one.look)}
        for suspect in found.suspects or (None,):
            mine = refs[suspect.host, suspect.pid] if suspect is not None and suspect.pid is not None else None
            others = [ref for ref in refs.values() if ref != mine][:3]
            ref = mine if mine is not None else others[0]
            yield JobStop(
                job=job, state=found.state, kind=found.kind, host=suspect.host if suspect else None,
                rank=suspect.rank if suspect else None, pid=suspect.pid if suspect else None,
                gpu=suspect.gpu if suspect else None, words=suspect.words if suspect else found.note,
                operation=found.operation, waiting=found.waiting, ranks=found.ranks,
                seconds=max(last - found.since, 0.0), headline=found.sentence(last), ref=ref,
                refs=",".join(map(str, dict.fromkeys([ref, *others]))),
            )  # fmt: skip
