"""Which characters of foreign text may be shown: what Python calls printable, without letters that look like nothing.

The fillers of Hangul and the blank pattern of Braille are letters and symbols to Unicode; a name made of them looks empty.
"""

_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def is_printable(text: str) -> bool:
    """Whether every character of a text may be shown."""
    return text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text))


def printable(text: str, other: str = "?") -> str:
    """The text with `other` in the place of each character that may not be shown."""
    return text if is_printable(text) else "".join(sign if is_printable(sign) else other for sign in text)
