"""Stacks as `py-spy dump` prints them, as text or with --json (py-spy 0.3 and 0.4, dump.rs).

Frames are innermost first. Forked workers carry the frames and the command line of the process that started them, so that a
stack is judged from its innermost frame on.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.stacks import Stack
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.profiles.stack_frames import kind_of
from nccl_doctor.inputs import prefixes
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, plain_lines


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


_PROCESS = re.compile(r"Process (\d+): (.*)$")
_PARENT = re.compile(r"Parent Process (\d+): ")
_THREAD = re.compile(r"Thread (0x[0-9A-Fa-f]+|\d+) \((idle|active)(\+gil)?\)(?:: \"(.*)\")?\s*$")
_FRAME = re.compile(r"\s*(\S.*) \(([^()]*?)(?::(\d+))?\)\s*$")
_MOST_FRAMES = 500
_LONGEST = 64 << 20  # bytes of a dump in JSON


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


def parse_text(numbered: Iterable[tuple[int, int | None, str]]) -> Iterator[tuple[Dump, int | None]]:
    """The dumps of `py-spy dump` and their ranks, from (line, rank of its prefix, text without prefix) of any lines."""
    dump: Dump | None = None
    ranks: dict[int, int] = {}
    for number, rank, text in numbered:
        if match := _PROCESS.match(text):
            if dump is not None and dump.threads:
                yield dump, ranks.get(dump.pid)
            dump = Dump(int(match[1]), match[2].strip(), None, [], number)
            if rank is not None:
                ranks[dump.pid] = rank
        elif dump is None:
            continue
        elif match := _PARENT.match(text):
            dump = dump._replace(parent=int(match[1]))
        elif match := _THREAD.match(text):
            thread = Thread(
                dump.pid, int(match[1], 0), match[4], match[2] == "active", match[3] is not None, [], number
            )
            dump.threads.append(thread)
        elif (match := _FRAME.match(text)) and dump.threads:
            if len(dump.threads[-1].frames) < _MOST_FRAMES:
                dump.threads[-1].frames.append(Frame(match[1], match[2], int(match[3] or 0)))
        elif text.strip() and not text.startswith(("Python v", "---")):
            if dump.threads:
                yield dump, ranks.get(dump.pid)
            dump = None
    if dump is not None and dump.threads:
        yield dump, ranks.get(dump.pid)


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


def rows(
    facts: Facts, file: str, dumps: Iterable[Dump], host: str | None, ranks: dict[int, int], job: str | None = None
) -> int:
    """Add the threads of these processes; `ranks` maps process ids. Returns how many there were."""
    made = []
    for dump in dumps:
        main = main_thread(dump)
        for number, thread in enumerate(dump.threads):
            kind, frame = doing(thread)
            inner = leaf(thread)
            shown = [str(one) for one in thread.frames]
            text = f"Thread {thread.number} {thread.name or ''}: {' < '.join(shown[:12])}"
            ref = facts.evidence(file, thread.line if thread.line > 1 else dump.line + number, text)
            rank = ranks.get(dump.pid, ranks.get(dump.parent or -1))
            made.append(
                Stack(
                    host=host, rank=rank, pid=dump.pid, parent=dump.parent, thread=thread.name,
                    main=int(thread is main), active=int(thread.active), gil=int(thread.gil), doing=kind,
                    frame=str(frame) if frame else None, leaf=str(inner) if inner else None,
                    frames=len(thread.frames), job=job, ref=ref,
                )
            )  # fmt: skip
    facts.add(made)
    facts.mark_covered("stack")
    return len(made)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the stacks of a file or log. The name of a file may give the rank (`rank3`).

    Source: `py-spy dump [--json]`, src/dump.rs of py-spy 0.3 and 0.4::

        Thread 4242 (idle): "MainThread"
            wait (torch/distributed/distributed_c10d.py:2806)
    """
    counter = _Counter()
    dumps: list[Dump] = []
    ranks: dict[int, int] = {}
    head = stream.read(1 << 16)
    joined = Joined(head, stream)
    if head.lstrip()[:1] == b"[":
        content = bytearray()
        while len(content) < _LONGEST and (piece := joined.read(1 << 20)):
            content += piece
        counter.lines = content.count(b"\n") + 1
        dumps = parse_json(content.decode("utf-8", "replace"))
    else:
        for dump, rank in parse_text(counter.counted(plain_lines(joined))):
            dumps.append(dump)
            if rank is not None:
                ranks[dump.pid] = rank
    rank_in_name = re.search(r"rank[-_.]?(\d{1,6})", name.rpartition("/")[2])
    tops = [dump for dump in dumps if dump.parent is None]
    if rank_in_name and len(tops) == 1:
        ranks[tops[0].pid] = int(rank_in_name[1])
    return Reading(counter.lines, rows(facts, name, dumps, None, ranks), None if dumps else "holds no stack of py-spy")


class _Counter:
    """Counts the lines of a stream."""

    def __init__(self) -> None:
        self.lines = 0

    def counted(self, numbered: Iterable[tuple[int, prefixes.Label, str]]) -> Iterator[tuple[int, int | None, str]]:
        for number, label, text in numbered:
            self.lines = number
            yield number, label.rank, text
