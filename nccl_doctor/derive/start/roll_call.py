"""Who of the announced processes came to a meeting, and who took the place of another.

Ranks that say who they are prove nothing alone: a log may be that of one rank. Stores, barriers and launchers that gave up do.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.start import replicas
from nccl_doctor.derive.start.numbers import LARGEST, ranges, without
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Message, RollCall

_SHOWN = 8  # pieces of evidence
_MINUTE = 6  # lines of which one comes every ten seconds
_NOT_STARTED = (
    "Pending", "ContainerCreating", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CreateContainerError",
    "PodInitializing",
)  # fmt: skip
_START = re.compile(r"Init|PjRT_Client_Connect|WaitForAllTasks|Wait_for_all|Register")

_SAID = """
SELECT iif(kind = 'node-announced', 'node', 'process'),
       CAST(coalesce(field(fields, 'member'), field(fields, 'process'), field(fields, 'said'),
                     field(fields, 'first')) AS INTEGER),
       CAST(coalesce(field(fields, 'size'), field(fields, 'total'), field(fields, 'said_of'),
                     field(fields, 'of_first')) AS INTEGER),
       n, coalesce(field(fields, 'said'), field(fields, 'first')) IS NOT NULL, ref
FROM message WHERE kind IN ('rank-announced', 'node-announced')
"""
_CLIENTS = """
SELECT CAST(field(fields, 'joined') AS INTEGER), CAST(field(fields, 'expected') AS INTEGER),
       CAST(field(fields, 'seconds') AS INTEGER), ref
FROM message WHERE kind = 'tcpstore-clients-joined'
"""
_BARRIERS = """
SELECT CAST(field(fields, 'rank') AS INTEGER), CAST(field(fields, 'joined') AS INTEGER),
       CAST(field(fields, 'expected') AS INTEGER), text LIKE '%imed out%', ref
FROM message WHERE kind = 'store-barrier-timeout'
"""
_NAMED = """
SELECT kind, field(fields, 'key'),
       CAST(coalesce(field(fields, 'size'), field(fields, 'expected'), field(fields, 'nranks'), field(fields, 'participants')) AS INTEGER),
       CAST(coalesce(field(fields, 'joined'), field(fields, 'arrived')) AS INTEGER),
       coalesce(field(fields, 'absent'), field(fields, 'ranks')),
       field(fields, 'seconds'), CAST(field(fields, 'ms') AS INTEGER) / 1000, field(fields, 'of_rank'), field(fields, 'barrier'),
       field(fields, 'tasks'), ref
FROM message WHERE kind IN ('agent-barrier-timeout', 'torch-monitored-barrier', 'jax-barrier-timeout', 'xla-rendezvous',
                            'bootstrap-rank-twice')
"""
_PODS = """
SELECT m.host, field(m.fields, 'pods'), CAST(field(m.fields, 'index') AS INTEGER), field(m.fields, 'status'),
       CAST(field(m.fields, 'ready') AS INTEGER) < CAST(field(m.fields, 'containers') AS INTEGER), m.ref, e.file, m.last_line
FROM message m JOIN evidence e ON e.id = m.ref WHERE m.kind = 'k8s-pod-listed'
  AND field(m.fields, 'index') IS NOT NULL AND field(m.fields, 'age') NOT LIKE '%s'  -- a minute old or older
"""
_WAITED_FOR = """
SELECT field(fields, 'job'), CAST(field(fields, 'task') AS INTEGER), sum(n), min(ref) FROM message
WHERE kind = 'tf-session-waits' GROUP BY 1, 2
"""
_COMMUNICATORS = """
SELECT rank, nranks, min(ref), max(phase IN ('complete', 'plain')) FROM communicator
WHERE rank IS NOT NULL AND nranks = (SELECT max(nranks) FROM communicator) AND comm_rank IS rank GROUP BY rank, nranks
"""


@derivation(fills=[RollCall], reads=[Communicator], needs=[Message])
def roll_call(facts: Facts) -> Iterator[RollCall]:
    """One row for each meeting of which a source says or shows who came."""
    yield from _announced(facts)
    for joined, expected, seconds, ref in facts.query(_CLIENTS):
        yield _row("store", ref, size=expected, came=joined, seconds=seconds, certain=joined < expected)
    yield from _store_barriers(facts)
    yield from _named(facts)
    yield from _pods(facts)
    yield from _tasks(facts)
    yield from _nccl(facts)
    for one in replicas.counts(facts):
        yield _row(
            one.source, one.refs[0], unit=one.unit, scope=one.scope, size=one.size, came=one.came, absent=one.absent,
            certain=one.certain, refs=one.refs,
        )  # fmt: skip


def _row(
    source: str, ref: int, *, unit: str = "process", phase: str = "start", scope: str | None = None, size: int | None = None,
    came: int | None = None, absent: str | None = None, doubled: str | None = None, seconds: int | None = None,
    certain: bool = False, refs: Iterable[int] = (),
) -> RollCall:  # fmt: skip
    shown = ",".join(str(one) for one in list(dict.fromkeys(refs))[:_SHOWN]) or str(ref)
    return RollCall(
        source=source, unit=unit, phase=phase, scope=scope, size=size, came=came, absent=absent or None,
        doubled=doubled or None, seconds=seconds, certain=int(certain), ref=ref, refs=shown,
    )  # fmt: skip


def _announced(facts: Facts) -> Iterator[RollCall]:
    """Ranks that say `rank r of n`. One that says it again while others are silent is two processes, or one that was restarted.

    A program of people's own may say it in several lines, or in those of rank 0 alone: it counts where most ranks say it once.
    """
    by_size: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    refs: dict[tuple[str, int], list[int]] = defaultdict(list)
    own: set[tuple[str, int]] = set()
    for unit, rank, size, n, is_own, ref in facts.query(_SAID):
        if rank is not None and size and rank < size <= LARGEST:
            own |= {(unit, size)} if is_own else set()
            by_size[unit, size][rank] += n
            refs[unit, size].append(ref)
    for (unit, size), times in by_size.items():
        silent = sum(times.values()) <= size and (unit, size) not in own
        twice = [rank for rank, n in times.items() if n > 1] if silent else []
        absent = None if max(times.values()) > 1 else without(size, times)
        if (unit, size) in own and (absent is None or 2 * len(times) <= size) and len(times) < size:
            continue
        yield _row(
            "announced", refs[unit, size][0], unit=unit, size=size, came=len(times), absent=absent, doubled=ranges(twice),
            refs=refs[unit, size],
        )  # fmt: skip


def _store_barriers(facts: Facts) -> Iterator[RollCall]:
    """PyTorch's barrier at the store: each rank that came says how many had; where all of them say it, the others are known."""
    groups: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for rank, joined, expected, gave_up, ref in facts.query(_BARRIERS):
        if expected and joined is not None:
            groups[expected].append((rank, joined, gave_up, ref))
    for expected, rows in groups.items():
        came = max(joined for _, joined, _, _ in rows)
        ranks = {rank for rank, _, _, _ in rows}
        gave_up = any(over for _, _, over, _ in rows)
        known = len(ranks) == came < expected
        yield _row(
            "store-barrier", rows[0][3], size=expected, came=came, absent=without(expected, ranks) if known else None,
            certain=bool(gave_up and came < expected), refs=[ref for _, _, _, ref in rows],
        )  # fmt: skip


def _named(facts: Facts) -> Iterator[RollCall]:
    """Messages that count or name who did not come, or came twice."""
    for kind, key, size, joined, absent, seconds, waited, of_rank, barrier, tasks, ref in facts.query(_NAMED):
        listed = [int(number) for number in re.findall(r"\d+", absent or "")]
        if kind == "agent-barrier-timeout":
            came = size - len(listed) if size and listed else None
            yield _row(
                "agents", ref, unit="agent", scope=key, size=size, came=came, absent=ranges(listed),
                seconds=int(float(seconds)) if seconds else None, certain=True,
            )  # fmt: skip
        elif kind == "torch-monitored-barrier":
            yield _row(
                "monitored-barrier", ref, phase="run", absent=ranges(listed), seconds=waited, certain=True,
            )  # fmt: skip
        elif kind == "jax-barrier-timeout":
            missing = [int(number) for number in re.findall(r"/task:(\d+)", tasks or "")]
            phase = "start" if _START.search(barrier or "") else "run"
            yield _row(
                "jax", ref, phase=phase, scope=barrier, size=size, came=joined, absent=ranges(missing), certain=True
            )
        elif kind == "xla-rendezvous":
            yield _row("xla", ref, unit="thread", phase="run", size=size, came=joined, certain=True)
        else:
            yield _row("nccl-bootstrap", ref, size=size, doubled=of_rank, certain=True)


def _pods(facts: Facts) -> Iterator[RollCall]:
    """Replicas in a list of pods: where some of a set run, those that were not started are absent. The last row of each counts."""
    last: dict[tuple[str, str], dict[int, tuple[int, str, bool, int]]] = defaultdict(dict)
    for _, pods, index, status, unready, ref, file, line in facts.query(_PODS):
        seen = last[file, pods].get(index)
        if seen is None or seen[0] < line:
            last[file, pods][index] = line, status, bool(unready), ref
    for (_, pods), rows in last.items():
        absent = [index for index, (_, status, unready, _) in rows.items() if status in _NOT_STARTED and unready]
        if absent and any(status == "Running" for _, status, _, _ in rows.values()):
            refs = [rows[index][3] for index in sorted(absent)]
            yield _row(
                "pods", min(refs), unit="pod", scope=pods, size=len(rows), came=len(rows) - len(absent), absent=ranges(absent),
                certain=True, refs=refs,
            )  # fmt: skip


def _tasks(facts: Facts) -> Iterator[RollCall]:
    """Tasks for which TensorFlow waits at the start: each of them for a minute or longer."""
    jobs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for job, task, n, ref in facts.query(_WAITED_FOR):
        if n >= _MINUTE:
            jobs[job].append((task, ref))
    for job, tasks in jobs.items():
        refs = [ref for _, ref in tasks]
        absent = ranges(task for task, _ in tasks)
        yield _row("tensorflow", min(refs), unit="task", scope=job, absent=absent, certain=True, refs=refs)


def _nccl(facts: Facts) -> Iterator[RollCall]:
    """Ranks of the largest communicator that none of the lines is about, where it did not come up."""
    rows = facts.query(_COMMUNICATORS)
    if not rows or any(done for *_, done in rows):
        return
    size = rows[0][1] or 0
    absent = without(size, (rank for rank, *_ in rows))
    if absent:
        refs = [ref for _, _, ref, _ in rows]
        yield _row("nccl-init", min(refs), size=size, came=len(rows), absent=absent, refs=sorted(refs))
