"""What failed, was tried again and came back: connections, rendezvous, servers, links and steps; exceptions that a program handled.

A failure counts only where a later line of the same file shows that the same thing worked: with what came after it last.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Communicator,
    IbEvent,
    KnownMessage,
    Message,
    ProcessEnd,
    PythonError,
    Recovered,
    Restart,
    SocketError,
    Step,
)

_CAME_UP = """
SELECT e.file, c.host, c.pid, e.line, c.ref FROM communicator c JOIN evidence e ON e.id = c.ref
WHERE c.phase IN ('complete', 'plain') ORDER BY e.file, e.line
"""
_RETRIED = """
SELECT s.host, s.rank, s.pid, coalesce(s.peer, 'a peer'), s.ref, e.file, e.line
FROM socket_error s JOIN evidence e ON e.id = s.ref WHERE s.retrying = 1 AND NOT EXISTS (
  SELECT 1 FROM socket_error f WHERE f.retrying = 0 AND f.host IS s.host AND f.pid IS s.pid)
"""
_STARTED = """
SELECT e.file, m.last_line, m.ref, 'all processes met' FROM message m JOIN evidence e ON e.id = m.ref
WHERE m.kind = 'ranks-all-registered'
UNION ALL SELECT e.file, s.line, s.ref, 'the job made steps' FROM step s JOIN evidence e ON e.id = s.ref
"""
# Kind, host, thing, whether it works, first line, last line, evidence, file. Lustre names its servers in other ways when they are back.
_STATES = """
SELECT 'file-system', m.host, iif(m.kind LIKE 'lustre-%', 'Lustre', coalesce(field(m.fields, 'server'), 'its server')),
       m.kind IN ('nfs-answers', 'lustre-restored'), e.line, m.last_line, m.ref, e.file
FROM message m JOIN evidence e ON e.id = m.ref
WHERE m.kind IN ('nfs-not-responding', 'nfs-answers', 'cifs-not-responding')
   OR (m.kind IN ('lustre-error', 'lustre-restored') AND m.text NOT LIKE '%was evicted%')
UNION ALL
SELECT 'link', m.host, coalesce(field(m.fields, 'interface'), field(m.fields, 'device'), field(m.fields, 'carrier')),
       m.kind = 'link-up' OR coalesce(field(m.fields, 'state') = 'up', 0), e.line, m.last_line, m.ref, e.file
FROM message m JOIN evidence e ON e.id = m.ref WHERE m.kind IN ('mlx5-link', 'link-down', 'link-up')
UNION ALL
SELECT 'port', i.host, coalesce(i.hca, 'a port'), i.event = 'port active', e.line, e.line, i.ref, e.file
FROM ib_event i JOIN evidence e ON e.id = i.ref WHERE i.event LIKE 'port error%' OR i.event = 'port active'
UNION ALL
SELECT 'step', m.host, 'a step', m.kind = 'srun-step-created', e.line, m.last_line, m.ref, e.file
FROM message m JOIN evidence e ON e.id = m.ref WHERE m.kind IN ('srun-step-waits', 'srun-step-created')
UNION ALL
SELECT 'rendezvous', k.host, 'the coordination service', k.message = 'coordination-tells', e.line, k.last_line, k.ref, e.file
FROM known_message k JOIN evidence e ON e.id = k.ref
WHERE k.message = 'leader-not-reached' OR (k.message = 'coordination-tells' AND e.text LIKE '%successfully connected%')
"""
_MEETINGS = """
SELECT CASE WHEN m.kind = 'ray-demand-waits' THEN 'placement' ELSE 'rendezvous' END, m.host, m.rank,
       coalesce(field(m.fields, 'host_name'), field(m.fields, 'name'), 'the meeting point'), m.last_line, m.ref, e.file
FROM message m JOIN evidence e ON e.id = m.ref
WHERE m.kind IN ('tcpstore-connect-timeout', 'store-connect-timeout', 'name-unresolved', 'ray-demand-waits')
   OR (m.kind = 'tcpstore-lost' AND m.text LIKE '%C10d store has failed%')
   OR (m.kind = 'rendezvous-timeout' AND field(m.fields, 'error') = 'RendezvousConnectionError')
UNION ALL
SELECT 'rendezvous', k.host, k.rank, k.title, k.last_line, k.ref, e.file FROM known_message k JOIN evidence e ON e.id = k.ref
WHERE k.message IN ('grpc-refused', 'grpc-unanswered', 'request-tried-again')
"""
# An exception, and a program that said later in the same file that its training is done. Right below a stack it may be the script
# that says so, whatever happened; and a job that began again did so because of the exception.
_HANDLED = """
WITH done AS (
  SELECT e.file, max(m.last_line) AS line, m.ref FROM message m JOIN evidence e ON e.id = m.ref
  WHERE m.kind = 'training-end' GROUP BY e.file
), again AS (SELECT file, max(line) AS line FROM restart GROUP BY file)
SELECT p.host, p.rank, p.type, p.ref, d.ref FROM python_error p JOIN evidence e ON e.id = p.ref JOIN done d ON d.file = e.file
LEFT JOIN again a ON a.file = e.file
WHERE d.line > p.last_line + 3 AND coalesce(a.line, 0) <= e.line
  AND NOT EXISTS (SELECT 1 FROM process_end WHERE coalesce(exitcode, 1) <> 0 OR signal <> '')
"""
# Whether its container started, the pod where the line names it, the line, evidence, file; in the order of the files.
_PODS = """
SELECT kind, pod, line, ref, file FROM (
  SELECT iif(m.kind = 'k8s-container-started', 'started', 'other') AS kind, field(m.fields, 'pod') AS pod,
         iif(m.kind = 'k8s-container-started', m.last_line, e.line) AS line, m.ref, e.file
  FROM message m JOIN evidence e ON e.id = m.ref
  WHERE m.kind = 'k8s-container-started' OR (m.kind = 'k8s-started' AND m.text LIKE '%Successfully assigned %')
  UNION ALL
  SELECT 'failed', e.text, m.last_line, m.ref, e.file FROM message m JOIN evidence e ON e.id = m.ref
  WHERE m.kind = 'k8s-pod-not-created'
  UNION ALL
  SELECT 'failed', e.text, k.last_line, k.ref, e.file FROM known_message k JOIN evidence e ON e.id = k.ref
  WHERE k.fault = 'pod-not-created'
) ORDER BY file, line
"""
_POD = re.compile(r"\bpod/([a-z0-9.-]{1,253})")
_BACK = {
    "file-system": "the server answered again",
    "link": "the link came up again",
    "port": "the port became active again",
    "step": "srun got its step",
    "rendezvous": "the process connected",
}


class _Place(NamedTuple):
    line: int
    ref: int


@derivation(
    fills=[Recovered],
    reads=[Communicator, IbEvent, KnownMessage, ProcessEnd, PythonError, Restart, SocketError, Step],
    needs=[Message],
)
def recovered(facts: Facts) -> Iterator[Recovered]:
    """One row for each failure that was over before the end."""
    retried, meetings = facts.query(_RETRIED), facts.query(_MEETINGS)
    last: dict[object, _Place] = {}  # the last communicator that came up: of a process in a file, and of the file
    for file, host, pid, line, ref in facts.query(_CAME_UP) if retried or meetings else ():
        last[file, host, pid] = last[file] = _Place(line, ref)
    for host, rank, pid, peer, ref, file, line in retried:
        up = last.get((file, host, pid) if pid is not None else file)
        if up is not None and up.line > line:
            yield _row("connection", host, rank, peer, "its communicator came up", ref, up.ref)
    for host, rank, error, ref, done in facts.query(_HANDLED):
        yield _row("exception", host, rank, error, "the program went on until its training was done", ref, done)
    yield from _meetings(facts, meetings, last)
    yield from _states(facts)
    yield from _pods(facts)


def _pods(facts: Facts) -> Iterator[Recovered]:
    """Pods that could not be created at first and whose container started later; a pod that was scheduled in between is another one."""
    failed: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for kind, text, _, ref, file in facts.query(_PODS):
        if kind == "failed":
            match = _POD.search(text or "")
            failed[file, match[1] if match else None].append(ref)
        elif kind == "started":
            for one in failed.pop((file, text), ()):
                yield _row("pod", None, None, text or "a pod", "its container started", one, ref)
        else:
            failed.pop((file, None), None)


def _meetings(facts: Facts, failed: list[tuple[Any, ...]], last: dict[object, _Place]) -> Iterator[Recovered]:
    """Meetings that failed at first, and a start of the whole job after it in the same file."""
    started = {file: (up, "the ranks came up") for file, up in last.items() if isinstance(file, str)}
    for file, line, ref, back in facts.query(_STARTED):
        if file not in started or started[file][0].line < line:
            started[file] = _Place(line, ref), back
    for kind, host, rank, what, line, ref, file in failed:
        if file in started and started[file][0].line > line:
            yield _row(kind, host, rank, what, started[file][1], ref, started[file][0].ref)


def _states(facts: Facts) -> Iterator[Recovered]:
    """Things that are down and up in turn: those whose last line says that they are up."""
    things: dict[tuple[str, str | None, str, str], list[tuple[int, int, bool, int]]] = defaultdict(list)
    for kind, host, what, works, first, last, ref, file in facts.query(_STATES):
        things[kind, host, what or "", file].append((first, last, bool(works), ref))
    for (kind, host, what, _), rows in things.items():
        up = max((_Place(last, ref) for _, last, works, ref in rows if works), default=None)
        down = max((last for _, last, works, _ in rows if not works), default=None)
        if up is None or down is None or up.line <= down:
            continue
        for _, _, works, ref in rows:
            if not works:
                yield _row(kind, host, None, what, _BACK[kind], ref, up.ref)


def _row(kind: str, host: str | None, rank: int | None, what: str, back: str, ref: int, back_ref: int) -> Recovered:
    return Recovered(
        kind=kind, host=host, rank=rank, what=what, back=back, ref=ref, back_ref=back_ref, refs=f"{ref},{back_ref}"
    )
