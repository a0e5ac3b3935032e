"""What schedulers and operators count of a job: replicas of Kubernetes, gangs, tasks of srun, slots of Horovod, bundles of Ray."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.derive.start.numbers import numbers_of, ranges
from nccl_doctor.facts.store import Facts

_REPLICAS = """
SELECT e.file, field(m.fields, 'role'), CAST(field(m.fields, 'replicas') AS INTEGER), CAST(field(m.fields, 'active') AS INTEGER),
       coalesce(CAST(field(m.fields, 'failed') AS INTEGER), 0) + coalesce(CAST(field(m.fields, 'succeeded') AS INTEGER), 0), m.ref
FROM message m JOIN evidence e ON e.id = m.ref WHERE m.kind = 'k8s-replicas' ORDER BY m.last_line
"""
_JOBSETS = """
SELECT field(fields, 'set'), CAST(field(fields, 'active') AS INTEGER), CAST(field(fields, 'ready') AS INTEGER),
       CAST(field(fields, 'failed') AS INTEGER) + CAST(field(fields, 'succeeded') AS INTEGER), ref
FROM message WHERE kind = 'jobset-status' ORDER BY last_line
"""
# The last line counts, and none after which a pod found its node.
_GANGS = """
SELECT CAST(coalesce(field(m.fields, 'least'), field(m.fields, 'members')) AS INTEGER), CAST(field(m.fields, 'pods') AS INTEGER),
       field(m.fields, 'states'), m.ref
FROM message m WHERE m.kind = 'k8s-gang-waits' AND NOT EXISTS (
  SELECT 1 FROM message s WHERE s.kind = 'k8s-started' AND field(s.fields, 'what') = 'assigned' AND s.last_line > m.last_line)
ORDER BY m.last_line DESC LIMIT 1
"""
_TASKS = """
SELECT coalesce(field(fields, 'step'), field(fields, 'launched'), ''), field(fields, 'list'), field(fields, 'state'),
       field(fields, 'on'), field(fields, 'local'), field(fields, 'started'), ref
FROM message WHERE kind = 'srun-task-state' ORDER BY last_line
"""
_SLOTS = """
SELECT CAST(field(fields, 'wanted') AS INTEGER), CAST(field(fields, 'slots') AS INTEGER), ref
FROM message WHERE kind = 'horovod-slots-missing' ORDER BY last_line
"""
_BUNDLES = """
SELECT CAST(CAST(coalesce(field(fields, 'want'), field(fields, 'parallel')) AS REAL) AS INTEGER),
       CAST(CAST(coalesce(field(fields, 'have'), field(fields, 'gpus')) AS REAL) AS INTEGER), ref
FROM message WHERE kind = 'ray-demand-waits'
"""
_PLACED = {"Running", "Bound", "Binding", "Allocated", "Pipelined"}
_OVER = {"Succeeded", "Releasing", "Failed"}  # states of pods after the start
_NEVER = ("failed to start", "unknown")
_PODS_IN_STATE = re.compile(r"(\d{1,7}) ([A-Z][a-z]{1,20})")


class Count(NamedTuple):
    """How many of a kind were wanted and how many came, as one source counts them."""

    source: str
    unit: str
    scope: str | None
    size: int
    came: int | None
    absent: str | None
    certain: bool
    refs: list[int]


def counts(facts: Facts) -> Iterator[Count]:
    """One count for each source that says both numbers."""
    yield from _replicas(facts)
    last = {name: (active, ready, over, ref) for name, active, ready, over, ref in facts.query(_JOBSETS)}
    for name, (active, ready, over, ref) in last.items():
        if ready < active:
            yield Count("jobset", "job", name, active + over, ready + over, None, False, [ref])
    yield from _gangs(facts)
    yield from _tasks(facts)
    yield from _slots(facts)
    for wanted, seen, ref in facts.query(_BUNDLES):
        if wanted is not None and seen is not None and seen < wanted:
            yield Count("ray", "gpu", None, wanted, seen, None, False, [ref])


def _replicas(facts: Facts) -> Iterator[Count]:
    """Roles of a training job of which both the wish and the state are shown."""
    wanted: dict[tuple[str, str], tuple[int, int]] = {}
    seen: dict[tuple[str, str], tuple[int, int]] = {}
    for file, role, replicas, active, over, ref in facts.query(_REPLICAS):
        if replicas is not None:
            wanted[file, role] = replicas, ref
        else:
            seen[file, role] = active + over, ref
    for key in wanted.keys() & seen.keys():
        (size, size_ref), (came, came_ref) = wanted[key], seen[key]
        if came < size:
            yield Count("replicas", "replica", key[1], size, came, None, False, [came_ref, size_ref])


def _gangs(facts: Facts) -> Iterator[Count]:
    for least, pods, states, ref in facts.query(_GANGS):
        of_state = {state: int(number) for number, state in _PODS_IN_STATE.findall(states or "")}
        if least and not _OVER & of_state.keys():
            came = pods if pods is not None else sum(n for state, n in of_state.items() if state in _PLACED)
            if came < least:
                yield Count("gang", "pod", None, least, came, None, True, [ref])


def _tasks(facts: Facts) -> Iterator[Count]:
    """Tasks of a step: the list that srun prints at Ctrl-C, else the nodes that it called and those that answered."""
    listed: dict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
    called: dict[str, tuple[set[int], int]] = {}
    answered: set[str] = set()
    for step, tasks, state, host, local, started, ref in facts.query(_TASKS):
        if tasks:
            listed[step] |= dict.fromkeys(numbers_of(tasks), (state, ref))
        elif host:
            called[host] = numbers_of(local), ref
        elif started:
            answered.add(started)
    for step, states in listed.items():
        absent = {task: ref for task, (state, ref) in states.items() if state in _NEVER}
        if absent:
            refs = sorted({*absent.values(), *(ref for _, ref in states.values())})
            yield Count("srun", "task", step, len(states), len(states) - len(absent), ranges(absent), True, refs)
    silent = {host: ref for host, (_, ref) in called.items() if host not in answered}
    if answered and silent and not listed:
        size, came = (sum(len(called[host][0]) for host in hosts) for hosts in (called, called.keys() - silent.keys()))
        absent_tasks = Counter(task for host in silent for task in called[host][0])
        yield Count("srun-nodes", "task", None, size, came, ranges(absent_tasks), False, sorted(silent.values()))


def _slots(facts: Facts) -> Iterator[Count]:
    slots: tuple[int, int] | None = None
    for wanted, free, ref in facts.query(_SLOTS):
        if free is not None:
            slots = free, ref
        elif wanted is not None and (slots is None or slots[0] < wanted):
            refs = [ref] if slots is None else [ref, slots[1]]
            yield Count("horovod-slots", "slot", None, wanted, slots[0] if slots else None, None, True, refs)
