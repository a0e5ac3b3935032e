"""Samples of the stacks of a Python process, as `py-spy record` writes them: flame graphs, collapsed stacks, files for speedscope, traces.

Collapsed stacks are also what `export_stacks` of torch.profiler writes. Threads beside the main one and the workers of a loader
count only where nothing else was sampled. py-spy leaves out threads that wait, unless it was told `--idle`.
"""

import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProfileShare, ProfileSum
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.profiles import stack_frames
from nccl_doctor.formats.profiles.stack_events import Stay, stays_of_profile, stays_of_trace
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

TOOL = "samples of stacks"
REPORT = "samples"
_HEAD = 1 << 10
_LARGEST = 64 << 20  # bytes of a flame graph and of a file for speedscope
_DEEPEST = 1_000  # frames
_FUNCTIONS = 100_000
_BOXES = 50_000  # of a flame graph
_KEPT = 20  # functions that become rows
_SHOWN = 400  # characters of a stack in its evidence
_KINDS = {
    "collective": "communication",
    "rendezvous": "communication",
    "cuda-sync": "waiting for the GPU",
    "dataloader": "loading data",
    "checkpoint": "checkpoints",
    "compiling": "compiling",
    "backward": "backward",
}
_MORE_KINDS = (
    ("optimizer", re.compile(r"torch/optim/|apex/optimizers/")),
    ("importing", re.compile(r"importlib\._bootstrap")),
    ("forward", re.compile(r"torch/nn/modules/|keras/src/(?:layers|models)/")),
)
_FRAME = re.compile(r"(?P<name>.{1,600}) \((?P<file>[^()]{1,400}?)(?::\d{1,9})?\)$")
_PROFILER_FRAME = re.compile(r"(?P<file>\S{1,400})\(\d{1,9}\): (?P<name>.{1,600})$")  # of torch.profiler
_THREAD = re.compile(r"thread \(\w{1,20}\): ?(.{0,200})$")
_PROCESS = re.compile(r"process \d{1,10}:")
_LIBRARY = re.compile(r"^/[^<>]{0,200}/lib/python3\.\d{1,2}/")
_COLLAPSED = re.compile(rb"(.{1,65536}?) (\d{1,15})\r?")
_BOX = re.compile(
    rb"<title>([^<]{1,4000}) \([\d,]{1,20} samples?, [\d.]{1,12}%\)</title><rect [^>]{0,200}? y=\"(\d{1,6})\"[^>]{0,200}?"
    rb" fg:x=\"(\d{1,15})\" fg:w=\"(\d{1,15})\"/>"
)
_LONGEST = 1e6  # seconds between two samples
_ALL = "all"  # the outermost box
_OUTERMOST = 8  # frames among which a thread shows that it is not the main one


class _Samples(NamedTuple):
    """Samples of one stack."""

    thread: str | None  # its name, where it is told
    frames: Sequence[str]  # as printed, outermost first
    n: int
    seconds: float | None
    line: int


class _Sum:
    """What was sampled of one kind, or of one kind in one function without those that it calls."""

    __slots__ = ("n", "place", "seconds")

    def __init__(self) -> None:
        self.n = 0
        self.seconds: float | None = 0.0
        self.place = 1, "", 0  # of the stack with most samples: line, text, samples

    def add(self, samples: _Samples) -> None:
        self.n += samples.n
        if self.seconds is not None:
            self.seconds = None if samples.seconds is None else self.seconds + samples.seconds
        if samples.n > self.place[2]:
            self.place = samples.line, ";".join(samples.frames)[-_SHOWN:], samples.n


class _Sums:
    """Samples by what the process did, and by function."""

    def __init__(self) -> None:
        self.n = 0
        self._kinds: dict[str, _Sum] = {"other": _Sum()}
        self._functions: dict[tuple[str, str], _Sum] = {}

    def add(self, samples: _Samples) -> None:
        self.n += samples.n
        kind, function = kind_of(samples.frames), _shown(samples.frames[-1])
        self._kinds.setdefault(kind, _Sum()).add(samples)
        if len(self._functions) < _FUNCTIONS or (kind, function) in self._functions:
            self._functions.setdefault((kind, function), _Sum()).add(samples)

    def rows(self, facts: Facts, file: str) -> Iterator[ProfileShare | ProfileSum]:
        """The kinds, and the functions with most samples."""
        for kind, of in self._kinds.items():
            rows = sum(1 for key in self._functions if key[0] == kind)
            total = None if of.seconds is None else 1000 * of.seconds
            yield ProfileShare(file, TOOL, REPORT, kind, rows, of.n, total, facts.evidence(file, *of.place[:2]))
        longest = sorted(self._functions.items(), key=lambda item: -item[1].n)
        for (kind, function), of in longest[:_KEPT]:
            total = None if of.seconds is None else 1000 * of.seconds
            ref = facts.evidence(file, *of.place[:2])
            yield ProfileSum(file, TOOL, REPORT, kind, function, of.n, total, 100 * of.n / self.n, None, ref)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all samples of a file.

    Source: flamegraph.rs, speedscope.rs and chrometrace.rs of py-spy 0.3 and 0.4, inferno 0.11; `export_stacks` in
    torch/autograd/profiler_util.py::

        <module> (train.py:66);main (train.py:53);backward (torch/autograd/__init__.py:395) 149
        <title>main (train.py:53) (149 samples, 41.50%)</title><rect x="0.0000%" y="52" width="41.5042%" … fg:x="0" fg:w="149"/>
        {"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[{"type":"sampled",…
        [{"args":{"filename":"train.py","line":53},"cat":"py-spy","name":"main","ph":"B","pid":41,"tid":41,"ts":56866},…
    """
    facts.mark_covered("profile_sum", "profile_share")
    main, others = _Sums(), _Sums()
    head = read_head(stream, _HEAD)
    lines = used = 0
    broken, boxes = False, 0
    parts: Iterator[Iterator[_Samples]]
    if head.lstrip().startswith((b"{", b"<?xml", b"[{")):
        data = head + read_head(stream, _LARGEST + 1 - len(head))
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        if len(data) > _LARGEST:
            return Reading(lines, 0, f"is larger than {_LARGEST >> 20} MiB and was not read")
        boxes = data.count(b"</title>")
        broken = not data.rstrip().endswith((b"}", b"</svg>", b"}]"))
        parts = iter([_of_boxes(data) if data.lstrip().startswith(b"<") else _of_document(data)])
    else:
        parts = (_of_lines(block.data, block.first) for block in blocks(Joined(head, stream)))
    for part in parts:
        for samples in part:
            used += 1
            lines = max(lines, samples.line)
            if samples.frames:
                (others if _is_beside(samples) else main).add(samples)
    sums = main if main.n else others
    note = "is cut or damaged: what follows could not be read" if broken else None
    if not sums.n:
        note = (
            note
            or "holds no sample: py-spy leaves out threads that wait, unless it is told `--idle`; `py-spy dump --pid PID` shows them"
        )
        return Reading(lines, used, note)
    facts.add(sums.rows(facts, name))
    if boxes > _BOXES:
        note = f"holds more than {_BOXES:,} boxes; the others were left out"
    return Reading(lines, used, note)


def kind_of(frames: Sequence[str]) -> str:
    """What a process does with this stack, by the innermost frame that shows it."""
    return next((kind for frame in reversed(frames) if (kind := _kind(frame)) is not None), "other")


@lru_cache(1 << 14)
def _kind(frame: str) -> str | None:
    function, file = _parse(frame)
    kind = _KINDS.get(stack_frames.kind_of(function, file) or "")
    return kind or next((more for more, pattern in _MORE_KINDS if pattern.search(file)), None)


@lru_cache(1 << 14)
def _parse(frame: str) -> tuple[str, str]:
    """Function and file of a frame."""
    found = _FRAME.match(frame) or _PROFILER_FRAME.match(frame)
    return (frame, "") if found is None else (found["name"], found["file"])


@lru_cache(1 << 14)
def _shown(frame: str) -> str:
    function, file = _parse(frame)
    return f"{function} ({file})" if file else function


def _is_beside(samples: _Samples) -> bool:
    """Whether samples are of another thread than the main one, or of a worker that loads data."""
    if samples.thread and samples.thread != "MainThread":
        return True
    outer = samples.frames[:_OUTERMOST]
    if any(frame.startswith(("Thread._bootstrap (", "_bootstrap (threading.py")) for frame in outer):
        return True
    return any(frame.startswith("_worker_loop (torch/utils/data/") for frame in samples.frames)


def _of_lines(data: bytes, first: int) -> Iterator[_Samples]:
    """The samples of collapsed stacks."""
    for number, line in enumerate(data.split(b"\n"), first):
        if (found := _COLLAPSED.fullmatch(line)) is None:
            continue
        frames = found[1].decode("utf-8", "replace").split(";")[:_DEEPEST]
        if _PROCESS.match(frames[0]) is not None:
            frames = frames[1:]
        thread = _THREAD.match(frames[0]) if frames else None
        yield _Samples(thread and thread[1], frames[1:] if thread else frames, int(found[2]), None, number)


def _of_boxes(data: bytes) -> Iterator[_Samples]:
    """The samples of a flame graph: each box lies on that of its caller, and what no box lies on was sampled in the function itself."""
    rows: dict[int, list[tuple[int, int, str]]] = {}  # height -> begin, width, frame
    for box in islice(_BOX.finditer(data), _BOXES):
        frame = html.unescape(box[1].decode("utf-8", "replace"))
        rows.setdefault(int(box[2]), []).append((int(box[3]), int(box[4]), frame))
    heights = sorted(rows)
    if heights and any(frame == _ALL for *_, frame in rows[heights[-1]]):  # drawn from below
        heights.reverse()
    starts = [sorted(rows[height]) for height in heights[:_DEEPEST]]
    own = [[width for _, width, _ in row] for row in starts]
    callers: list[list[int]] = [[-1] * len(row) for row in starts]
    for depth in range(1, len(starts)):
        begins = [begin for begin, _, _ in starts[depth - 1]]
        for at, (begin, width, _) in enumerate(starts[depth]):
            caller = bisect_right(begins, begin) - 1
            if caller >= 0 and begin + width <= begins[caller] + starts[depth - 1][caller][1]:
                callers[depth][at] = caller
                own[depth - 1][caller] -= width
    for depth, row in enumerate(starts):
        for at in range(len(row)):
            if own[depth][at] <= 0:
                continue
            frames, place = [], at
            for level in range(depth, -1, -1):
                frames.append(starts[level][place][2])
                place = callers[level][place]
                if place < 0:
                    break
            frames.reverse()
            frames = frames[1:] if frames[0] == _ALL else frames
            thread = _THREAD.match(frames[0]) if frames else None
            yield _Samples(thread and thread[1], frames[1:] if thread else frames, own[depth][at], None, 1)


def _of_document(data: bytes) -> Iterator[_Samples]:
    """The samples of a trace, or of a file for speedscope."""
    try:
        top = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(top, list):
        yield from map(_of_stay, stays_of_trace(top))
        return
    shared = top.get("shared") if isinstance(top, dict) else None
    listed = shared.get("frames") if isinstance(shared, dict) else None
    names = [_named(frame) for frame in listed] if isinstance(listed, list) else []
    profiles = top.get("profiles") if isinstance(top, dict) else None
    for profile in profiles if isinstance(profiles, list) else []:
        if isinstance(profile, dict) and profile.get("type") == "sampled":
            yield from _of_profile(profile, names)
        elif isinstance(profile, dict) and profile.get("type") == "evented":
            yield from map(_of_stay, stays_of_profile(profile, names))


def _of_stay(stay: Stay) -> _Samples:
    return _Samples(None, [_shortened(frame) for frame in stay.frames], stay.n, stay.seconds, 1)


@lru_cache(1 << 14)
def _shortened(frame: str) -> str:
    function, file = _parse(frame)
    return f"{function} ({_below(file)})" if file else function


def _of_profile(profile: dict[str, Any], names: list[str]) -> Iterator[_Samples]:
    stacks, weights = profile.get("samples"), profile.get("weights")
    thread = re.search(r'Thread \w{1,20} "([^"]{0,200})"', str(profile.get("name")))
    in_seconds = profile.get("unit") == "seconds"
    for at, stack in enumerate(stacks if isinstance(stacks, list) else []):
        weight = weights[at] if isinstance(weights, list) and at < len(weights) else None
        seconds = None
        if in_seconds and isinstance(weight, (int, float)) and 0 <= weight < _LONGEST:
            seconds = float(weight)
        places = stack[:_DEEPEST] if isinstance(stack, list) else []
        frames = [names[one] for one in places if isinstance(one, int) and 0 <= one < len(names)]
        yield _Samples(thread and thread[1], frames, 1, seconds, 1)


def _named(frame: Any) -> str:
    """A frame of speedscope as py-spy prints it elsewhere."""
    if not isinstance(frame, dict):
        return "?"
    file = frame.get("file")
    return f"{frame.get('name')} ({_below(str(file))})" if file else str(frame.get("name"))


def _below(path: str) -> str:
    """A path as py-spy shortens it elsewhere: below the folder of the packages."""
    for folder in ("/site-packages/", "/dist-packages/"):
        path = path.rpartition(folder)[2]
    return _LIBRARY.sub("", path)
