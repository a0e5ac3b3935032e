"""The lines at the top and at the bottom of the screen."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

from nccl_doctor.watch.view.cells import Line, Look, Span
from nccl_doctor.watch.view.panes import clock

Hot = list[tuple[int, int, str]]
KEYS = (
    ("?", "help", "help", 0), ("q", "leave", "quit", 1), ("/", "filter", "filter", 3), ("o", "sort", "sort", 4),
    ("s", "stacks", "stacks", 2), ("k", "signal", "kill", 5), ("r", "RAS", "ras", 6), ("Spc", "pause", "pause", 7),
    ("+/-", "interval", "interval(1)", 9), ("t", "tree", "tree", 8), ("u", "own", "own", 8),
)  # fmt: skip
SEEK = (("left/right", "5 s", "seek('right')", 2), (",/.", "30 s", "seek('full_stop')", 3))


def head(app: Any, cost: float, width: int) -> Line:
    """What is watched, when, and what that costs."""
    nodes = len(app.state.nodes)
    gpus = sum(len(node.gpus) for node in app.state.nodes.values())
    parts = [
        app.label,
        f"{nodes} node{'s' if nodes != 1 else ''}",
        f"{gpus} GPUs",
        clock(app.now()),
        f"{app.interval:g} s",
    ]
    if app.replay is not None:
        passed, whole = app.replay.moment - app.replay.start_time, app.replay.end_time - app.replay.start_time
        share = passed / whole if whole else 1.0
        parts.append(f"{span(passed)} of {span(whole)} {app.look.gauge(share, 10)}")
    parts.append(f"own {cost:.1f} %")
    if app.filtered:
        parts.insert(0, f"/{app.filtered}")
    if app.paused:
        parts.insert(0, "PAUSED")
    return ((app.look.fit(app.look.dot.join(parts), width), "bold"),)


def span(seconds: float) -> str:
    """A length of time as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


SHORT = {"overview": "over", "network": "net", "processes": "procs", "findings": "found"}


def tabs(names: Sequence[str], active: str, part: str, width: int) -> tuple[Line, Hot]:
    """Panes with their numbers, shorter where the screen is narrow, and which rows are seen."""
    narrow = sum(len(name) + 4 for name in names) + len(part) > width
    spans: list[Span] = []
    hot: Hot = []
    at = 0
    for number, name in enumerate(names, 1):
        text = f"{number} {SHORT.get(name, name) if narrow else name}"
        hot.append((at, at + len(text), f"tab('{name}')"))
        spans += [(text, "bold reverse" if name == active else ""), ("  ", "")]
        at += len(text) + 2
    return (*spans, (part.rjust(max(width - at, 0)), "dim")), hot


def keys(readonly: bool, replay: bool, said: str, look: Look, width: int) -> tuple[Line, Hot]:
    """The keys that fit, the most useful first; or the answer to the last key."""
    if said:
        return ((look.fit(said, width), "bold"),), []
    known = [*KEYS[:2], *(SEEK if replay else ()), *KEYS[2:]]
    known = [one for one in known if not (readonly and one[0] in ("s", "k", "r"))]
    fitting = []
    room = width
    for one in sorted(known, key=lambda one: one[3]):
        room -= cell_len(one[0]) + len(one[1]) + 3
        if room < -2:
            break
        fitting.append(one)
    spans: list[Span] = []
    hot: Hot = []
    at = 0
    for one in known:
        if one in fitting:
            length = len(one[0]) + 1 + len(one[1])
            spans += [(one[0], "bold"), (f" {one[1]}  ", "")]
            hot.append((at, at + length, one[2]))
            at += length + 2
    return tuple(spans), hot
