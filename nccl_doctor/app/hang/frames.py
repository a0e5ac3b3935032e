"""What the stack of a rank says: where the program itself is, in which collective it waits, which step it counts.

Input is the text of `py-spy dump --full-filenames --locals`. Values of variables are read for step counters only, and removed::

    Thread 4001 (idle): "MainThread"
        all_reduce (/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2806)
        train (/home/user/train.py:40)
            Locals:
                step: 120
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from nccl_doctor.formats.profiles import pyspy
from nccl_doctor.formats.profiles.stack_frames import kind_of
from nccl_doctor.inputs.prefixes import NOTHING

COUNTERS = ("global_step", "step", "iteration", "iter", "it", "batch_idx", "batch_index", "i")
_LIBRARY = re.compile(
    r"(?<![^/])(?:site-packages|dist-packages|lib(?:64)?/python3\.\d+(?:/lib-dynload)?)/|^<frozen |^/tmp/torchinductor"
)
_PYTHON = re.compile(r"\.pyx?$|^<(?!frozen )")
_LOCAL = re.compile(r"^\s{12}(\w+): (\d{1,15})$")
_LONGEST = 1000  # characters of a source line
# Calls into C that leave no Python frame of their own, by the text of the line that makes them.
_CALLS = (
    ("collective", re.compile(
        r"\.(All(?:reduce|gather|toall)\w{0,12}|Bcast|Reduce\w{0,12}|Gatherv?|Scatterv?|Barrier|Sendrecv|Recv|Wait\w{0,4})\("
    )),
    ("collective", re.compile(r"(?:comm|COMM_WORLD|world)\w{0,20}\.(all\w{1,20}|bcast|reduce|gather|scatter|barrier|sendrecv|recv)\(")),
    ("collective", re.compile(r"\.(wait)\(")),
    ("cuda-sync", re.compile(r"\.(synchronize|item|cpu|tolist|numpy)\(")),
)  # fmt: skip


class Reading(NamedTuple):
    """The stack of one rank."""

    text: str  # without values of variables, with short file names
    place: str  # changes when the main thread, or a loader worker, is elsewhere
    doing: str | None  # where the source line says more than the frames
    op: str | None  # the collective
    site: str | None  # train (train.py:40)
    worker: str | None  # frame of the program in a loader worker that makes a sample
    counter: str | None
    step: int | None


def read_stack(text: str, pid: int, proc: Path = Path("/proc")) -> Reading:
    """Returns what the dump of one process shows."""
    plain, counters = _without_values(text)
    dumps = list(pyspy.parse_text([(1, NOTHING, plain)]))
    frames, doing, op, worker = [], None, None, None
    signature: list[str] = []
    for dump in dumps:
        main = pyspy.main_thread(dump)
        if main is None:
            continue
        if dump.pid == pid:
            frames = main.frames
            signature += map(str, frames)
            doing, op = _call(frames, pid, proc)
        elif pyspy.doing(main)[0] == "loader-worker":
            worker = worker or _site(main.frames)
            signature += map(str, main.frames)
    counter = next((name for name in COUNTERS if name in counters), None)
    place = hashlib.sha1("\n".join(signature).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:12]
    return Reading(
        "\n".join(map(_shortened, plain)), place, doing, op, _site(frames), worker, counter, counters.get(counter or "")
    )


def _without_values(text: str) -> tuple[list[str], dict[str, int]]:
    """Returns the lines without variables, and the counters of the innermost frames of main threads that have them."""
    lines: list[str] = []
    counters: dict[str, int] = {}
    main = first = False
    for line in text.split("\n"):
        if line.startswith("Process "):
            first = not lines
        if line.startswith("Thread "):
            main = first and '"MainThread"' in line
        if not line.startswith("        "):
            lines.append(line)
        elif main and (found := _LOCAL.match(line)) and found[1] in COUNTERS:
            counters.setdefault(found[1], int(found[2]))
    return lines, counters


def _shortened(line: str) -> str:
    """Returns the line of a frame with a short file name, another line as it is."""
    head, mark, place = line.rpartition(" (")
    return f"{head} ({short(place)}" if mark and head.startswith("    ") else line


def short(path: str) -> str:
    """Returns a path from the package on: `torch/distributed/distributed_c10d.py`, `train.py`."""
    last = next(reversed([*_LIBRARY.finditer(path)]), None)
    return path[last.end() :] if last is not None and last[0].endswith("/") else path.rpartition("/")[2]


def _site(frames: list[pyspy.Frame]) -> str | None:
    """Returns the innermost frame of the program itself, else the innermost of all."""
    own = next((one for one in frames if _PYTHON.search(one.file) and not _LIBRARY.search(one.file)), None)
    frame = own or next((frame for frame in frames if frame.line), None)
    return f"{frame.function} ({short(frame.file)}:{frame.line})" if frame is not None else None


def _call(frames: list[pyspy.Frame], pid: int, proc: Path) -> tuple[str | None, str | None]:
    """Returns what the innermost frames wait for and the name of the collective, by frame or by source line."""
    for frame in frames:
        kind = kind_of(frame.function, frame.file)
        if kind == "collective":
            return None, frame.function.rpartition(".")[2].strip("_")
        if kind is not None:
            return None, None
    line = _source_line(frames[0], pid, proc) if frames and frames[0].line else ""
    return next(((kind, found[1]) for kind, pattern in _CALLS if (found := pattern.search(line))), (None, None))


def _source_line(frame: pyspy.Frame, pid: int, proc: Path) -> str:
    """Returns the line of the program's source, as the process sees the file; empty if it cannot be read."""
    if _LIBRARY.search(frame.file) or not frame.file.endswith(".py"):
        return ""
    base = proc / str(pid) / ("root" if frame.file.startswith("/") else "cwd")
    try:
        path = base / frame.file.lstrip("/")
        if not path.is_file():
            return ""
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if number == frame.line:
                    return line[:_LONGEST].decode("utf-8", "replace")
    except OSError:
        pass
    return ""
