"""The bars of the screen: status and tabs at the top, keys at the bottom."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

from nccl_doctor.watch.view.cells import DIM, ClickAreas, Line, Look, Span
from nccl_doctor.watch.view.findings import SEVERITY_RANKS, STYLES, clock

KEYS = (  # key, label, action, priority (lowest first) where the screen is narrow
    ("?", "help", "help", 0), ("q", "quit", "quit", 1), ("/", "filter", "filter", 3), ("o", "sort", "sort", 4),
    ("s", "stacks", "stacks", 2), ("x", "signal", "kill", 5), ("r", "RAS", "ras", 6), ("Spc", "pause", "pause", 7),
    ("+/-", "interval", "interval(1)", 9), ("t", "tree", "tree", 8), ("u", "own", "own", 8),
)  # fmt: skip
SEEK = (
    ("left/right", "5 s", "seek('right')", 2), (",/.", "30 s", "seek('full_stop')", 3), ("n", "next finding", "find(1)", 2),
    ("[/]", "speed", "speed(1)", 3),
)  # fmt: skip


def status_line(app: Any, width: int) -> Line:
    """Returns the first line: what is watched, the time, and our own CPU time; what restricts the rows comes first."""
    nodes = len(app.state.nodes)
    gpus = sum(len(node.gpus) for node in app.state.nodes.values())
    chosen = app.tables.filter
    parts = [
        "PAUSED" if app.paused else "",
        f"/{chosen.text}" if chosen.text else "",
        f"only GPUs {','.join(map(str, sorted(chosen.gpus)))}" if chosen.gpus else "",
        f"only {chosen.user}" if chosen.user else "",
        f"only job {chosen.job}" if chosen.job else "",
        app.label,
        f"{nodes} node{'s' if nodes != 1 else ''}",
        f"{gpus} GPUs",
        clock(app.now()),
        f"{app.interval:g} s",
        f"own {app.cost_percent:.1f} %",
    ]
    return ((app.look.fit(app.look.dot.join(part for part in parts if part), width), "bold"),)


def time_line(app: Any, width: int) -> list[Line]:
    """Returns the time line of a replay: where it is, how fast it plays, and when findings began."""
    replay = app.replay
    if replay is None:
        return []
    passed, whole = replay.time - replay.start_time, replay.end_time - replay.start_time
    head = f"{span(passed)} of {span(whole)}  x{app.speed:g}  "
    room = max(width - cell_len(head), 10)
    done = min(round(passed / whole * (room - 1)), room - 1) if whole else room - 1
    line, rest, here = ("=", "-", "o") if app.look.ascii else ("━", "─", "●")
    cells = [(line if place < done else rest, DIM) for place in range(room)]
    for at, severity in sorted(app.marks, key=lambda mark: SEVERITY_RANKS.get(mark[1], 2), reverse=True):
        if severity in STYLES and whole:
            place = min(max(round((at - replay.start_time) / whole * (room - 1)), 0), room - 1)
            cells[place] = ("!", f"bold {STYLES[severity]}")
    cells[done] = (here, "bold")
    return [((head, "bold"), *cells)]


def span(seconds: float) -> str:
    """Returns a duration as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


SHORT = {"overview": "over", "network": "net", "processes": "procs", "findings": "finds"}


def tab_line(names: Sequence[str], active: str, visible_range: str, width: int) -> tuple[Line, ClickAreas]:
    """Returns the tabs with their numbers, abbreviated on a narrow screen, and the range of visible rows."""
    narrow = sum(len(name) + 4 for name in names) + len(visible_range) > width
    spans: list[Span] = []
    areas: ClickAreas = []
    at = 0
    for number, name in enumerate(names, 1):
        text = f"{number} {SHORT.get(name, name) if narrow else name}"
        areas.append((at, at + len(text), f"tab('{name}')"))
        spans += [(text, "bold reverse" if name == active else ""), ("  ", "")]
        at += len(text) + 2
    return (*spans, (visible_range.rjust(max(width - at, 0)), "dim")), areas


def key_line(disabled: Sequence[str], replay: bool, message: str, look: Look, width: int) -> tuple[Line, ClickAreas]:
    """Returns the keys that fit, by priority; or the answer to the last key."""
    if message:
        return ((look.fit(message, width), "bold"),), []
    keys = [*KEYS[:2], *(SEEK if replay else ()), *KEYS[2:]]
    keys = [key for key in keys if key[2] not in disabled]
    fitting = []
    free = width
    for key in sorted(keys, key=lambda key: key[3]):
        free -= cell_len(key[0]) + len(key[1]) + 3
        if free < -2:
            break
        fitting.append(key)
    spans: list[Span] = []
    areas: ClickAreas = []
    at = 0
    for key in keys:
        if key in fitting:
            name, label, action, _ = key
            length = len(name) + 1 + len(label)
            spans += [(name, "bold"), (f" {label}  ", "")]
            areas.append((at, at + length, action))
            at += length + 2
    return tuple(spans), areas
