"""How much one input may hold. What reaches a limit is read up to it, a note says so, and the report is never `healthy`."""

from typing import NamedTuple


class Budget(NamedTuple):
    """One limit: its value, and what it counts."""

    value: int
    of: str


BUDGETS = {
    "bytes": Budget(64 << 30, "bytes of text in one file, or in all members of one archive"),
    "ratio": Budget(500, "bytes of text for one byte on disk, above the first 512 MiB; logs stay below 100"),
    "held": Budget(256 << 20, "bytes of an exported log that has to be held, because its newest line comes first"),
    "files": Budget(100_000, "files in one folder"),
    "members": Budget(100_000, "members of one archive"),
    "columns": Budget(4_096, "columns of a table of samples"),
    "elements": Budget(50_000, "elements of an XML document"),
    "depth": Budget(500, "levels of nested JSON; XML may have an eighth of them"),
    "rows": Budget(5_000_000, "rows in one table of facts"),
    "writers": Budget(1 << 20, "different writers in one log: processes, as their lines name them"),
    "texts": Budget(2_000_000, "different messages of NCCL in one log; as many further warnings are kept as always"),
    "edges": Budget(10_000_000, "different edges between ranks in one log"),
}
_raised: dict[str, int] = {}  # what the user set


def limit(name: str) -> int:
    """The limit that holds now."""
    return _raised.get(name, BUDGETS[name].value)


def set_limit(name: str, value: int) -> None:
    """Replace a limit for the rest of this process. Raises ValueError on an unknown name or a number below 1."""
    if name not in BUDGETS:
        raise ValueError(f"no limit is called {name}; the limits are {', '.join(BUDGETS)}")
    if value < 1:
        raise ValueError(f"limit {name} must be at least 1")
    _raised[name] = value


def reset() -> None:
    """Return to the limits of `BUDGETS`."""
    _raised.clear()


def reached(name: str) -> str:
    """How the user raises a limit that was reached, as the end of a sentence."""
    return f"raise the limit with --limit {name}={10 * limit(name)}"
