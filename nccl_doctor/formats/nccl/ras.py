"""RAS reports of NCCL in JSON (`ncclras -f json`, 2.28.7 and newer): every rank's counts, from which the ranks that are behind
or ahead of most others follow. `ras_text` reads the text form.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import RasComm, RasRank
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, line_numbers, lines

_MAX_BYTES = 256 << 20  # some 300,000 ranks
_BLOCK = 1 << 20
_OPERATIONS = 256  # of a communicator; NCCL has a score
_REPORT = 1000  # ranks of one communicator that are listed


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the reports of one file, one after the other.

    Source: `ncclras -f json`, src/ras/client_support.cc of NCCL 2.28.7 and newer::

        {"nccl_version": "2.28.7", "communicators_count": 1, "communicators": [
          {"hash": "0x1f2e", "size": 8, "ranks": [{"rank": 0, "host": "node01", "pid": 4242, "cuda_dev": 0, ...}]}]}
    """
    head = stream.read(_BLOCK)
    data = bytearray(head)
    joined = Joined(b"", stream)
    while len(data) < _MAX_BYTES and (block := joined.read(_BLOCK)):
        data += block
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    decoder, at, used, note = json.JSONDecoder(), 0, 0, None
    line_of = line_numbers(text)
    total = sum(1 for _ in lines(Joined(bytes(data), _Nothing())))
    while match := re.compile(r"\s*(?=\{)").match(text, at):
        at = match.end()
        line = line_of(at)
        try:
            report, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            note = f"ends in the middle of the report that starts in line {line}"
            break
        if isinstance(report, dict):
            used += 1
            facts.add(_rows(report, facts, name, _Places(text, at, end, line)))
        at = end
    facts.mark_covered("ras_comm", "ras_rank")
    return Reading(total, used, note)


class _Nothing:
    def read(self, _: int) -> bytes:
        return b""


class _Places:
    """Line numbers of names in one report."""

    def __init__(self, text: str, start: int, end: int, line: int) -> None:
        self._text, self._start, self._end, self._line = text, start, end, line

    def of(self, literal: str) -> tuple[int, str]:
        at = self._text.find(literal, self._start, self._end)
        if at < 0:
            return self._line, self._text[self._start : self._start + 200].split("\n")[0]
        begin = self._text.rfind("\n", 0, at) + 1
        line = self._line + self._text.count("\n", self._start, at)
        return line, self._text[begin : begin + 400].split("\n")[0].strip()


def _rows(report: dict[str, Any], facts: Facts, name: str, places: _Places) -> Iterator[RasComm | RasRank]:
    for comm in _list(report.get("communicators")):
        text = str(comm.get("hash", "?"))[:40]
        ref = facts.evidence(name, *places.of(f'"{text}"'))
        ranks, missing = _list(comm.get("ranks")), _list(comm.get("missing_ranks"))
        states = [rank["status"] if isinstance(rank.get("status"), dict) else {} for rank in ranks]
        failed = [bool(state.get("async_error")) or state.get("init_state") not in (None, 0, 7) for state in states]
        yield RasComm(
            text, _whole(comm.get("size")), len(ranks), _whole(comm.get("missing_ranks_count")) or len(missing),
            sum(failed), sum(bool(state.get("abort_flag")) for state in states), ref,
        )  # fmt: skip
        for rank in missing[:_REPORT]:
            dead = isinstance(rank.get("status"), dict) and bool(rank["status"].get("considered_dead"))
            yield _rank(text, rank, "dead" if dead else "missing", ref)
        for rank, bad in list(zip(ranks, failed, strict=True))[:_REPORT]:
            if bad:
                yield _rank(text, rank, "error", ref)
        yield from _apart(text, ranks, ref)


def _apart(comm: str, ranks: list[dict[str, Any]], ref: int) -> Iterator[RasRank]:
    """Ranks whose number of a collective is not that of most ranks; point-to-point counts differ by nature."""
    counts = [rank["collective_counts"] if isinstance(rank.get("collective_counts"), dict) else {} for rank in ranks]
    operations = {op for count in counts for op in count} - {
        "Send",
        "Recv",
        "SendRecv",
        "PutSignal",
        "Signal",
        "WaitSignal",
    }
    for op in sorted(operations)[:_OPERATIONS]:
        numbers = [_whole(count.get(op)) or 0 for count in counts]
        usual, often = Counter(numbers).most_common(1)[0]
        if often == len(numbers):
            continue
        if often * 2 <= len(numbers):  # no majority: a healthy rank has the highest
            usual = max(numbers)
        apart = [(rank, number) for rank, number in zip(ranks, numbers, strict=True) if number != usual]
        for rank, number in apart[:_REPORT]:
            yield _rank(comm, rank, "behind" if number < usual else "ahead", ref, op, number, usual)


def _rank(
    comm: str,
    rank: dict[str, Any],
    state: str,
    ref: int,
    op: str | None = None,
    calls: int | None = None,
    usual: int | None = None,
) -> RasRank:
    host = rank.get("host")
    return RasRank(
        comm=comm, rank=_whole(rank.get("rank")) or 0, host=host if isinstance(host, str) else None,
        pid=_whole(rank.get("pid")), gpu=_whole(rank.get("cuda_dev")), state=state, op=op, calls=calls,
        majority=usual, ref=ref,
    )  # fmt: skip


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
