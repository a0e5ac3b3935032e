"""Formats lines as NCCL does, by version: INFO, WARN and the trail of return codes (src/debug.cc)."""

from nccl_doctor.simulate.cluster import Rank

STAMP = "\x00n"
"""Replaced by NCCL's own time stamp when the line is written; by nothing if NCCL prints none."""


def tid(rank: Rank, thread: str) -> int:
    """Kernel id of a thread: main, init (the asynchronous initialisation), proxy, or any other helper."""
    if thread == "main":
        return rank.pid
    if thread == "init":
        return rank.init_tid
    return rank.proxy_tid + (0 if thread == "proxy" else 3)


def info(rank: Rank, text: str, thread: str = "init") -> str:
    """Returns an INFO line."""
    head, device = rank.parts
    stamp = "\x00i" if rank.host.version >= (2, 26) else ""
    return f"{stamp}{head}{tid(rank, thread)}{device}NCCL INFO {text}"


def warn(rank: Rank, where: str, text: str, func: str = "", thread: str = "init") -> str:
    """Returns a WARN record: an empty line and the line. `where` is FILE:LINE, `func` the function that 2.30.7 adds."""
    head, device = rank.parts
    version = rank.host.version
    stamp = STAMP if version >= (2, 26) else ""
    named = f" ({func})" if func and version >= (2, 30, 7) else ""
    return f"\n{stamp}{head}{tid(rank, thread)}{device}{where}{named} NCCL WARN {text}"


def trail(rank: Rank, code: int, *steps: tuple[str, str], thread: str = "init") -> str:
    """Returns the INFO lines of an error code passed up the call stack: (FILE:LINE, function), deepest first."""
    named = rank.host.version >= (2, 30, 7)
    last = len(steps) - 1
    lines = []
    for number, (where, func) in enumerate(steps):
        suffix = " [Async thread]" if where.startswith("group.cc") and number <= last and thread == "init" else ""
        lines.append(
            info(rank, f"{where} ({func}) -> {code}{suffix}" if named else f"{where} -> {code}{suffix}", thread)
        )
    return "\n".join(lines)


def init_trail(rank: Rank, code: int, *steps: tuple[str, str]) -> str:
    """Returns a trail that ends in the communicator's initialisation."""
    return trail(
        rank,
        code,
        *steps,
        ("init.cc:1236", "initTransportsRank"),
        ("init.cc:1522", "ncclCommInitRankFunc"),
        ("group.cc:73", "ncclAsyncJobMain"),
    )
