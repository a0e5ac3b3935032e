"""DeepSpeed's communication logger: one timed collective a line (`comms_logger` with `verbose`), and the table of `log_summary`."""

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.common.robust import median
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CommOp
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_LINE = compiled(
    rb"(?:rank[:=] ?(\d{1,9}) \|)? ?comm op: (\w+)[^|]{0,200}\| time \(ms\): (\d+(?:\.\d*)?) \| msg size: (\d+(?:\.\d*)?) ?([KMGT]?B)"
    rb"(?: \| algbw \(Gbps\): [\d.]+ \| busbw \(Gbps\): (\d+(?:\.\d*)?))?"
)
_GRADIENTS = compiled(
    rb"(?:\[Rank (\d{1,9})\] )?(?:rank=\d{1,9} )?time \(ms\) \| .{0,200}?(?:bwd|backward)_allreduce: (\d{1,15}(?:\.\d{1,9})?)"
)
_LONGEST_RANK = 20  # bytes of `rank=3 | `
GRADIENTS = "backward_allreduce"
_UNITS = {b"B": 1, b"KB": 1 << 10, b"MB": 1 << 20, b"GB": 1 << 30, b"TB": 1 << 40}
_COMM_HEADS = re.compile(rb"\] comm op: \w|Comm\. Op {6,20}Message Size {4,20}Count ")
_RANK = re.compile(r"\[Rank (\d{1,9})\] (?=comm op: )")
_OP_TITLE = re.compile(r"[a-z]\w{2,60}\s*$")
_OP_ROW = re.compile(
    r"\s{10,40}(\d{1,12}(?:\.\d)?) ?([KMGT]?B)\s+(\d{1,12})\s+[\d.]{1,20}\s+(\d{1,12}\.\d{1,4})\s+[\d.]{1,20}"
    r"\s+(\d{1,12}\.\d{1,4})\s*$"
)
_MOST = 2_000  # rows of tables
_LONGEST = 1_000  # bytes of a line whose form is remembered
_KEEP = 2_000  # times kept of one operation and size


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lines of a log that `log_dist` prints, and the tables of `log_summary`; the table of stragglers is left out.

    Source: deepspeed/utils/comms_logging.py, 0.7 to 0.19::

        [2026-05-07 12:00:01,483] [INFO] [logging.py:123:log_dist] [Rank 0] comm op: all_reduce | time (ms): 20.17 | msg size: 4.0 B | …
        Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg …
        all_reduce
                            386.0 KB            30                  2854.96             91.71               0.10                0.05
    """
    facts.mark_covered("comm_op")
    ops = CommOps()
    sections = Sections(stream, _COMM_HEADS)
    op: str | None = None  # that the rows of a table are of
    in_table = False
    rows: list[CommOp] = []
    used = 0
    for number, label, text in sections:
        if "comm op: " in text:
            rank = _RANK.search(text)
            line = text if rank is None else f"rank={rank[1]} | {text[rank.end() :]}"
            taken = ops.note(line.encode(), number)
        elif "Comm. Op" in text:
            op, in_table, taken = None, "busbw" in text, 1
        elif in_table and _OP_TITLE.match(text):
            op, taken = text.strip(), 1
        elif in_table and op is not None and (row := _OP_ROW.match(text)) is not None:
            taken = 1
            if len(rows) < _MOST and row[1] != "0":
                size = round(float(row[1]) * _UNITS[row[2].encode()])
                ref = facts.evidence(name, number, f"{op} {text.strip()}")
                rows.append(
                    CommOp(label.host, label.rank, op, size, int(row[3]), float(row[4]), None, float(row[5]), ref)
                )
        else:
            in_table, taken = in_table and not text.strip(), 0
        if taken:
            sections.used()
        used += taken
    facts.add(ops.rows(facts, name))
    seen = ops.sizes()
    facts.add(row for row in rows if (row.op, row.size) not in seen)
    return Reading(sections.lines, used)


class _Times:
    def __init__(self, number: int, line: bytes) -> None:
        self.n = 0
        self.times: list[float] = []
        self.busbw: list[float] = []
        self.slowest = 0.0
        self.place = number, line


def _parse(line: bytes) -> re.Match[bytes] | None:
    at = line.find(b"comm op: ")
    begin = line.find(b"rank", max(at - _LONGEST_RANK, 0), max(at, 0))
    return (_LINE.match(line, begin) if begin >= 0 else None) or _LINE.match(line, max(at, 0)) or _LINE.search(line)


class CommOps:
    """Folds the lines of a log."""

    def __init__(self) -> None:
        self._found: dict[tuple[int | None, str, int | None], _Times] = {}
        self._words: dict[bytes, Callable[[bytes], tuple[bytes, ...]]] = {}  # line without digits -> its groups
        self._keys: dict[tuple[bytes | Any, ...], tuple[int | None, str, int]] = {}  # by the bytes that say them

    def note(self, line: bytes, number: int) -> int:
        """Take a line; 1 where it was one of these."""
        shape = line.translate(prefixes.ZEROS)
        words = self._words.get(shape)
        if words is None:
            match = _parse(line)
            if match is None:
                return 0
            if len(self._words) >= _KEEP:
                self._words.clear()
            # a group that is not there is empty
            words = itemgetter(*(slice(max(start, 0), max(stop, 0)) for start, stop in match.regs[1:]))
            if len(line) <= _LONGEST:
                self._words[shape] = words
        rank, op, time, size, unit, busbw = words(line)
        parts = rank, op, size, unit
        key = self._keys.get(parts)
        if key is None:
            key = int(rank) if rank else None, op.decode(), round(float(size) * _UNITS[unit])
            if len(self._keys) < _KEEP:
                self._keys[parts] = key
        self._add(key, float(time), float(busbw) if busbw else None, number, line)
        return 1

    def note_gradients(self, line: bytes, number: int) -> None:
        """Take a line of the engine's timers: how long the gradients of one step were reduced."""
        match = _GRADIENTS.search(line)
        if match is not None:
            self._add((int(match[1]) if match[1] else None, GRADIENTS, None), float(match[2]), None, number, line)

    def _add(
        self, key: tuple[int | None, str, int | None], value: float, busbw: float | None, number: int, line: bytes
    ) -> None:
        times = self._found.get(key)
        if times is None:
            times = self._found[key] = _Times(number, line)
        times.n += 1
        if times.n <= _KEEP:
            times.times.append(value)
            if busbw is not None:
                times.busbw.append(busbw)
        if value > times.slowest:
            times.slowest, times.place = value, (number, line)

    def sizes(self) -> set[tuple[str, int | None]]:
        """Operations and sizes of the lines so far; a table prints sizes with one decimal, as the lines do."""
        return {(op, size) for _, op, size in self._found}

    def rows(self, facts: Facts, file: str) -> Iterator[CommOp]:
        """One row for each rank, operation and size."""
        for (rank, op, size), times in self._found.items():
            number, line = times.place
            text = prefixes.clean(line[:600].decode("utf-8", "replace"))
            busbw = median(times.busbw) if times.busbw else None
            ref = facts.evidence(file, number, text)
            host = prefixes.split(text)[0].host
            yield CommOp(
                host=host, rank=rank, op=op, size=size, n=times.n, milliseconds=median(times.times),
                slowest=times.slowest, busbw=busbw, ref=ref,
            )  # fmt: skip
