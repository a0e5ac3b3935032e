"""Stacks as `py-spy dump` prints them, as text or with --json (py-spy 0.3 and 0.4, dump.rs).

Frames are innermost first. Forked workers carry the frames and the command line of the process that started them, so that a
stack is judged from its innermost frame on.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from nccl_doctor.facts.store import BATCH, Facts
from nccl_doctor.facts.tables.stacks import Stack
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.profiles.stack_frames import kind_of
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, plain_batches


class Frame(NamedTuple):
    """One call."""

    function: str
    file: str
    line: int  # 0 in native code

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})" if self.line else f"{self.function} ({self.file})"


class Thread(NamedTuple):
    """A thread and its frames, innermost first."""

    pid: int
    number: int | None  # of the operating system
    name: str | None
    active: bool
    gil: bool
    frames: list[Frame]
    line: int = 1  # in the dump


class Dump(NamedTuple):
    """One process."""

    pid: int
    command: str
    parent: int | None
    threads: list[Thread]
    line: int = 1
    label: Label = NOTHING  # of the prefix of its lines


_PROCESS = re.compile(r"Process (\d{1,18}): (.*)$")
_PARENT = re.compile(r"Parent Process (\d{1,18}): ")
_THREAD = re.compile(r"Thread (0x[0-9A-Fa-f]{1,16}|\d{1,18}) \((idle|active)(\+gil)?\)(?:: \"(.*)\")?\s*$")
_FRAME = re.compile(r"\s*(\S.*) \(([^()]*?)(?::(\d{1,18}))?\)\s*$")
_MOST_FRAMES = 500
_LONGEST = 64 << 20  # bytes of a dump in JSON
_HELD = 1024  # dumps of a text that are read before the first becomes facts: whether it is of one rank is known by then
_SHOWN = 12  # frames of a thread in its evidence
_REMEMBERED = 1 << 15  # lines of threads that are remembered
_ALTERNATIVES = 8  # threads with the same innermost frame that are remembered


def parse_json(text: str) -> list[Dump]:
    """The dumps of `py-spy dump --json`; empty where it is something else."""
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    processes: dict[int, list[Thread]] = {}
    parents: dict[int, tuple[str, int | None]] = {}
    for one in listed if isinstance(listed, list) else []:
        if not isinstance(one, dict) or not isinstance(one.get("frames"), list) or not isinstance(one.get("pid"), int):
            continue
        info = _dict(one.get("process_info"))
        parents.setdefault(
            one["pid"], (str(info.get("command_line") or ""), _int(_dict(info.get("parent")).get("pid")))
        )
        frames = [_frame(frame) for frame in one["frames"][:_MOST_FRAMES] if isinstance(frame, dict)]
        name = one.get("thread_name")
        processes.setdefault(one["pid"], []).append(
            Thread(one["pid"], _int(one.get("os_thread_id")), name if isinstance(name, str) else None,
                   bool(one.get("active")), bool(one.get("owns_gil")), frames)
        )  # fmt: skip
    return [Dump(pid, *parents[pid], threads) for pid, threads in processes.items()]


def _frame(frame: dict[str, Any]) -> Frame:
    file = frame.get("short_filename") or frame.get("filename") or "?"
    return Frame(str(frame.get("name") or "?"), str(file), _int(frame.get("line")) or 0)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def parse_text(batches: Iterable[tuple[int, Label, list[str]]]) -> Iterator[Dump]:
    """The dumps of `py-spy dump`, from runs of any lines: number of the first, fields of their prefix, texts without prefix."""
    dump: Dump | None = None
    frames: list[Frame] | None = None  # of the last thread of the dump
    known = _FrameRuns()
    for first, label, texts in batches:
        at = 0
        while at < len(texts):
            text, number = texts[at], first + at
            if frames is not None and text[:1] == " " and (run := known.of(texts, at)):
                frames += run[: _MOST_FRAMES - len(frames)]
                at += len(run)
                continue
            at += 1
            begin = text[:1]
            if not begin:
                continue
            if begin == "P" and (match := _PROCESS.match(text)):
                if frames is not None and dump is not None:
                    yield dump
                dump, frames = Dump(int(match[1]), match[2].strip(), None, [], number, label), None
            elif dump is None:
                continue
            elif begin == "P" and (match := _PARENT.match(text)):
                dump = dump._replace(parent=int(match[1]))
            elif begin == "T" and (match := _THREAD.match(text)):
                frames = []
                of_system = int(match[1], 16 if match[1].startswith("0x") else 10)
                dump.threads.append(
                    Thread(dump.pid, of_system, match[4], match[2] == "active", match[3] is not None, frames, number)
                )
            elif frames is not None and (frame := _parse_frame(text)):
                if len(frames) < _MOST_FRAMES:
                    frames.append(frame)
            elif text.strip() and not text.startswith(("Python v", "---")):
                if frames is not None:
                    yield dump
                dump = frames = None
    if frames is not None and dump is not None:
        yield dump


class _FrameRuns:
    """The frames of whole threads: those of a job print the same again and again."""

    def __init__(self) -> None:
        self._runs: dict[str, list[tuple[list[str], list[Frame]]]] = {}  # first line -> lines and frames of known runs
        self._lines = 0  # of all of them

    def of(self, texts: list[str], at: int) -> list[Frame]:
        """The frames in the lines from a place on that begin with a blank, up to one that is no frame."""
        runs = self._runs.get(texts[at])
        for lines, frames in runs or ():
            end = at + len(lines)
            if texts[at:end] == lines and not (end < len(texts) and texts[end][:1] == " "):
                return frames
        found = []
        for text in islice(texts, at, None):
            frame = _parse_frame(text) if text[:1] == " " else None
            if frame is None:
                break
            found.append(frame)
        if found and self._lines < _REMEMBERED and len(runs or ()) < _ALTERNATIVES:
            self._lines += len(found)
            self._runs.setdefault(texts[at], []).append((texts[at : at + len(found)], found))
        return found


@lru_cache(maxsize=4096)  # ranks of a job have the same frames
def _parse_frame(text: str) -> Frame | None:
    match = _FRAME.match(text)
    return Frame(match[1], match[2], int(match[3] or 0)) if match else None


def doing(thread: Thread) -> tuple[str, Frame | None]:
    """What a thread does, and the frame that shows it."""
    waits = False
    for frame in thread.frames:
        kind = kind_of(frame.function, frame.file)
        if kind == "queue":
            waits = True
        elif kind == "loader-worker" and waits:
            return "loader-idle", frame
        elif kind is not None:
            return kind, frame
    return "other", None


def leaf(thread: Thread) -> Frame | None:
    """The innermost frame of Python code."""
    return next((frame for frame in thread.frames if frame.line), thread.frames[0] if thread.frames else None)


def main_thread(dump: Dump) -> Thread | None:
    """The thread that runs the training program."""
    named = next((t for t in dump.threads if t.name == "MainThread" or t.number == dump.pid), None)
    return named or (dump.threads[0] if dump.threads else None)


class _Place(NamedTuple):
    """What the frames of a thread say: the columns of `stack`, and the words of its evidence."""

    doing: str
    frame: str | None
    leaf: str | None
    words: str


def _place(thread: Thread) -> _Place:
    kind, frame = doing(thread)
    inner = leaf(thread)
    words = " < ".join(map(str, thread.frames[:_SHOWN]))
    return _Place(kind, str(frame) if frame else None, str(inner) if inner else None, words)


def rows(
    facts: Facts, file: str, dumps: Iterable[Dump], host: str | None, ranks: dict[int, int], job: str | None = None
) -> int:
    """Add the threads of these processes; `ranks` maps process ids, before what prefixes say. Returns how many there were.

    A thread that is dumped again at the same place has the evidence of the first time.
    """
    before = 0
    places: dict[tuple[Frame, ...], _Place] = {}
    refs: dict[tuple[Label, int, int | None, str | None, _Place], int] = {}
    made: list[Stack] = []
    for dump in dumps:
        main = main_thread(dump)
        rank = ranks.get(dump.pid, ranks.get(dump.parent or -1, dump.label.rank))
        for number, thread in enumerate(dump.threads):
            frames = tuple(thread.frames)
            place = places.get(frames)
            if place is None:
                place = places[frames] = _place(thread)
            key = dump.label, dump.pid, thread.number, thread.name, place
            ref = refs.get(key)
            if ref is None:
                text = f"Thread {thread.number} {thread.name or ''}: {place.words}"
                line = thread.line if thread.line > 1 else dump.line + number
                ref = refs[key] = facts.evidence(file, line, text)
            made.append(
                Stack(
                    host=host or dump.label.host, rank=rank, pid=dump.pid, parent=dump.parent, thread=thread.name,
                    main=int(thread is main), active=int(thread.active), gil=int(thread.gil), doing=place.doing,
                    frame=place.frame, leaf=place.leaf, frames=len(frames), job=job, ref=ref,
                )
            )  # fmt: skip
        if len(made) >= BATCH:
            facts.add(made)
            before += len(made)
            made.clear()
    facts.add(made)
    facts.mark_covered("stack")
    return before + len(made)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the stacks of a file or log. The name of a file may give the rank (`rank3`).

    Source: `py-spy dump [--json]`, src/dump.rs of py-spy 0.3 and 0.4::

        Thread 4242 (idle): "MainThread"
            wait (torch/distributed/distributed_c10d.py:2806)
    """
    counter = _Counter()
    ranks: dict[int, int] = {}
    dumps: Iterator[Dump]
    head = stream.read(1 << 16)
    joined = Joined(head, stream)
    if begins_json(head):
        content = bytearray()
        while len(content) < _LONGEST and (piece := joined.read(1 << 20)):
            content += piece
        counter.lines = content.count(b"\n") + 1
        dumps = iter(parse_json(content.decode("utf-8", "replace")))
    else:
        dumps = parse_text(counter.counted(plain_batches(joined)))
    first = list(islice(dumps, _HELD))
    rank_in_name = re.search(r"rank[-_.]?(\d{1,6})", name.rpartition("/")[2])
    tops = [dump for dump in first if dump.parent is None]
    if rank_in_name and len(tops) == 1:
        ranks[tops[0].pid] = int(rank_in_name[1])
    made = rows(facts, name, chain(first, dumps), None, ranks)
    return Reading(counter.lines, made, None if first else "holds no stack of py-spy")


class _Counter:
    """Counts the lines of a stream."""

    def __init__(self) -> None:
        self.lines = 0

    def counted(self, batches: Iterable[tuple[int, Label, list[str]]]) -> Iterator[tuple[int, Label, list[str]]]:
        for first, label, texts in batches:
            self.lines = first + len(texts) - 1
            yield first, label, texts
