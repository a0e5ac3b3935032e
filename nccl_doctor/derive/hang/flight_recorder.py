"""Compares the dumps of PyTorch's flight recorder: where the ranks of a process group part.

Each dump is a ring of the last entries, so calls are aligned by their number in the group and compared from the first that
all dumps still hold. Numbers of sends and receives count per process; only those that wait are looked at.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Recorder, RecorderCall, RecorderGroup, RecorderMismatch

_SAME_SIZE = {
    "all_reduce", "allreduce", "broadcast", "reduce", "_all_gather_base", "_allgather_base", "all_gather_into_tensor",
    "_reduce_scatter_base", "reduce_scatter_tensor", "allreduce_coalesced", "all_reduce_coalesced", "_broadcast_oop",
}  # fmt: skip
_SAME_TYPE = _SAME_SIZE | {"all_gather", "allgather", "reduce_scatter", "all_to_all", "alltoall_base"}
_P2P = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")
_SHOWN = 8  # ranks and places that a row names


class _Group(NamedTuple):
    """A process group in one series of dumps."""

    pg: str
    description: str | None
    members: tuple[int, ...] | None  # ranks of the job
    calls: dict[int, dict[int, list[RecorderCall]]]  # rank -> number -> entries
    enqueued: dict[int, int]
    files: dict[int, str]
    of_members: frozenset[int]


@derivation(fills=[RecorderMismatch], needs=[Recorder], reads=[RecorderCall, RecorderGroup])
def recorder_mismatches(facts: Facts) -> Iterator[RecorderMismatch]:
    """The first collective in which the ranks of each process group differ."""
    series: dict[str, dict[int, str]] = defaultdict(dict)
    for name, file, rank in facts.query("SELECT series, file, rank FROM recorder WHERE rank IS NOT NULL ORDER BY file"):
        series[name].setdefault(rank, file)
    calls: dict[str, list[RecorderCall]] = defaultdict(list)
    for call in facts.rows(RecorderCall):
        calls[call.file].append(call)
    said: dict[str, list[RecorderGroup]] = defaultdict(list)
    for group in facts.rows(RecorderGroup):
        said[group.file].append(group)
    for files in series.values():
        yield from _compare(facts, files, calls, said)


def _compare(
    facts: Facts, files: dict[int, str], calls: dict[str, list[RecorderCall]], said: dict[str, list[RecorderGroup]]
) -> Iterator[RecorderMismatch]:
    groups = _groups(files, calls, said)
    waiting: dict[int, RecorderCall] = {}  # rank -> the first collective that it has not finished
    for group in groups:
        for rank, mine in group.calls.items():
            for entries in mine.values():
                for call in entries:
                    old = waiting.get(rank)
                    if not call.finished and (old is None or (call.created or 0) < (old.created or 0)):
                        waiting[rank] = call
    alone = _left_behind(groups, waiting)
    found: list[RecorderMismatch] = []
    for group in groups:
        found += _first_difference(facts, group, waiting, alone)
    busy = set(waiting) - set(alone) if any(row.kind == "missing" for row in found) else set()
    found += _unanswered(facts, files, calls, groups, busy)
    yield from found
    everyone = max((g.members for g in groups if g.members), key=len, default=())
    absent = [rank for rank in everyone if rank not in files]
    if absent and len(files) > 1:
        file = files[min(files)]
        ref = facts.evidence(file, 0, f"a group of {len(everyone)} ranks; dumps of {len(files)}")
        yield RecorderMismatch(
            pg="", description=None, seq=0, kind="absent", ranks=_list(absent),
            rank=absent[0] if len(absent) == 1 else None, what=f"{len(files)} of {len(everyone)} ranks left a dump",
            op=None, waiting=len(waiting), frame=None, ref=ref, refs=str(ref),
        )  # fmt: skip


def _groups(
    files: dict[int, str], calls: dict[str, list[RecorderCall]], said: dict[str, list[RecorderGroup]]
) -> list[_Group]:
    groups: dict[tuple[str, str | None], _Group] = {}
    for rank, file in sorted(files.items()):
        mine: dict[str, _Group] = {}
        told = {group.pg: group for group in reversed(said[file])}  # the first of each
        for pg in {group.pg: None for group in said[file]} | {call.pg: None for call in calls[file]}:
            group = told.get(pg)
            ranks = group.ranks if group is not None and group.ranks else None
            if (pg, ranks) not in groups:
                members = tuple(map(int, ranks.split(","))) if ranks else None
                groups[pg, ranks] = _Group(
                    pg,
                    group.description if group else None,
                    members,
                    defaultdict(dict),
                    {},
                    files,
                    frozenset(members or ()),
                )
            mine[pg] = groups[pg, ranks]
            if group is not None and group.enqueued is not None:
                mine[pg].enqueued[rank] = group.enqueued
        for call in calls[file]:
            if not call.p2p:
                mine[call.pg].calls[rank].setdefault(call.seq, []).append(call)
    return list(groups.values())


def _left_behind(groups: list[_Group], waiting: dict[int, RecorderCall]) -> dict[int, RecorderCall]:
    """Ranks with a call that most other ranks of the group finished: they wait for none of those."""
    of = {(group.pg, rank): group for group in reversed(groups) for rank in group.calls}
    counts: dict[tuple[int, int], tuple[int, int]] = {}  # group and call -> ranks that finished it, and all
    found: dict[int, RecorderCall] = {}
    for rank, call in waiting.items():
        group = of[call.pg, rank]
        key = id(group), call.seq
        if key not in counts:
            ranks = group.members or tuple(group.calls)
            counts[key] = sum(_has_finished(group, one, call.seq) for one in ranks), len(ranks)
        finished, every = counts[key]
        own = rank in group.calls if group.members is None else rank in group.of_members
        if 2 * (finished - (own and _has_finished(group, rank, call.seq))) > every - own:
            found[rank] = call
    return found


def _has_finished(group: _Group, rank: int, seq: int) -> bool:
    """Whether a rank finished a call. A dump can leave out the finished ones, and has later ones then."""
    calls = group.calls.get(rank, {})
    if seq in calls:
        return bool(calls[seq][0].finished)
    return _last_number(group, rank) > seq and all(entries[0].finished for n, entries in calls.items() if n < seq)


def _first_difference(
    facts: Facts, group: _Group, waiting: dict[int, RecorderCall], alone: dict[int, RecorderCall]
) -> Iterator[RecorderMismatch]:
    """The first collective in which the ranks of a group differ; nothing where all agree."""
    ranks = [r for r in group.files if (r in group.of_members if group.members else r in group.calls)]
    with_calls = [r for r in ranks if group.calls.get(r)]
    if len(ranks) < 2 or not with_calls:
        return
    for seq in _common_numbers(group, with_calls):
        entries = {r: group.calls[r][seq] for r in with_calls if seq in group.calls[r]}
        difference = _differ(entries)
        if difference is not None:
            kind, wrong, words = difference
            yield _row(facts, group, seq, kind, wrong, entries, words)
            return
        pending = [r for r, calls in entries.items() if not calls[0].finished]
        missing = [r for r in ranks if r not in entries and _last_number(group, r) < seq]
        if missing and pending:
            kind, words = _missing(entries[pending[0]][0], len(pending), missing, waiting, alone)
            yield _row(facts, group, seq, kind, missing, entries, words)
        elif pending:
            words = f"{_name(entries[pending[0]][0])}: {len(pending)} of {len(entries)} ranks have not finished it"
            yield _row(facts, group, seq, "stuck", pending, entries, words)
        if missing or pending:
            return


def _common_numbers(group: _Group, ranks: list[int]) -> list[int]:
    """Numbers of the calls from the first that the dumps of all these ranks still hold."""
    start = max(min(group.calls[r]) for r in ranks)
    return sorted({seq for r in ranks for seq in group.calls[r] if seq >= start})


def _last_number(group: _Group, rank: int) -> int:
    """The number of the last call that a rank enqueued, as its entries or its status say; 0 for none."""
    return max(max(group.calls.get(rank, ()), default=0), group.enqueued.get(rank, 0))


def _missing(
    call: RecorderCall,
    pending: int,
    missing: list[int],
    waiting: dict[int, RecorderCall],
    alone: dict[int, RecorderCall],
) -> tuple[str, str]:
    """(kind, words) for ranks that did not reach a call in which others wait."""
    words = f"{_name(call)}, in which {pending} other{' waits' if pending == 1 else 's wait'}"
    elsewhere = {r: waiting[r] for r in missing if r in waiting and r not in alone}
    stuck: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in (r for r in missing if r in alone):
        stuck[_name(alone[rank]), alone[rank].pg].append(rank)
    if stuck:
        for (name, pg), ranks in list(stuck.items())[:_SHOWN]:
            words += f"; {_named(ranks)} {'has' if len(ranks) == 1 else 'have'} not finished {name} of group {pg}, which the others have"
    elif elsewhere:
        rank, other = next(iter(elsewhere.items()))
        words += f"; rank {rank} waits in {_name(other)} of group {other.pg} meanwhile"
    return "missing" if len(elsewhere) < len(missing) else "elsewhere", words


def _differ(entries: dict[int, list[RecorderCall]]) -> tuple[str, list[int], str] | None:
    """(kind, ranks in the minority, words) where the same number is not the same call."""
    if len(entries) < 2:
        return None
    for place in range(min(len(calls) for calls in entries.values())):
        calls = {rank: mine[place] for rank, mine in entries.items()}
        ops = {rank: call.op for rank, call in calls.items()}
        if len(set(ops.values())) > 1:
            return "type", *_parties(ops, "")
        op = next(iter(ops.values()))
        if op in _SAME_SIZE:
            sizes = {rank: call.sizes for rank, call in calls.items()}
            if len(set(sizes.values())) > 1:
                return "size", *_parties(sizes, f"{op} with ")
        if op in _SAME_TYPE:
            types = {rank: call.dtypes for rank, call in calls.items()}
            if len(set(types.values())) > 1:
                return "dtype", *_parties(types, f"{op} of ")
    return None


def _parties(said: dict[int, str], before: str) -> tuple[list[int], str]:
    """The ranks that differ from the most, and who says what."""
    counts = Counter(said.values()).most_common()
    words = "; ".join(
        f"{before}{value} on {_named([r for r, v in said.items() if v == value])}" for value, _ in counts[:3]
    )
    usual = counts[0][0]
    even = len(counts) > 1 and counts[0][1] == counts[1][1]
    return [r for r, v in said.items() if even or v != usual], words


def _row(
    facts: Facts,
    group: _Group,
    seq: int,
    kind: str,
    ranks: list[int],
    entries: dict[int, list[RecorderCall]],
    words: str,
) -> RecorderMismatch:
    refs = []
    for rank in [r for r in ranks if r not in entries][:_SHOWN]:
        latest = max(group.calls[rank], default=None) if rank in group.calls else None
        if latest is not None:
            refs.append(_evidence(facts, group.calls[rank][latest][-1], "last entry of "))
    named = set(ranks)
    others = [r for r in entries if r not in named]
    shown = [r for r in ranks if r in entries][:_SHOWN] + others[:2]
    refs += [_evidence(facts, entries[r][0]) for r in shown]
    call = entries[min(entries)][0]
    pending = sum(not calls[0].finished for calls in entries.values())
    return RecorderMismatch(
        pg=group.pg, description=group.description, seq=seq, kind=kind, ranks=_list(ranks),
        rank=ranks[0] if len(ranks) == 1 else None, what=words, op=call.op, waiting=pending, frame=call.frame,
        ref=refs[0], refs=",".join(map(str, refs)),
    )  # fmt: skip


def _evidence(facts: Facts, call: RecorderCall, what: str = "") -> int:
    text = (
        f"{what}rank {call.rank}, group {call.pg}, number {call.seq}: {call.op} {call.sizes} {call.dtypes} {call.state}"
    )
    text += ", finished" if call.finished else ", not finished"
    return facts.evidence(call.file, call.entry, text + (f", called by {call.frame}" if call.frame else ""))


def _unanswered(
    facts: Facts, files: dict[int, str], calls: dict[str, list[RecorderCall]], groups: list[_Group], busy: set[int]
) -> Iterator[RecorderMismatch]:
    """Sends and receives that wait, and whose other end does not wait for them.

    Ranks that are `busy` wait in a collective, which is why they do not answer.
    """
    members = {group.pg: group.members for group in groups if group.members}
    waiting: dict[tuple[str, str, int, int], RecorderCall] = {}  # group, what, from, to
    for file in files.values():
        for call in calls[file]:
            match = _P2P.match(call.op) if call.p2p and not call.finished else None
            if match:
                own, other = int(match[2]), int(match[4])
                ends = (own, other) if match[1] == "send" else (other, own)
                waiting.setdefault((call.pg, match[1], *ends), call)
    for (pg, what, source, target), call in sorted(waiting.items(), key=lambda item: item[1].created or 0):
        answer = "recv" if what == "send" else "send"
        if (pg, answer, source, target) in waiting:
            continue
        other = target if what == "send" else source
        known = members.get(pg)
        rank = known[other] if known and other < len(known) else other
        if rank not in files:
            continue
        ref = _evidence(facts, call)
        words = f"{call.op} of rank {call.rank}, to which rank {rank} has no {answer} that waits"
        yield RecorderMismatch(
            pg=pg, description=None, seq=call.seq, kind="p2p-busy" if rank in busy else "p2p", ranks=str(rank), rank=rank,
            what=words, op=call.op, waiting=1, frame=call.frame, ref=ref, refs=str(ref),
        )  # fmt: skip


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_list(ranks)}"


def _name(call: RecorderCall) -> str:
    return f"{call.op} (number {call.seq})"


def _list(ranks: list[int]) -> str:
    """`0-3,7`: ranks in order, neighbours as one range."""
    parts: list[str] = []
    ordered = sorted(ranks)
    start = 0
    for index in range(1, len(ordered) + 1):
        if index == len(ordered) or ordered[index] != ordered[index - 1] + 1:
            low, high = ordered[start], ordered[index - 1]
            parts.append(str(low) if low == high else f"{low}-{high}")
            start = index
    return ",".join(parts)
