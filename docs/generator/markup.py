"""Markdown of generated pages: escaped text, tables, and links from names to their pages."""

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

_CODE = re.compile(r"`[^`\n]+`")
_PIPE = re.compile(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside of code
_SPECIAL = re.compile(r"([\\*_\[\]#])")
_NAME = re.compile(r"\b[A-Z][A-Z0-9]{1,15}_[A-Z0-9_]+(?:=[\w.,:/%^-]*\w)?")  # a variable, perhaps with its value
FENCE = re.compile(r"^( {0,12}(?:```+|~~~+)).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
# A code span that is no link yet, outside of headings.
_SPAN = re.compile(r"(?<![\[`])`(?P<name>[A-Za-z][\w-]{1,60})(?P<value>=[^`\n]*)?`(?![\]`])")


def prose(text: str) -> str:
    """Text as one paragraph: what stands in backticks, and each variable, is code; all else is escaped."""
    text = " ".join(text.split())
    parts, at = [], 0
    for span in _CODE.finditer(text):
        parts += [_plain(text[at : span.start()]), span[0]]
        at = span.end()
    return "".join([*parts, _plain(text[at:])])


def _plain(text: str) -> str:
    parts, at = [], 0
    for name in _NAME.finditer(text):
        parts += [_escaped(text[at : name.start()]), code(name[0])]
        at = name.end()
    return "".join([*parts, _escaped(text[at:])])


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """A code span; what holds a backtick itself gets two of them."""
    text = " ".join(text.split())
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def block(text: str, language: str = "text") -> str:
    """A block of code, which no line of the text can end."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = [head, ["---"] * len(head), *([_PIPE.sub("&#124;", cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listing(items: Iterable[str]) -> str:
    """A list of Markdown items."""
    return "\n".join(f"- {item}" for item in items)


def page(*parts: str) -> str:
    """A page of its non-empty parts, with a blank line between them."""
    return "\n\n".join(part for part in parts if part) + "\n"


def relative(target: str, uri: str) -> str:
    """The link from the page `uri` to another one, with its anchor."""
    path, mark, anchor = target.partition("#")
    return posixpath.relpath(path, posixpath.dirname(uri) or ".") + mark + anchor


def linked(text: str, uri: str, targets: Mapping[str, str]) -> str:
    """The page `uri` with each code span that is a known name as a link to the place that describes it."""

    def link(span: re.Match[str]) -> str:
        target = targets.get(span["name"])
        return span[0] if target is None or target == uri else f"[{span[0]}]({relative(target, uri)})"

    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [_lines(text[at : fence.start()], link), fence[0]]
        at = fence.end()
    return "".join([*parts, _lines(text[at:], link)])


def _lines(text: str, link: Callable[[re.Match[str]], str]) -> str:
    return "\n".join(line if line.startswith("#") else _SPAN.sub(link, line) for line in text.split("\n"))
