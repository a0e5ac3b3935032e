"""Shapes of texts: what stays of a text when its digits do not matter, and which expressions tell digits apart.

Most lines of a flood differ only in digits. An expression that does not ask which digit it is matches all texts of a shape at the
same places, or none of them, so that one of them is matched for all. The shape keeps whether a number begins with 0, because
`failed: 0` is no failure and `exit code 0` no error.
"""

import re
from collections.abc import Sequence
from functools import cache
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any

from nccl_doctor.common.expressions import compiled

LONGEST = 1_000  # bytes; longer texts do not come twice
_MEMO = 10_000  # shapes remembered
_ONES = bytes.maketrans(b"23456789", b"1" * 8)
_ZEROS = str.maketrans("123456789", "0" * 9)
_NAME, _UNNAMED = "mlx5", "mlx\x05"  # a name whose digit is no number
_RAW_NAME, _RAW_UNNAMED = _NAME.encode(), b"mlx\xff"
_HEX = compiled(
    rb"(?<![0-9A-Za-z_\x80-\xff])(?:0x[0-9a-f]{1,1000}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{5,1000})"
    rb"(?![0-9A-Za-z_\x80-\xff])"
)  # an address or code, a UUID, or another number; none is part of a word
_MIXED = compiled(rb"[0-9]-?[a-f]|[a-f]-?[0-9]")  # a number of decimal digits has another shape
_ZERO_CODE = b"0x0"
_MASK = b"\xfe"
_MASKED = bytes.maketrans(b"0123456789abcdef", _MASK * 16)
_RUN = compiled(rb"\xfe[\xfe-]*")
_VARIANTS = (
    ("1", "a", "a"),
    ("a", "1", "1"),
    ("1", "1", "a"),
    ("a", "a", "1"),
    ("0", "1", "a"),
)  # first digit, the others, last
_PLAIN = (("1", "1", "1"), ("a", "a", "a"))  # the same of codes behind `0x`
_DIGITS = frozenset(map(ord, "0123456789"))
# What a shape keeps of the first digit of a number.
_FIRST = (frozenset(map(ord, "0")), frozenset(map(ord, "123456789")))
_CATEGORIES = {op.CATEGORY_DIGIT: _DIGITS, op.CATEGORY_WORD: _DIGITS, op.CATEGORY_NOT_SPACE: _DIGITS}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


def shape_of(text: bytes) -> bytes:
    """An ASCII text whose digits are 1, but for a 0 with which a number begins."""
    text = text.replace(_RAW_NAME, _RAW_UNNAMED).translate(_ONES)
    return text.replace(b"00", b"01").replace(b"10", b"11")


_masked_shapes: dict[bytes, bytes] = {}  # shape of a text -> the same with its hexadecimal numbers masked


def shapes_of(lines: Sequence[bytes]) -> list[bytes]:
    """The shapes of lines, in which hexadecimal numbers count as equal too; empty for one that is too long or not ASCII."""
    if not lines:
        return []
    short = [line if len(line) <= LONGEST and line.isascii() else b"" for line in lines]
    shapes = shape_of(b"\n".join(short)).split(b"\n")
    if len(_masked_shapes) > _MEMO:
        _masked_shapes.clear()
    # Which parts are numbers depends on the shape alone, so one line of each is enough; but 0x00 is no code, and 0x01
    # of the same shape is one.
    new, zeros = dict[bytes, int](), list[int]()
    for at, shape in enumerate(shapes):
        if shape not in _masked_shapes and shape not in new:
            if _ZERO_CODE in shape:
                zeros.append(at)
            else:
                new[shape] = at
    asked = [*new.values(), *zeros]
    if asked:
        masked = _HEX.sub(_masked, b"\n".join([short[at] for at in asked]))
        found = shape_of(masked).split(b"\n")
        _masked_shapes.update(zip(new, found, strict=False))
        for at, shape in zip(zeros, found[len(new) :], strict=True):
            shapes[at] = shape
    return [_masked_shapes.get(shape, shape) for shape in shapes]


def variants(line: str, shape: bytes) -> list[str]:
    """The line with other hexadecimal numbers: those by which most expressions that ask for one of their digits can be told."""
    if _MASK not in shape:
        return []
    runs = [run.span() for run in _RUN.finditer(shape)]
    made = []
    for number, (first, middle, last) in enumerate((*_VARIANTS, *_PLAIN)):
        text = list(line)
        for start, stop in runs:
            if number >= len(_VARIANTS) and line[start - 2 : start] != "0x":
                continue
            digits = [at for at in range(start, stop) if line[at] != "-"]
            for at in digits:
                text[at] = middle
            text[digits[0]], text[digits[-1]] = first, last
        made.append("".join(text))
    return made


def _masked(found: re.Match[bytes]) -> bytes:
    """The mask of a hexadecimal number; what was found where it is 0 or has digits or letters alone."""
    number = found[0]
    if number.startswith(b"0x"):
        return number if not number.strip(b"0x") else b"0x" + number[2:].translate(_MASKED)
    return number.translate(_MASKED) if _MIXED.search(number) else number


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


@cache
def relaxed(regex: str) -> re.Pattern[str] | None:
    """An expression that matches, wherever this one matches a text, each text of the same shape; None where none was found.

    A character class that holds a digit holds all of them there, and what must not follow may follow.
    """
    parsed = _parser.parse(regex)
    try:
        _relax(parsed)
    except _TellsApart:
        return None
    compiled: re.Pattern[str] = _compiler.compile(parsed)
    return compiled


def _relax(parts: Any) -> None:
    """Change a part of a parsed expression so. Raises _TellsApart."""
    for at, (kind, value) in enumerate(parts):
        if kind in (op.LITERAL, op.NOT_LITERAL, op.IN):
            digits = _digits_of(kind, value)
            if digits and digits != _DIGITS:
                parts[at] = (op.IN, _with_all_digits(kind, value))
        elif kind is op.SUBPATTERN:
            _relax(value[3])
        elif kind is op.BRANCH:
            for branch in value[1]:
                _relax(branch)
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            _relax(value[2])
        elif kind is op.ASSERT:
            _relax(value[1])
        elif kind is op.ASSERT_NOT:
            parts[at] = (op.BRANCH, (None, [_parser.SubPattern(parts.state, [])]))
        elif kind not in (op.ANY, op.AT):
            raise _TellsApart


def _with_all_digits(kind: Any, value: Any) -> list[Any]:
    """A class of characters that also holds all digits; of a negated one, any character."""
    if kind is op.IN and value[0][0] is not op.NEGATE:
        return [*value, (op.RANGE, (ord("0"), ord("9")))]
    if kind is op.LITERAL:
        return [(op.RANGE, (ord("0"), ord("9")))]
    return [(op.CATEGORY, op.CATEGORY_SPACE), (op.CATEGORY, op.CATEGORY_NOT_SPACE)]
