"""Shapes of texts: what stays of a text when its digits do not matter, and which expressions tell digits apart.

Most lines of a flood differ only in digits. An expression that does not ask which digit it is matches all texts of a shape at the
same places, or none of them, so that one of them is matched for all. The shape keeps whether a number begins with 0, because
`failed: 0` is no failure and `exit code 0` no error.
"""

from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

LONGEST = 1_000  # bytes; longer texts do not come twice
_ONES = bytes.maketrans(b"23456789", b"1" * 8)
_ZEROS = str.maketrans("123456789", "0" * 9)
_NAME, _UNNAMED = "mlx5", "mlx\x05"  # a name whose digit is no number
_RAW_NAME, _RAW_UNNAMED = _NAME.encode(), b"mlx\xff"
_DIGITS = frozenset(map(ord, "0123456789"))
_FIRST = (
    frozenset(map(ord, "0")),
    frozenset(map(ord, "123456789")),
)  # what the shape keeps of the first digit of a number
_CATEGORIES = {op.CATEGORY_DIGIT: _DIGITS, op.CATEGORY_WORD: _DIGITS, op.CATEGORY_NOT_SPACE: _DIGITS}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


def shape_of(text: bytes) -> bytes:
    """An ASCII text whose digits are 1, but for a 0 with which a number begins."""
    text = text.replace(_RAW_NAME, _RAW_UNNAMED).translate(_ONES)
    return text.replace(b"00", b"01").replace(b"10", b"11")


def zeroed(text: str) -> str:
    """A text whose digits are all 0."""
    return text.replace(_NAME, _UNNAMED).translate(_ZEROS)


def tells_digits_apart(regex: str) -> bool:
    """Whether the expression may match one text and not another one of the same shape, or at other places."""
    try:
        _walk(_parser.parse(regex.replace(_NAME, _UNNAMED.replace("\x05", r"\x05"))), behind_digit=True)
    except _TellsApart:
        return True
    return False


class _TellsApart(Exception):
    """A part of an expression asks which digit it is."""


def _walk(parts: Any, behind_digit: bool) -> bool:
    """Whether the character before what comes next may be a digit. Raises _TellsApart."""
    for kind, value in parts:
        behind_digit = _step(kind, value, behind_digit)
    return behind_digit


def _step(kind: Any, value: Any, behind_digit: bool) -> bool:
    """The same behind one part of an expression."""
    if kind in (op.LITERAL, op.NOT_LITERAL, op.IN):
        return _is_digit(_digits_of(kind, value), behind_digit)
    if kind is op.ANY:
        return True
    if kind is op.AT:  # `\b` in front of a digit is none behind another one
        return behind_digit and value not in (op.AT_BEGINNING, op.AT_BEGINNING_STRING, op.AT_BOUNDARY)
    if kind is op.SUBPATTERN:
        return _walk(value[3], behind_digit)
    if kind is op.ATOMIC_GROUP:
        return _walk(value, behind_digit)
    if kind is op.BRANCH:
        behind = [_walk(branch, behind_digit) for branch in value[1]]  # all of them, also where the first is enough
        return any(behind)
    if kind in _REPEATS:
        least, _, part = value
        once = _walk(part, behind_digit)
        again = _walk(part, behind_digit or once)
        return again or (behind_digit and not least)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        direction, part = value
        _walk(part, behind_digit or direction < 0)
        return behind_digit
    raise _TellsApart  # the text of a group before


def _is_digit(digits: frozenset[int], behind_digit: bool) -> bool:
    """Whether a character class may be a digit. Raises _TellsApart where it holds some of them and the shape does not say which."""
    if digits and digits != _DIGITS and (behind_digit or digits not in _FIRST):
        raise _TellsApart
    return bool(digits)


def _digits_of(kind: Any, value: Any) -> frozenset[int]:
    """The digits that a character class holds."""
    if kind is op.LITERAL:
        return frozenset((value,)) & _DIGITS
    if kind is op.NOT_LITERAL:
        return _DIGITS - {value}
    found: frozenset[int] = frozenset()
    negated = False
    for part, of in value:
        if part is op.NEGATE:
            negated = True
        elif part is op.LITERAL:
            found |= {of} & _DIGITS
        elif part is op.RANGE:
            found |= frozenset(range(of[0], of[1] + 1)) & _DIGITS
        else:
            found |= _CATEGORIES.get(of, _DIGITS if of is op.CATEGORY_NOT_WORD else frozenset())
    return _DIGITS - found if negated else found
