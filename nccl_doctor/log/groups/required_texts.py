"""Fixed texts that an expression needs: what a text must hold to match it, read from the parse tree of `re`.

`(?:Failed|Unable) to open \\S+ twice` needs `Failed to open ` and ` twice`, or `Unable to open ` and ` twice`. What this reader does
not know counts as a gap, so that fewer texts are named than are needed, never others.
"""

from functools import cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_MOST = 200  # alternatives of one expression; with more of them nothing is known
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


class _Needed(NamedTuple):
    """What one alternative needs so far."""

    texts: tuple[str, ...] = ()
    last: str = ""  # a text to which what comes next belongs

    def ended(self) -> "_Needed":
        return _Needed((*self.texts, self.last)) if self.last else self


class _TooMany(Exception):
    """More alternatives than are worth it."""


@cache
def required_texts(regex: str) -> tuple[tuple[str, ...], ...]:
    """Alternatives, each with the texts that a match of it holds; one alternative without texts where nothing is known."""
    parsed = _parser.parse(regex)
    if parsed.state.flags & (op.SRE_FLAG_IGNORECASE | op.SRE_FLAG_VERBOSE):
        return ((),)
    try:
        found = _sequence(parsed, [_Needed()])
    except _TooMany:
        return ((),)
    return tuple({one.ended().texts: None for one in found})


def _sequence(parts: Any, before: list[_Needed]) -> list[_Needed]:
    for kind, value in parts:
        before = _part(kind, value, before)
        if len(before) > _MOST:
            raise _TooMany
    return before


def _part(kind: Any, value: Any, before: list[_Needed]) -> list[_Needed]:
    """What the alternatives need with one more part of the expression."""
    if kind is op.LITERAL:
        return [_Needed(one.texts, one.last + chr(value)) for one in before]
    if kind is op.SUBPATTERN:
        _, added, removed, part = value
        return _sequence(part, before) if not added and not removed else _ended(before)
    if kind is op.ATOMIC_GROUP:
        return _sequence(value, before)
    if kind is op.BRANCH:
        return [one for branch in value[1] for one in _sequence(branch, before)]
    if kind in _REPEATS and value[0] > 0:  # it is there once, and others of it may be between that and what comes next
        return _ended(_sequence(value[2], before))
    if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
        return before
    return _ended(before)


def _ended(before: list[_Needed]) -> list[_Needed]:
    return [one.ended() for one in before]
