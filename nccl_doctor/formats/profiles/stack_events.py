"""Stacks as functions that begin and end: the traces of `py-spy record --format chrometrace`, and profiles of speedscope with events.

How long a stack was there counts in samples of a hundredth of a second. py-spy writes nothing while a thread waits: in a trace the
time that it waited belongs to the function in which it was seen before.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_A_SECOND = 100  # samples: the usual rate of py-spy
_DEEPEST = 1_000  # frames
_LONGEST = 1e6  # seconds between two events
_MICROSECOND = 1e-6
_UNITS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}


class Stay(NamedTuple):
    """A thread that stayed in one stack."""

    frames: tuple[str, ...]  # outermost first
    n: int  # samples
    seconds: float


class _Event(NamedTuple):
    thread: object
    frame: str
    begins: bool
    at: float  # seconds


def stays_of_trace(events: Iterable[Any]) -> Iterator[Stay]:
    """The stays of all threads in the events of a trace: `{"name": …, "ph": "B", "pid": 1, "tid": 2, "ts": 56866, "args": {…}}`."""
    return _stays(found for event in events if (found := _traced(event)) is not None)


def stays_of_profile(profile: dict[str, Any], names: list[str]) -> Iterator[Stay]:
    """The stays of an evented profile: `{"type": "O", "frame": 3, "at": 0.25}`; none where its unit is no time."""
    scale, events = _UNITS.get(str(profile.get("unit"))), profile.get("events")
    if scale is None or not isinstance(events, list):
        return iter(())
    return _stays(found for event in events if (found := _opened(event, names, scale)) is not None)


def _traced(event: Any) -> _Event | None:
    if not isinstance(event, dict) or event.get("ph") not in ("B", "E"):
        return None
    args, at = event.get("args"), event.get("ts")
    if not isinstance(at, int | float) or isinstance(at, bool):
        return None
    file = args.get("filename") if isinstance(args, dict) else None
    frame = f"{event.get('name')} ({file})" if file else str(event.get("name"))
    thread = str(event.get("pid")), str(event.get("tid"))
    return _Event(thread, frame, event["ph"] == "B", at * _MICROSECOND)


def _opened(event: Any, names: list[str], scale: float) -> _Event | None:
    if not isinstance(event, dict) or event.get("type") not in ("O", "C"):
        return None
    frame, at = event.get("frame"), event.get("at")
    if not isinstance(frame, int) or not 0 <= frame < len(names) or not isinstance(at, int | float):
        return None
    return _Event(None, names[frame], event["type"] == "O", at * scale)


def _stays(events: Iterator[_Event]) -> Iterator[Stay]:
    stacks = defaultdict[object, list[str]](list)
    since = dict[object, float]()
    owed = defaultdict[object, float](float)  # parts of a sample that were rounded off
    for event in events:
        stack = stacks[event.thread]
        passed = event.at - since.get(event.thread, event.at)
        if stack and 0 < passed < _LONGEST:
            owed[event.thread] += passed * _A_SECOND
            n = round(owed[event.thread])
            owed[event.thread] -= n
            yield Stay(tuple(stack[:_DEEPEST]), n, passed)
        since[event.thread] = event.at
        if event.begins:
            stack.append(event.frame)
        elif event.frame in stack:  # what it called ended with it
            del stack[len(stack) - 1 - stack[::-1].index(event.frame) :]
