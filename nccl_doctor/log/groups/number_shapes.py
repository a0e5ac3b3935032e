"""Messages that hold no fact whatever numbers they name, such as `Cuda Alloc Size 4096 pointer 0x7f12ab000000`.

With NCCL_DEBUG_SUBSYS=ALL each line of this kind has numbers of its own, so that no two are equal. Here such lines count as
equal where they differ only in digits, and in the letters of `0x…` and of other hexadecimal codes: one of them is parsed for all.
A shape counts so only where no pattern could match another line of it: what decides is its text without numbers. The same holds for
messages that nothing here knows, where the lines behind them are records of their own.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nccl_doctor.common.text_keys import MIX, ROW, mix, rows_of
from nccl_doctor.log import nccl_header
from nccl_doctor.log.groups import line_groups
from nccl_doctor.log.groups.shape_kinds import CODE, LONGEST_CODE, SHORTEST_CODE, Kind, ShapeKinds, X
from nccl_doctor.log.multiline import reach

if TYPE_CHECKING:
    from nccl_doctor.common.text_keys import Flags, Keys, Numbers
    from nccl_doctor.log.classifier import Classifier
    from nccl_doctor.log.groups.line_groups import PlainLines

_ADDRESS = 16  # digits
_MEMO = 20_000  # shapes and writers that are remembered
_TORN = reach(1)  # lines behind one among which the rest of it is looked for

_is_word = np.zeros(256, bool)
for _character in b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz":
    _is_word[_character] = True


class NumberShapes:
    """Gives lines one key that hold no fact and differ only in numbers."""

    def __init__(self, classifier: "Classifier") -> None:
        self._shapes = ShapeKinds(classifier)
        self._kinds: dict[int, int] = {}  # by the key of a shape
        self._once: set[int] = set()  # shapes of which one line came
        self._records: dict[int, bool] = {}  # key of the text before `NCCL ` -> whether a record can follow it
        self.unknown: set[int] = set()  # the keys that `messages` gave to messages that nothing knows
        self.found = 0  # different messages of the last block that got the key of their shape

    def messages(self, block: bytes, lines: "PlainLines") -> "Keys":
        """The keys of the messages of lines."""
        self.found = 0
        level = np.frombuffer(block, np.uint8)[lines.at + len("NCCL ")]
        which = np.flatnonzero((lines.kind == line_groups.TEXT) & (level == ord("I")))
        if not len(which):
            return lines.message
        texts = lines.chosen(which)
        short, begin, end = shortened(numberless(block), texts.text, texts.end)
        keys = mix((end - begin).view(np.uint64) * MIX, rows_of(short), begin, end)
        shapes, at, of, n = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        new = self._new(shapes.tolist(), at.tolist(), n.tolist())
        places = np.array([place for _, place in new], np.int64)
        found = self._shapes.kinds(
            _parts(block, texts.text[places], texts.end[places]), _parts(short, begin[places], end[places])
        )
        self._kinds.update({shape: kind.value for (shape, _), kind in zip(new, found, strict=True)})
        kind_of_line = np.array([self._kinds.get(shape, Kind.OTHER.value) for shape in shapes.tolist()], np.uint8)[of]
        is_unknown = kind_of_line == Kind.UNKNOWN.value
        if is_unknown.any():
            is_unknown &= self._before_records(block, lines)[which]
            self.unknown.update((~shapes[np.unique(of[is_unknown])]).tolist())
        shared = is_unknown | (kind_of_line == Kind.FREE.value)
        self.found = len(np.unique(lines.message[which[shared]]))
        message = lines.message.copy()
        message[which[shared]] = ~shapes[of[shared]]
        return message

    def _new(self, shapes: list[int], at: list[int], n: list[int]) -> list[tuple[int, int]]:
        """The shapes that came twice and are not known yet, each with the place of one of its lines."""
        if len(self._once) > _MEMO:
            self._once.clear()
        new = []
        for shape, place, count in zip(shapes, at, n, strict=True):
            if shape in self._kinds:
                continue
            if count > 1 or shape in self._once:
                new.append((shape, place))
            else:
                self._once.add(shape)
        return new[: max(_MEMO - len(self._kinds), 0)]

    def _before_records(self, block: bytes, lines: "PlainLines") -> "Flags":
        """Which lines are followed by records alone, as far as the rest of a torn line is looked for."""
        writers, at, of = np.unique(lines.writer, return_index=True, return_inverse=True)
        if len(self._records) > _MEMO:
            self._records.clear()
        for writer, place in zip(writers.tolist(), at.tolist(), strict=True):
            if writer not in self._records:
                left = block[lines.start[place] : lines.at[place]].decode("utf-8", "replace")
                self._records[writer] = nccl_header.can_precede_record(left)
        number = lines.number[np.array([self._records[writer] for writer in writers.tolist()], bool)[of]]
        last, first = (np.searchsorted(number, lines.number + lines_on, side="right") for lines_on in (_TORN, 0))
        before: Flags = last - first == _TORN
        return before


def _parts(block: bytes, begin: "Numbers", end: "Numbers") -> list[str]:
    return [
        block[start:stop].decode("utf-8", "replace") for start, stop in zip(begin.tolist(), end.tolist(), strict=True)
    ]


def numberless(block: bytes) -> bytearray:
    """A block in which each digit is 0, also the letters of addresses behind `0x`, whose x becomes `X`, and each character of a
    code `CODE`."""
    zeroed = bytearray(block)
    text = np.frombuffer(zeroed, np.uint8)
    is_digit = (text - np.uint8(ord("0"))) < 10
    codes = _codes(text, is_digit)
    at = np.flatnonzero((text[:-1] == ord("0")) & (text[1:] == ord("x"))) + 1
    text[is_digit] = ord("0")
    text[at] = X
    at = at[at < len(text) - _ADDRESS - 1] + 1
    for _ in range(_ADDRESS):
        letter = (text[at] - np.uint8(ord("a"))) < 6
        text[at[letter]] = ord("0")
        at = at[letter | (text[at] == ord("0"))] + 1
    text[codes] = CODE
    return zeroed


def shortened(zeroed: bytearray, *places: "Numbers") -> "tuple[bytes, Numbers, Numbers]":
    """A text without numbers in which each number, and each code, is one character; and where places of it are there."""
    text = np.frombuffer(zeroed, np.uint8)
    kept = np.ones(len(text), bool)
    kept[1:] = (text[1:] != text[:-1]) | ((text[1:] != ord("0")) & (text[1:] != CODE))
    before = np.cumsum(kept)
    begin, end = (before[place] - kept[place] for place in places)
    return text[kept].tobytes() + bytes(ROW), begin, end


def _codes(text: "npt.NDArray[np.uint8]", is_digit: "Flags") -> "Flags":
    """Which characters belong to hexadecimal codes: words of digits and of letters up to f, with both."""
    is_hex = is_digit | ((text - np.uint8(ord("a"))) < 6)
    is_hex[0] = is_hex[-1] = False
    edges = np.flatnonzero(is_hex[1:] != is_hex[:-1]) + 1
    begin, end = edges[::2], edges[1::2]
    size = end - begin
    is_code = (size >= SHORTEST_CODE) & (size <= LONGEST_CODE) & ~_is_word[text[begin - 1]] & ~_is_word[text[end]]
    begin, end = begin[is_code], end[is_code]
    codes = np.zeros(len(text) + 1, np.int8)
    if len(begin):
        edges = np.stack([begin, end], axis=1).reshape(-1)
        digits = np.add.reduceat(is_digit, edges, dtype=np.int64)[::2]
        mixed = (digits > 0) & (digits < end - begin)
        codes[begin[mixed]] = 1
        codes[end[mixed]] = -1
    found: Flags = np.cumsum(codes[:-1], dtype=np.int8).view(bool)
    return found
