"""Writes rule files in the one style that all of them have: order of keys, quotes, one inline table per row.

```
title = "A text in double quotes"
why = 'One with "quotes" or a \\ in single ones'
rows.ib_event = [
  { host = "node01", port = 1 },
  { host = "node02", port = 1 },
]
```
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from nccl_doctor.rules.schema import Rule

WIDTH = 120  # a list that is longer has a line for each of its members
_BLOCKS = ("query", "log")  # several lines, always between lines of ''' of their own
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def rule_text(data: Mapping[str, Any]) -> str:
    """The text of a rule file with this content."""
    keys = [f.name for f in fields(Rule) if f.name in data and f.name != "example"]
    lines = [_pair(key, data[key]) for key in keys]
    for example in data.get("example", []):
        lines += ["", "[[example]]", _pair("name", example["name"])]
        lines += [_pair("log", example["log"])] if "log" in example else []
        lines += [_pair(f"rows.{table}", rows) for table, rows in example.get("rows", {}).items()]
        lines.append(_pair("expect", example["expect"]))
    return "\n".join(lines) + "\n"


def _pair(key: str, value: Any) -> str:
    if key in _BLOCKS:
        return f"{key} = {_block(value)}"
    line = f"{key} = {_value(value)}"
    if isinstance(value, list) and len(value) > 1 and len(line) > WIDTH:
        members = "".join(f"  {_value(member)},\n" for member in value)
        return f"{key} = [\n{members}]"
    return line


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key} = {_value(member)}" for key, member in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _quoted(text: str) -> str:
    plain = _is_plain(text) and "\n" not in text
    if plain and '"' not in text and "\\" not in text:
        return f'"{text}"'
    if plain and "'" not in text:
        return f"'{text}'"
    return f"'''{text}'''" if _fits_literal(text) and plain else f'"{_escaped(text, _ESCAPES)}"'


def _block(text: str) -> str:
    text = text.strip("\n") + "\n"
    if _fits_literal(text):
        return f"'''\n{text}'''"
    return f'"""\n{_escaped(text, {key: value for key, value in _ESCAPES.items() if key not in (chr(10), chr(9))})}"""'


def _fits_literal(text: str) -> bool:
    return "'''" not in text and not text.endswith("'") and _is_plain(text)


def _is_plain(text: str) -> bool:
    return not any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in text)


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    def each() -> Iterable[str]:
        for c in text:
            yield escapes.get(c) or (f"\\u{ord(c):04x}" if not c.isprintable() and c not in "\n\t" else c)

    return "".join(each())
