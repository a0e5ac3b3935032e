"""The elements of an array in a large JSON object, and objects behind each other: one at a time and in constant memory.

The standard library's decoder takes one element out of a text in C and is three times as fast as a parser of events.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 20
_NUMBER_ENDS = (".", "e", "E", "e-", "e+", "E-", "E+")  # with which a block breaks a number off
_LARGEST = 64 << 20  # characters of one element
_NEAR_END = 10  # an error so close to the end of what was read may be a word that goes on
_TOGETHER = 1 << 16  # characters of elements that are decoded at once
_APART = 1 << 8  # characters from which down they are decoded one by one
_LARGEST_OBJECT = 8 << 20  # characters of an object in lines of its own
_SHOWN = 500  # characters of one over several lines
_OBJECT = re.compile(r"^\ufeff?[ \t]{0,80}\{", re.MULTILINE)
_IN_FIRST_COLUMN = re.compile(r"^\{", re.MULTILINE)
_BEHIND = re.compile(r"[ \t\r]{0,80},?[ \t\r]{0,80}(?:\n|\Z)")
_BEHIND_ELEMENT = frozenset(", ]\t\r\n")
_GAP = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")


_DECODER = json.JSONDecoder()


class BrokenJson(ValueError):
    """The text is not JSON, or it ends too early."""


class _Text:
    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.buffer = ""
        self.at = 0

    def fill(self) -> bool:
        """Reads more, at least as much as waits, so that a large element is not looked at again and again; False at the end."""
        rest = self.buffer[self.at :]
        data = self._stream.read(max(_BLOCK, len(rest)))
        self.buffer, self.at = rest + self._decoder.decode(data, final=not data), 0
        return bool(data)


def array_items(stream: Readable, key: str, take: Callable[[str, int], int] | None = None) -> Iterator[Any]:
    """Yields the elements of the first array of this name. Raises BrokenJson behind those that are whole.

    `take` gets a text and the place of an element. It may read this one and those behind it, which are then not yielded, and
    returns the place behind the last element that it read.
    """
    text = _Text(stream)
    opening = re.compile(rf'"{re.escape(key)}"\s{{0,100}}:\s{{0,100}}\[')
    while (found := opening.search(text.buffer)) is None:
        text.at = max(len(text.buffer) - 300, 0)
        if not text.fill():
            raise BrokenJson(f"no array {key}")
    text.at = found.end()
    decoder = json.JSONDecoder(parse_constant=_refuse)
    while True:
        gap = _GAP.match(text.buffer, text.at)
        text.at = gap.end() if gap else text.at
        if text.at < len(text.buffer):
            if text.buffer[text.at] == "]":
                break
            if take is not None and (end := take(text.buffer, text.at)) > text.at:
                text.at = end
                continue
            try:
                item, end = decoder.raw_decode(text.buffer, text.at)
            except json.JSONDecodeError as error:
                if not _is_cut(text.buffer, error) or len(text.buffer) - text.at > _LARGEST:
                    raise BrokenJson(error.msg) from None
            except (ValueError, RecursionError) as error:
                raise BrokenJson(str(error)) from None
            else:
                if end < len(text.buffer) and text.buffer[end:] not in _NUMBER_ENDS:
                    text.at = end
                    yield item
                    continue
        if not text.fill():
            raise BrokenJson("ends inside the array")
    _check_rest(text)


def _check_rest(text: _Text) -> None:
    """Reads to the end, which has to close the object."""
    last = ""
    while True:
        last = (last + text.buffer[text.at :])[-1000:].rstrip()
        text.at = len(text.buffer)
        if not text.fill():
            break
    if not last.endswith("}"):
        raise BrokenJson("ends behind the array")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


class ArrayBatches:
    """The elements of the first array of this name, many at once: their values, their text, and the number of its first line.

    Without a name the stream is the array.
    Decoded together, small elements take half the time. `problem` says where the text is broken or ends too early.
    """

    def __init__(self, stream: Readable, key: str | None) -> None:
        self.lines = 0  # of the stream, when it was read
        self.problem: str | None = None
        self._text = _Text(stream)
        named = None if key is None else rf'"{re.escape(key)}"\s{{0,100}}:\s{{0,100}}\['
        self._opening = re.compile(named or r"\A\ufeff?\s{0,200}\[")
        self._closing = "]" if key is None else "}"
        self._line = 1

    def __iter__(self) -> Iterator[tuple[list[Any], str, int]]:
        text, size = self._text, _TOGETHER
        while (found := self._opening.search(text.buffer)) is None:
            self._move(max(len(text.buffer) - 300, 0))
            if not text.fill():
                break
        self._move(found.end() if found is not None else len(text.buffer))
        while found is not None:
            gap = _GAP.match(text.buffer, text.at)
            self._move(gap.end() if gap else text.at)
            if text.buffer.startswith("]", text.at):
                break
            together = size > _APART
            values, end, problem = _elements(text.buffer, text.at, size) if together else _element(text.buffer, text.at)
            if values:
                yield values, text.buffer[text.at : end], self._line
                self._move(end)
                size = min(2 * size, _TOGETHER)
            elif together:
                size //= 4
            elif problem is not None or len(text.buffer) - text.at > _LARGEST or not text.fill():
                self.problem = f"{problem or 'ends too early'}, in line {self._line:,}"
                break
        self._end()

    def _move(self, at: int) -> None:
        self._line += self._text.buffer.count("\n", self._text.at, at)
        self._text.at = at

    def _end(self) -> None:
        """Reads to the end, which has to close the object."""
        text, last = self._text, ""
        while True:
            last = (last + text.buffer[text.at :])[-1000:]
            if self._opening.search(text.buffer, text.at) is not None:
                self.problem = self.problem or "another one follows"
            self._move(len(text.buffer))
            if not text.fill():
                break
        self.lines = self._line - (last.endswith("\n") or not last)
        if self.problem is None and not last.rstrip().endswith(self._closing):
            self.problem = "ends behind the array"


def _elements(text: str, start: int, size: int) -> tuple[list[Any], int, None]:
    """The elements in about so many characters, and where they end; none where they do not end there."""
    end = text.rfind("}", start, start + size) + 1
    try:
        return (json.loads(f"[{text[start:end]}]") if end else []), end, None
    except (ValueError, RecursionError):
        return [], start, None


def _element(text: str, start: int) -> tuple[list[Any], int, str | None]:
    """One element, and where it ends; none where it is broken, and why, or where it may go on."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return [], start, None if _is_cut(text, error) else error.msg
    except (ValueError, RecursionError) as error:
        return [], start, str(error)[:100]
    return ([value], end, None) if text[end : end + 1] in _BEHIND_ELEMENT else ([], start, None)


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether more text may repair it: a word at the end may go on."""
    return len(text) - error.pos < _NEAR_END or error.msg.startswith("Unterminated")


class LineObjects:
    """The objects that begin a line and end one, each with the number of its first line and its text.

    Behind one that is broken, the next is looked for in the first column.
    """

    def __init__(self, stream: Readable) -> None:
        self.lines = 0  # of the stream, when it was read
        self.torn: int | None = None  # line of the last object, where it is broken or has no end
        self._text = _Text(stream)

    def __iter__(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        text, opening, ended = self._text, _OBJECT, False
        number, last = 1, "\n"  # of the line at `text.at`, and the character before that
        while True:
            found = opening.search(text.buffer, text.at)
            begin = found.start() if found is not None else max(text.buffer.rfind("\n") + 1, text.at)
            number += text.buffer.count("\n", text.at, begin)
            text.at = begin
            record, end = (None, None) if found is None else _object(text.buffer, found.end() - 1)
            if end is None and not ended and len(text.buffer) - begin <= _LARGEST_OBJECT:
                ended = not text.fill()
                continue
            if record is not None:
                end = end or len(text.buffer)
                shown = text.buffer[begin:end].rstrip("\r\n")
                yield number, shown.replace("\r", "").replace("\n", " ")[:_SHOWN] if "\n" in shown else shown, record
                self.torn, opening = None, _OBJECT
            elif found is not None:
                self.torn, opening = number, _IN_FIRST_COLUMN
            elif ended:
                break
            text.at = end or text.buffer.find("\n", begin) + 1 or len(text.buffer)
            number += text.buffer.count("\n", begin, text.at)
            last = text.buffer[text.at - 1]
        self.lines = number - (last == "\n" and not text.buffer[text.at :])


def _object(text: str, start: int) -> tuple[dict[str, Any] | None, int | None]:
    """An object, None where it is broken, and where the line behind it begins, None where more text may tell."""
    try:
        record, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, None if _is_cut(text, error) else text.find("\n", start) + 1 or None
    except (ValueError, RecursionError):
        return None, text.find("\n", start) + 1 or None
    behind = _BEHIND.match(text, end)
    if behind is None:
        return None, text.find("\n", start) + 1 or None
    return record, behind.end() if behind[0].endswith("\n") else None
