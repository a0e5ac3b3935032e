"""Who is missing, behind or only waiting when a job hangs, one row for each source that says something about a rank.

The sources are PyTorch's watchdog, NCCL's opCount, Horovod's stall reports, RAS, the flight recorder, stacks and the steps that
ranks print. Numbers are compared inside one process group, communicator or kind of line only. Counters and steps of a log that simply
ends prove nothing: they are asked only where something says that ranks wait.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.hang.stacks import WAITING
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Hang,
    HorovodStall,
    Job,
    Message,
    OpCensus,
    ProcessEnd,
    Progress,
    Rank,
    RankDoing,
    RasRank,
    RecorderMismatch,
    Watchdog,
)  # fmt: skip

_SHARE = 0.25  # of the ranks: more that are behind are the rule and no exception
_SHOWN = 4  # places that a row shows
_STEP = compiled(r"(?i)\b(?:step|iter|iteration|batch|update|epoch)s?\b[^\w#]{0,4}#")

_STUCK = """
WITH said AS (
  SELECT rank, seq, max(pg) AS pg FROM watchdog
  WHERE event IN ('timeout', 'status') AND rank IS NOT NULL AND pg IS NOT NULL GROUP BY rank, seq
), first AS (
  SELECT rank, host, min(seq) AS seq, pg, op, ref FROM watchdog
  WHERE event = 'timeout' AND rank IS NOT NULL AND seq BETWEEN 0 AND 1e12 AND op NOT IN ('SEND', 'RECV', 'COALESCED') GROUP BY rank
)
SELECT f.rank, f.host, f.seq, f.op, f.ref, coalesce(f.pg, s.pg) FROM first f LEFT JOIN said s ON s.rank = f.rank AND s.seq = f.seq
"""
_COUNTS = """
SELECT rank, max(host), pg, max(enqueued), max(completed), min(ref) FROM watchdog
WHERE event IN ('status', 'dump') AND rank IS NOT NULL AND pg IS NOT NULL AND (pg NOT LIKE 'PG %' OR pg IN ('PG 0', 'PG default_pg'))
  AND enqueued BETWEEN 0 AND 1e12 AND completed BETWEEN -1 AND enqueued + 1000 GROUP BY rank, pg
"""
_WORLD = """
SELECT max(coalesce((SELECT ranks FROM job), 0), coalesce(max(rank) + 1, 0))
FROM (SELECT rank FROM watchdog UNION ALL SELECT rank FROM process_end UNION ALL SELECT rank FROM progress
      UNION ALL SELECT rank FROM message)
"""
_RAS_GROUPS = """
SELECT CAST(field(fields, 'ranks') AS INTEGER), coalesce(CAST(field(fields, 'operation') AS INTEGER), 0), ref
FROM message WHERE kind = 'ras-report-group' ORDER BY 1 DESC, 2 DESC
"""
_RAS_RANKS = """
SELECT CAST(field(fields, 'of_rank') AS INTEGER), field(fields, 'node'),
       coalesce(CAST(field(fields, 'operation') AS INTEGER), 0) AS own, ref
FROM message WHERE kind = 'ras-report-rank' AND own <> (
  SELECT coalesce(CAST(field(fields, 'operation') AS INTEGER), 0) FROM message WHERE kind = 'ras-report-group'
  ORDER BY CAST(field(fields, 'ranks') AS INTEGER) DESC, 1 DESC LIMIT 1)
"""
_SIGNS = """
SELECT EXISTS (SELECT 1 FROM watchdog WHERE event IN ('timeout', 'heartbeat'))
  OR EXISTS (SELECT 1 FROM message WHERE kind IN ('torch-heartbeat', 'torch-watchdog-stuck', 'gloo-timeout', 'horovod-stall',
                                                  'slurm-time-limit', 'slurm-cancelled', 'torchelastic-agent-signal', 'xla-rendezvous'))
"""
# Steps behind the last line of Horovod's stall reports, and no end of Horovod: the ranks were late, nobody is missing.
_RESUMED = """
SELECT count(*) FROM progress p
WHERE p.position > (SELECT max(last_line) FROM message WHERE kind LIKE 'horovod-stall%')
  AND p.template LIKE '%#%' AND p.template REGEXP '(?i)loss|step|iter|epoch|it/s|s/it|batch|done|sec'
  AND NOT p.template REGEXP '(?i)error|exception|traceback|shut ?down|stall|missing ranks|terminat|killed|File "'
  AND NOT EXISTS (SELECT 1 FROM message WHERE kind IN ('horovod-shut-down', 'horovod-stall-shutdown'))
"""
_WORLD_GROUPS = (None, "0", "PG 0", "PG 1", "default_pg", "PG default_pg")  # process groups of all ranks


@derivation(
    fills=[Hang],
    reads=[
        HorovodStall, Job, Message, OpCensus, ProcessEnd, Progress, Rank, RankDoing, RasRank, RecorderMismatch, Watchdog,
    ],
)  # fmt: skip
def missing_ranks(facts: Facts) -> Iterator[Hang]:
    """What each source says about each rank of a job in which ranks wait for each other."""
    hosts = dict(facts.query("SELECT rank, host FROM rank"))
    found: list[Hang] = [
        *_watchdog(facts),
        *(_horovod(facts.rows(HorovodStall)) if not facts.query(_RESUMED)[0][0] else ()),
        *_ras(facts.rows(RasRank)),
        *_ras_text(facts),
        *_stacks(facts.rows(RankDoing)),
        *_recorder(facts.rows(RecorderMismatch)),
    ]
    if found or facts.query(_SIGNS)[0][0]:
        found += _opcount(facts.rows(OpCensus))
        found += _steps(facts.rows(Progress))
    yield from (row if row.host or row.rank is None else row._replace(host=hosts.get(row.rank)) for row in found)


def _refs(refs: Iterable[int]) -> str:
    return ",".join(str(ref) for ref in list(dict.fromkeys(refs))[:_SHOWN])


def _watchdog(facts: Facts) -> Iterator[Hang]:
    stuck = facts.query(_STUCK)
    calls: dict[tuple[str | None, int, str], list[tuple[int, str | None, int]]] = defaultdict(list)
    for rank, host, seq, op, ref, pg in stuck:
        calls[pg, seq, op].append((rank, host, ref))
    for (pg, seq, op), ranks in calls.items():
        for rank, host, ref in ranks:
            yield Hang(
                source="watchdog", scope=pg or "", rank=rank, host=host, state="waiting",
                what=f"{op} (SeqNum {seq})", own=seq, others=seq, waiting=len(ranks), certain=1, ref=ref,
                refs=str(ref),
            )  # fmt: skip
    absent = list(_absent(facts, calls))
    yield from absent
    if not absent:
        yield from _counted(facts)


def _absent(
    facts: Facts, calls: dict[tuple[str | None, int, str], list[tuple[int, str | None, int]]]
) -> Iterator[Hang]:
    """Ranks without output while nearly all others wait in one collective of the whole job."""
    if len({(seq, op) for _, seq, op in calls}) != 1:
        return
    waiting = {rank: ref for (pg, _, _), ranks in calls.items() if pg in _WORLD_GROUPS for rank, _, ref in ranks}
    world = int(facts.query(_WORLD)[0][0] or 0)
    if len(waiting) < 2 or not 0 < world - len(waiting) <= max(1, world * _SHARE) or world > 200_000:
        return
    _, seq, op = next(iter(calls))
    spoke = {
        rank
        for (rank,) in facts.query(
            "SELECT DISTINCT rank FROM watchdog WHERE event IN ('timeout', 'status') AND seq = ?", (seq,)
        )
    }
    refs = _refs([min(waiting.values()), max(waiting.values())])
    for rank in sorted(set(range(world)) - spoke - set(waiting)):
        yield Hang(
            source="watchdog", scope="", rank=rank, host=None, state="missing", what=f"{op} (SeqNum {seq})",
            own=None, others=seq, waiting=len(waiting), certain=0, ref=min(waiting.values()), refs=refs,
        )  # fmt: skip


def _counted(facts: Facts) -> Iterator[Hang]:
    """Ranks that enqueued less than the others of their process group and finished all of it."""
    groups: dict[str, list[tuple[int, str | None, int, int, int]]] = defaultdict(list)
    for rank, host, pg, enqueued, completed, ref in facts.query(_COUNTS):
        groups[pg].append((rank, host, enqueued, completed, ref))
    for pg, ranks in groups.items():
        most = max(enqueued for _, _, enqueued, _, _ in ranks)
        waiting = sum(enqueued > completed for _, _, enqueued, completed, _ in ranks)
        late = [entry for entry in ranks if entry[2] < most]
        if not waiting or len(late) > max(1, len(ranks) * _SHARE):
            continue
        others = [ref for _, _, enqueued, _, ref in ranks if enqueued == most]
        for rank, host, enqueued, completed, ref in late:
            if enqueued <= completed:
                what = f"work {enqueued + 1} of process group {pg}"
                refs = _refs([ref, min(others), max(others)])
                yield Hang(
                    source="watchdog", scope=pg, rank=rank, host=host, state="behind", what=what, own=enqueued,
                    others=most, waiting=waiting, certain=1, ref=ref, refs=refs,
                )  # fmt: skip


def _horovod(stalls: list[HorovodStall]) -> Iterator[Hang]:
    if not stalls:
        return
    last = max(stall.last_line for stall in stalls)
    final = [stall for stall in stalls if stall.last_line >= last - 200]  # the last report; earlier ones may be over
    absent: dict[int, list[HorovodStall]] = defaultdict(list)
    for stall in final:
        if stall.state == "missing":
            absent[stall.rank].append(stall)
    ready = {stall.rank: stall for stall in final if stall.state == "ready" and stall.rank not in absent}
    for rank, mine in absent.items():
        what = f"tensor {mine[0].tensor[:80]}" + (f" and {len(mine) - 1} more" if len(mine) > 1 else "")
        told = max(stall.told for stall in mine)
        refs = _refs(stall.ref for stall in mine)
        yield Hang(
            source="horovod", scope="stall report", rank=rank, host=None, state="missing", what=what, own=None,
            others=None, waiting=len(ready), certain=told, ref=mine[0].ref, refs=refs,
        )  # fmt: skip
    for rank, stall in ready.items():
        what = f"tensor {stall.tensor[:80]}"
        yield Hang(
            source="horovod", scope="stall report", rank=rank, host=None, state="waiting", what=what, own=None,
            others=None, waiting=len(ready), certain=stall.told, ref=stall.ref, refs=str(stall.ref),
        )  # fmt: skip


def _ras(ranks: list[RasRank]) -> Iterator[Hang]:
    states = {"missing": "missing", "dead": "missing", "behind": "behind", "ahead": "ahead"}
    for row in ranks:
        if row.state in states:
            what = f"{row.op or 'operation'} number {row.majority}" if row.majority is not None else "the RAS report"
            yield Hang(
                source="ras", scope=row.comm, rank=row.rank, host=row.host, state=states[row.state], what=what,
                own=row.calls, others=row.majority, waiting=None, certain=1, ref=row.ref, refs=str(row.ref),
            )  # fmt: skip


def _ras_text(facts: Facts) -> Iterator[Hang]:
    """The same from the report that `ncclras` prints for people."""
    groups = facts.query(_RAS_GROUPS)
    if not groups:
        return
    _, most, shown = groups[0]
    for rank, node, operation, ref in facts.query(_RAS_RANKS):
        state = "behind" if operation < most else "ahead"
        refs = _refs([ref, shown])
        yield Hang(
            source="ras", scope="", rank=rank, host=node, state=state, what=f"operation {most}", own=operation,
            others=most, waiting=groups[0][0], certain=1, ref=ref, refs=refs,
        )  # fmt: skip


def _stacks(ranks: list[RankDoing]) -> Iterator[Hang]:
    """Which ranks are in a collective and which are elsewhere, by one stack dump."""
    for row in ranks:
        waits = row.doing in WAITING
        if not waits and (not row.waiting or row.ranks - row.waiting > max(1, row.ranks * _SHARE)):
            continue
        what = "a collective" if waits else f"a collective: it is at {row.leaf or row.doing}"
        state = "waiting" if waits else "missing"
        yield Hang(
            source="stacks", scope="", rank=row.rank, host=row.host, state=state, what=what, own=None, others=None,
            waiting=row.waiting, certain=1, ref=row.ref, refs=str(row.ref),
        )  # fmt: skip


def _recorder(mismatches: list[RecorderMismatch]) -> Iterator[Hang]:
    for row in mismatches:
        state = {"missing": "missing", "absent": "missing", "elsewhere": "waiting", "stuck": "waiting"}.get(row.kind)
        if state is None:
            continue
        for rank in _numbers(row.ranks):
            what = f"{row.op} (number {row.seq})" if row.op else row.what
            yield Hang(
                source="flight-recorder", scope=row.description or row.pg, rank=rank, host=None, state=state,
                what=what, own=None, others=row.seq, waiting=row.waiting, certain=int(row.kind == "missing"),
                ref=row.ref, refs=row.refs,
            )  # fmt: skip


def _numbers(ranks: str) -> Iterator[int]:
    """`0-3,7` as numbers."""
    for part in ranks.split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def _opcount(census: list[OpCensus]) -> Iterator[Hang]:
    groups: dict[str, list[OpCensus]] = defaultdict(list)
    for row in census:
        if not row.garbage:
            groups[row.comm].append(row)
    for comm, ranks in groups.items():
        calls = max(row.calls for row in ranks)
        late = [row for row in ranks if (row.last_op is None or row.last_op < row.most) and row.calls < calls]
        there = [row for row in ranks if row.last_op == row.most]
        if not late or len(late) > max(1, len(ranks) * _SHARE):
            continue
        for row in there:
            what = f"{row.function} (opCount {row.most:x})"
            yield Hang(
                source="opcount", scope=comm, rank=row.rank, host=row.host, state="waiting", what=what,
                own=row.last_op, others=row.most, waiting=len(there), certain=1, ref=row.ref, refs=str(row.ref),
            )  # fmt: skip
        for row in late:
            what = f"{row.function} (opCount {row.most:x})"
            state = "missing" if row.last_op is None else "behind"
            refs = _refs([row.ref, there[0].ref])
            yield Hang(
                source="opcount", scope=comm, rank=row.rank, host=row.host, state=state, what=what, own=row.last_op,
                others=row.most, waiting=len(there), certain=1, ref=row.ref, refs=refs,
            )  # fmt: skip


def _steps(progress: list[Progress]) -> Iterator[Hang]:
    """Ranks that printed an earlier step last than nearly all others, or none."""
    shapes: dict[str, dict[int, tuple[int, Progress]]] = defaultdict(dict)
    for row in progress:
        match = _STEP.search(row.template)
        if row.rank is None or match is None:
            continue
        values = (row.last_value or "").split()
        index = row.template[: match.end()].count("#") - 1
        number = re.match(r"\d+", values[index]) if index < len(values) else None
        if number is not None:
            shapes[row.template][row.rank] = int(number[0]), row
    for template, ranks in shapes.items():
        if len(ranks) < 3:
            continue
        usual, count = Counter(step for step, _ in ranks.values()).most_common(1)[0]
        late = {rank: row for rank, (step, row) in ranks.items() if step < usual}
        if not late or len(late) > max(1, len(ranks) * _SHARE) or count < len(ranks) - len(late) - 1:
            continue
        for rank, (step, row) in ranks.items():
            state = "behind" if step < usual else "waiting" if step == usual else "ahead"
            what = f'"{template[:60].strip()}" with step {usual}'
            yield Hang(
                source="progress", scope=template[:80], rank=rank, host=row.host, state=state, what=what, own=step,
                others=usual, waiting=count, certain=1, ref=row.ref, refs=str(row.ref),
            )  # fmt: skip
