"""Finds the few lines of interest among many with one regular expression, far faster than to look at each line alone."""

import re
from collections.abc import Callable, Iterator, Sequence

from nccl_doctor.common.expressions import compiled

_Pick = tuple[int, "re.Match[str]"]


def line_picker(expression: str) -> Callable[[Sequence[str], int], Iterator[_Pick]]:
    """A function that gives (number, match) of those of some lines in which the expression matches from the first character on.

    The lines have no line ends, and the expression must not match one. Its match holds a line end in front of the line. The function
    takes the lines and the number of the first one.
    """
    find = compiled(
        rf"\n(?:{expression})"
    ).finditer  # a literal at its beginning is searched for without trying each place

    def picks(texts: Sequence[str], first: int) -> Iterator[_Pick]:
        text = joined(texts)
        number, at = first - 1, 0
        for match in find(text):
            start = match.start() + 1
            number += text.count("\n", at, start)
            at = start
            yield number, match

    return picks


def joined(texts: Sequence[str]) -> str:
    """The lines, with a line end in front of each."""
    text = "\n".join(("", *texts))
    return text if text.count("\n") == len(texts) else "\n".join(("", *(line.replace("\n", " ") for line in texts)))
