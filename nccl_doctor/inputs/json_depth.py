"""A guard for streaming JSON parsers, whose memory grows with the square of the depth of what they read."""

import re
from itertools import accumulate

from nccl_doctor.common import budgets
from nccl_doctor.inputs.streams import Readable

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_OTHER = bytes(code for code in range(256) if code not in b'"[]{}')
_LEVELS = 6  # of most records, each of objects in an array
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class TooDeep(ValueError):
    """The text is nested deeper than the budget `depth`."""


class Shallow:
    """Passes bytes of JSON on and counts how deep brackets are nested. `read` raises TooDeep."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._depth = 0
        self._deepest = budgets.limit("depth")
        self._in_string = False
        self._held = b""  # a backslash whose partner has not come yet

    def read(self, size: int) -> bytes:
        data = self._stream.read(size) or b""
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        text = self._held + data
        self._held = b""
        if b"\\" in text:
            text = _ESCAPED.sub(b"", text)
            if text.endswith(b"\\"):
                self._held = b"\\"
        parts = text.translate(None, _OTHER).split(b'"')
        outside = b"".join(parts[int(self._in_string) :: 2])
        self._in_string ^= len(parts) % 2 == 0
        opened = outside.count(b"[") + outside.count(b"{")
        if self._depth + opened > self._deepest and not self._is_flat(outside):
            steps = accumulate((_STEPS[code] for code in outside), initial=self._depth)
            if max(steps) > self._deepest:
                raise TooDeep(f"is nested deeper than {self._deepest:,} levels; {budgets.reached('depth')}")
        self._depth += 2 * opened - len(outside)

    def _is_flat(self, brackets: bytes) -> bool:
        """Whether brackets are too few to be too deep once the innermost pairs are taken out, level by level."""
        for _ in range(_LEVELS):
            brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        return self._depth + 2 * _LEVELS + len(brackets) <= self._deepest
