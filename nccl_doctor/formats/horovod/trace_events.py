"""Events of a Horovod timeline as arrays (horovod/common/timeline.cc).

Every event is written as `{"ph": "B", "name": "QUEUE", "ts": 12, "pid": 3},`: `B` begins, `E` ends, `X` is the tick of a rank
that is ready, `i` a mark of a cycle, `M` names a tensor. Up to 0.19 one event is a line and the array is never closed; later
nearly all stand on one line. Tensor names are not escaped, so the file may be no JSON at all: it is read by its fixed
beginnings of events, and only what another program wrote anew goes through a JSON parser first.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nccl_doctor.inputs.streams import Readable

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

CHUNK = 4 << 20  # bytes of text that become one set of arrays
BEGIN, END, TICK, MARK = ord("B"), ord("E"), ord("X"), ord("i")
_EVENT = b'{"ph": "'
_META = b'{"name": "process_'
_NAME = re.compile(rb'\{"name": "process_name", "ph": "M", "pid": (\d{1,9}), "args": \{"name": "([^\n]{0,900}?)"\}\}')
_ARGS = re.compile(rb', "args": \{"dtype": "(\w+)", "shape": "\[([\d, ]*)\]"')
_WRAPPER = re.compile(r"\s*\{\s*\"traceEvents\"\s*:\s*\[")
_DIGITS = 17  # digits of a time stamp in microseconds; a longer number is damage
_NAME_BYTES = 40  # the longest name of an activity has 25
_WIDTH = {"8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order of the file, one array a field."""

    phase: Ints  # BEGIN, END, TICK or MARK
    name: Ints  # number of the name for BEGIN, rank for TICK, else 0
    ts: Ints  # microseconds
    pid: Ints  # number of the tensor; -1 for MARK
    number: Ints  # place among the events of the file, from 1, without metadata

    def pick(self, chosen: npt.NDArray[Any]) -> "Events":
        """The events at these places, or where this is true."""
        return Events(*(column[chosen] for column in self._columns))

    def then(self, other: "Events") -> "Events":
        """These events, followed by the others."""
        return Events(*(np.concatenate(pair) for pair in zip(self._columns, other._columns, strict=True)))

    @property
    def _columns(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        return self.phase, self.name, self.ts, self.pid, self.number

    @property
    def size(self) -> int:
        return int(self.ts.size)


NONE = Events(*(np.zeros(0, np.int64) for _ in range(5)))
NAMES = 64  # names of activities that are told apart; Horovod has some 40
MOST = 4096  # tensors of which names and sizes are kept


class Parser:
    """Turns text into events; keeps the names of activities and tensors of one segment."""

    def __init__(self, number: int = 0) -> None:
        self.number = number  # events before this segment
        self.damaged: list[int] = []  # how many events came before each that is torn, of the first few
        self.torn = 0  # events that begin and do not end
        self.names: list[str] = []
        self.tensors: dict[int, str] = {}  # at most MOST
        self.bytes: dict[int, int] = {}  # size of a tensor where the file says it
        self._numbers: dict[int, int] = {}  # hash of a name -> its number

    def parse(self, text: bytes) -> Events:
        """The events of this text; an event that is cut at its end is left out."""
        for match in _NAME.finditer(text):
            if len(self.tensors) < MOST:
                self.tensors[int(match[1])] = match[2].decode("utf-8", "replace")
        padded = np.frombuffer(text + b"\0" * 64, np.uint8)
        starts = np.flatnonzero(padded == ord("{"))
        starts = starts[(padded[starts + 2] == ord("p")) & (padded[starts + 7] == ord('"'))]
        phase = padded[starts + 8].astype(np.int64)
        known = (phase == BEGIN) | (phase == END) | (phase == TICK) | (phase == MARK)
        starts, phase = starts[known], phase[known]
        quotes = np.flatnonzero(padded == ord('"'))
        if not starts.size or quotes.size < 2:
            return NONE
        named = phase != END
        # `{"ph": "B", "name": "` has 21 bytes; an end has no name, so its time follows the phase.
        closing = starts + 9
        behind = np.searchsorted(quotes, starts[named] + 21)
        closing[named] = quotes[np.minimum(behind, quotes.size - 1)]
        ts, stop = _number(padded, closing + 9)
        pid, last = _number(padded, np.minimum(stop + 9, len(text)))
        mark = phase == MARK
        pid[mark] = -1
        ended = np.where(mark, padded[stop], padded[np.minimum(last, len(text))])
        good = (padded[np.minimum(closing + 4, len(text))] == ord("t")) & ((ended == ord(",")) | (ended == ord("}")))
        name = np.zeros(starts.size, np.int64)
        ticks = good & (phase == TICK)
        name[ticks] = _number(padded, starts[ticks] + 21)[0]
        begins = good & (phase == BEGIN)
        name[begins] = self._name(text, padded, starts[begins] + 21, closing[begins])
        self._sizes(text, pid, last, good & (phase == END) & (ended == ord(",")))
        if not good.all():
            bad = np.flatnonzero(~good)
            self.torn += bad.size
            self.damaged += [self.number + int(good[:place].sum()) for place in bad[: 2 - len(self.damaged)]]
        number = self.number + 1 + np.arange(int(good.sum()))
        self.number += number.size
        return Events(phase[good], name[good], ts[good], pid[good], number)

    def _name(self, text: bytes, padded: Bytes, start: Ints, stop: Ints) -> Ints:
        """Numbers of names, by a hash of their bytes."""
        if not start.size:
            return start
        length = np.minimum(stop - start, _NAME_BYTES)
        code = length.astype(np.uint64)
        for offset in range(int(length.max())):
            inside = offset < length
            value = padded[start + np.where(inside, offset, 0)].astype(np.uint64)
            code = np.where(inside, code * np.uint64(1_099_511_628_211) + value, code)
        unique, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        numbers = np.empty(unique.size, np.int64)
        for index, value in enumerate(unique.tolist()):
            number = self._numbers.get(value)
            if number is None:
                at = int(first[index])
                number = min(len(self.names), NAMES - 1)
                self._numbers[value] = number
                if number == len(self.names):
                    self.names.append(text[int(start[at]) : int(start[at] + length[at])].decode("utf-8", "replace"))
            numbers[index] = number
        return numbers[inverse]

    def _sizes(self, text: bytes, pid: Ints, behind: Ints, ends: npt.NDArray[np.bool_]) -> None:
        """Learn the size of tensors that were not seen before."""
        where = np.flatnonzero(ends)
        pids, first = np.unique(pid[where], return_index=True)
        for tensor, at in zip(pids.tolist(), first.tolist(), strict=True):
            if tensor in self.bytes or len(self.bytes) >= MOST:
                continue
            start = int(behind[where[at]])
            match = _ARGS.match(text, start, start + 200)
            width = re.search(r"\d{1,9}$", match[1].decode()) if match else None
            if match and (width is None or width[0] in _WIDTH):
                elements = 1
                for part in match[2].split(b","):
                    elements *= int(part) if part.strip() else 1
                self.bytes[tensor] = elements * (_WIDTH[width[0]] if width else 1)


def _number(padded: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers that start at these places, and the places behind them."""
    value = np.zeros(at.size, np.int64)
    stop = at.copy()
    for _ in range(_DIGITS):
        digit = padded[np.minimum(stop, padded.size - 1)].astype(np.int64) - 48
        more = (digit >= 0) & (digit <= 9)
        if not more.any():
            break
        value = np.where(more, value * 10 + digit, value)
        stop = stop + more
    return value, np.minimum(stop, padded.size - 1)


def texts(stream: Readable) -> Iterator[bytes]:
    """The file in pieces that begin with an event; a last piece without a `}` at its end is cut there."""
    waiting = b""
    fixed: bool | None = None
    while data := stream.read(CHUNK):
        waiting += data
        if fixed is None:
            fixed = _EVENT in waiting or _META in waiting
        if not fixed:
            piece, waiting = _rewritten(waiting)
            yield piece
            continue
        cut = max(waiting.rfind(_EVENT), waiting.rfind(_META))
        if cut > 0:
            yield waiting[:cut]
            waiting = waiting[cut:]
        elif len(waiting) > 4 * CHUNK:
            return
    yield waiting


def _rewritten(text: bytes) -> tuple[bytes, bytes]:
    """Events that another program wrote, as Horovod would have written them, and what is left of the text."""
    decoder = json.JSONDecoder()
    plain = text.decode("utf-8", "surrogateescape")
    out: list[str] = []
    at = 0
    if wrapper := _WRAPPER.match(plain):
        at = wrapper.end()
    while True:
        while at < len(plain) and plain[at] in " \t\r\n,[":
            at += 1
        try:
            event, at = decoder.raw_decode(plain, at)
        except (ValueError, RecursionError):
            break
        if isinstance(event, dict) and isinstance(event.get("ph"), str):
            out.append(_written(event))
    return ",".join(out).encode() + b",", plain[at:].encode("utf-8", "surrogateescape")


def _written(event: dict[str, object]) -> str:
    order = ("name", "ph", "pid", "args") if event["ph"] == "M" else ("ph", "name", "ts", "pid", "s", "dur", "args")
    return json.dumps({key: event[key] for key in order if key in event})
