"""Templates of messages: fixed text with gaps `{name}`, `{name:d}`, `{name:x}` and `{}`, as expressions and as words."""

import re
from collections.abc import Iterable

from nccl_doctor.common import digit_shapes
from nccl_doctor.common.expressions import compiled

RECORD, LINE = "record", "line"
WORD = compiled(r"[A-Za-z0-9_]+")
_GAP = compiled(r"\{(?P<name>[a-z_][a-z0-9_]*)?(?::(?P<type>[dx]))?\}")
_TYPES = {"d": r"[-+]?\d{1,40}", "x": r"(?:0x)?[0-9a-fA-F]{1,40}|\(nil\)", None: ".*?"}
_TAG = r"\s{0,9}(?:(?:[A-Z][A-Za-z]{0,40}(?:/[\w-]{1,40}){1,6}|[A-Z]{3,40}|\[[^\]]{0,60}\]) ?: ?|NET/OFI )?"  # the part of NCCL
_BLANKS = compiled(r"[ \t]{2,}")


def squeezed(text: str) -> str:
    """The text with one blank for each run of blanks: programs and wrapping loggers differ in them."""
    return _BLANKS.sub(" ", text) if "  " in text or "\t" in text else text


def text_parts(template: str) -> list[str]:
    return [part.strip() for part in fixed_parts(template) if part.strip()]


def place_of(text: str, start: int, parts: Iterable[str]) -> tuple[int, int]:
    """From where to where the fixed parts of a template are in a text that it matches from `start` on."""
    first = end = -1
    for part in parts:
        at = text.find(part, start if end < 0 else end)
        first = at if first < 0 else first
        end = at + len(part)
    return first, end


def fixed_parts(template: str) -> list[str]:
    """The texts between the gaps of a template."""
    return _GAP.sub("\0", template).split("\0")


def compile_template(template: str, where: str) -> re.Pattern[str]:
    """The regular expression of a template; the last gap takes the rest of the line.

    A gap that takes anything forms an atomic group with what follows it, up to the next such gap: where that was found first,
    all that comes later can be found too, and other places need not be tried.
    """
    pieces, at, is_open = [_TAG if where == RECORD else ""], 0, False
    for gap in _GAP.finditer(template):
        pieces.append(re.escape(template[at : gap.start()]))
        if gap["type"] is None:
            pieces.append(")(?>" if is_open else "(?>")
            is_open = True
        last = gap.end() == len(template)
        what = r".*" if last and gap["type"] is None else _TYPES[gap["type"]]
        pieces.append(f"(?P<{gap['name']}>{what})" if gap["name"] else f"(?:{what})")
        at = gap.end()
    pieces += [re.escape(template[at:]), ")" if is_open else ""]
    return compiled("".join(pieces))


def words_of(template: str) -> list[str]:
    """The whole words of a template: those that touch no gap."""
    joined = _GAP.sub("\0", template)
    return [
        match[0]
        for match in WORD.finditer(joined)
        if joined[match.start() - 1 : match.start()] != "\0" and joined[match.end() : match.end() + 1] != "\0"
    ]


def numbered_parts(template: str) -> list[str]:
    """The fixed texts of a template that holds a digit, with 0 for each digit; none where it holds no digit."""
    parts = [digit_shapes.zeroed(part) for part in text_parts(template)]
    return parts if any(map(str.isdigit, "".join(parts))) else []


def zeroed_word(word: str) -> str:
    """The first word that is left of a word whose digits are 0."""
    return str(WORD.findall(digit_shapes.zeroed(word))[0])
