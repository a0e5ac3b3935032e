"""Finds what C++ sources print through macros whose arguments are joined to one text, as PyTorch's and XLA's are.

TORCH_CHECK(size > 0, "Invalid size ", size);         C10D_WARNING("waited {} s for {}", seconds, key);
C10_THROW_ERROR(Error, c10::str("rank ", rank));      LOG(ERROR) << prefix() << "timed out in " << name;
"""

import re
from collections.abc import Iterator

# How many arguments stand before the text: a condition, the type of an exception.
SKIPPED = {
    "TORCH_CHECK": 1, "TORCH_CHECK_WITH": 2, "TORCH_INTERNAL_ASSERT": 1, "C10_THROW_ERROR": 1, "C10D_THROW_ERROR": 1,
    "TORCH_UCC_CHECK": 1, "TORCH_UCC_CHECK_REQUEST": 2,
}  # fmt: skip
MACROS = (
    *SKIPPED, "TORCH_WARN", "TORCH_WARN_ONCE", "C10D_ERROR", "C10D_WARNING", "LOG", "invalidArgument", "c10::str",
    "std::runtime_error", "std::invalid_argument", "std::system_error",
)  # fmt: skip
STREAMS = ("LOG",)
# What Python puts before the text of an exception.
_RAISED = {"TORCH_CHECK": "RuntimeError: ", "TORCH_UCC_CHECK": "RuntimeError: ", "invalidArgument": "ValueError: "}
FAULTS = ("ERROR", "WARNING", "FATAL")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(?P<text>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])')", re.S)
_TEXT = re.compile(r'R"\((?P<raw>.*?)\)"|"(?P<text>(?:\\.|[^"\\])*)"', re.S)
_FIELD = re.compile(r"\{(?:\d+|:[^{}]*)?\}")
_OPENING, _CLOSING = "([{", ")]}"
_LONGEST = 4_000  # characters of a call


def cpp_texts(source: str, macros: tuple[str, ...], levels: tuple[str, ...] = FAULTS) -> Iterator[tuple[int, str, str]]:
    """Offset, macro and text of each call, of streams of those of these levels; a value in the text is a NUL."""
    source = _COMMENT.sub(lambda match: match[0] if match["text"] else re.sub(r"[^\n]", " ", match[0]), source)
    taken = 0
    for call in re.finditer(rf"\b(?P<macro>{'|'.join(macros)})\s*\(", source):
        line = source[source.rfind("\n", 0, call.start()) + 1 : call.start()]
        if call.start() < taken or line.lstrip().startswith("#"):
            continue
        arguments, end = _arguments(source, call.end())
        if call["macro"] in STREAMS:
            if source[slice(*arguments[0])].strip() not in levels:
                continue
            text = _joined(source, end + 1, _statement_end(source, end))
        else:
            skipped = SKIPPED.get(call["macro"], 0)
            left = arguments[skipped:]
            text = _joined(source, left[0][0], left[-1][1]) if left else ""
            if text.strip("\0 "):
                named = call["macro"].endswith("_ERROR") and skipped
                text = (f"{source[slice(*arguments[0])].strip()}: " if named else _RAISED.get(call["macro"], "")) + text
        taken = end
        if text.strip("\0 "):
            yield call.start(), call["macro"], text


def _arguments(source: str, at: int) -> tuple[list[tuple[int, int]], int]:
    """Where the arguments of a call begin and end, and where the call ends."""
    depth, start, found = 0, at, list[tuple[int, int]]()
    stop = min(len(source), at + _LONGEST)
    while at < stop:
        if match := _TEXT.match(source, at):
            at = match.end()
            continue
        sign = source[at]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            if depth == 0:
                break
            depth -= 1
        elif sign == "," and depth == 0:
            found.append((start, at))
            start = at + 1
        at += 1
    return [*found, (start, at)], at


def _statement_end(source: str, at: int) -> int:
    """Where a statement ends: at the semicolon that is in no literal."""
    while at < len(source) and source[at] != ";":
        match = _TEXT.match(source, at)
        at = match.end() if match else at + 1
    return at


def _joined(source: str, start: int, end: int) -> str:
    """The literals of a part of the source, with a NUL for what is between them."""
    pieces, at = list[str](), start
    for match in _TEXT.finditer(source, start, end):
        if re.search(r"\w", source[at : match.start()]):
            pieces.append("\0")
        literal = match["raw"] if match["raw"] is not None else match["text"]
        plain = re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), literal)
        pieces.append(_FIELD.sub("\0", plain))
        at = match.end()
    if re.search(r"\w", source[at:end]):
        pieces.append("\0")
    # The name of a function that builds the text (c10::str, fmt::format) is not a value in it.
    return re.sub("\0+", "\0", "".join(pieces)).removeprefix("\0")
