"""Finds what Python sources raise, assert, warn about and log as a warning or error, from their syntax trees.

raise ValueError(f"rank {rank} of {size}")      logger.warning("waited %s s", seconds)      assert ok, "not " + name
"""

import ast
import re
from collections.abc import Iterator

FAULTS = (
    "warning", "warn", "error", "critical", "exception", "fatal", "warning_once", "error_once", "warning_rank_0",
    "rank_zero_warn", "rank_zero_deprecation",
)  # fmt: skip
_SPEC = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[sdrfxgi]")
_FIELD = re.compile(r"\{[^{}]*\}")


def python_texts(source: str, logging: tuple[str, ...] = FAULTS) -> Iterator[tuple[int, str, str]]:
    """Line, kind (raise, assert or log) and text of each message; a value in the text is a NUL. Raises SyntaxError.

    `logging` are the functions whose messages are of the kind log.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _first(node.lineno, "raise", node.exc.args, f"{_name(node.exc.func)}: ")
        elif isinstance(node, ast.Assert) and node.msg is not None:
            yield from _first(node.lineno, "assert", [node.msg], "AssertionError: ")
        elif isinstance(node, ast.Call) and _name(node.func) in logging:
            yield from _first(node.lineno, "log", node.args, "")


def _first(line: int, kind: str, arguments: list[ast.expr], lead: str) -> Iterator[tuple[int, str, str]]:
    """The first of the arguments that is a text."""
    texts = (text for text in map(_text, arguments) if text is not None)
    yield from ((line, kind, lead + text) for text in [next(texts, None)] if text is not None)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _text(node: ast.expr) -> str | None:
    """The text of an expression, None where it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return _SPEC.sub("\0", text)
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = _text(left), _text(right)
            return None if texts == (None, None) else "".join("\0" if text is None else text for text in texts)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _text(left)
        case ast.Call(func=ast.Attribute(value=template, attr="format")):
            text = _text(template)
            return None if text is None else _FIELD.sub("\0", text)
    return None
