"""Changes of inputs that know what they change: lines and numbers of texts, trees of JSON and TOML, tables, bytes."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

NUMBERS = (
    "0", "-1", "1", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 30,
    "9" * 5000, "1e308", "1e400", "-1e400", "nan", "inf", "1e-400", "0x" + "f" * 40, "", " ", "١٢", "1.7976931348623157e308",
    "00", "1_000", "+5", "-0.0", "65536", "4294967296", "1" * 16,
)  # fmt: skip
WORDS = (
    "", "\0", "\ud800", "\u3164", "\u202egnp", "[bold]x[/bold]", "\x1b[31m", "%s%n", "{host}", "../../../etc/passwd", "'",
    '"', "\\", "\r", "\n", "\t", ",", "' OR 1=1 --", "=cmd()", "`x`", "<script>", "&amp;", "日本語", "a" * 3000, "é" * 500,
    "null", "None", "true", "node01", "node[01-9999]", "::1", "0000:00:00.0", "NCCL WARN ", "NCCL INFO ", "node01:1:1 [0] ",
    " -> ", " via NET/IB/0", "rank 0 nranks 8", "Traceback (most recent call last):", "\ufeff", "\x85", "\u2028",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e308, float("inf"), float("nan"), 1 << 63, -(1 << 63) - 1, 1 << 80, "", "x", "\0",
    "\ud800", [], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, "9" * 5000, [0] * 300,
)  # fmt: skip
_TOKEN = re.compile(r"[A-Za-z_]{2,}|[0-9][0-9.]*|[^\sA-Za-z0-9]")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])-?[0-9]+(?:\.[0-9]+)?")


def some(rng: Random, most: int = 4) -> int:
    """How often something is done: mostly once."""
    return min(most, 1 + int(rng.expovariate(1.2)))


def change_bytes(data: bytes, rng: Random) -> bytes:
    """Bytes that were flipped, cut, doubled, moved or put in."""
    out = bytearray(data)
    for _ in range(some(rng)):
        at = rng.randrange(len(out) + 1)
        to = min(len(out), at + rng.choice((1, 2, 8, 64, 1024, 1 << 16)))
        kind = rng.randrange(7)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:to]
        elif kind == 2:
            out[at:at] = out[at:to]
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            out[at:at] = rng.choice(
                (b"\0" * 40, b"\xff" * 8, b"\n", b"\r\n", b"\x80", b"\xef\xbb\xbf", rng.randbytes(16))
            )
        elif kind == 5:
            out[at:to] = bytes(len(out[at:to]))
        else:
            out[at:at] = out[at:to][:200] * rng.choice((10, 100, 1000))
    return bytes(out)


def change_text(text: str, rng: Random, others: Sequence[str] = ()) -> str:
    """Lines that were lost, doubled, moved, torn, glued or changed; `others` are texts from which lines come."""
    lines = text.split("\n")
    for _ in range(some(rng, 8)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(12)
        if kind == 0:
            del lines[at : at + rng.choice((1, 1, 5, 50))]
        elif kind == 1:
            lines[at:at] = lines[at : at + rng.choice((1, 1, 5))] * rng.choice((1, 2, 100))
        elif kind == 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3 and lines[at]:
            place = rng.randrange(len(lines[at]))
            lines[at : at + 1] = [lines[at][:place], lines[at][place:]]
        elif kind == 4:
            lines[at : at + 2] = ["".join(lines[at : at + 2])]
        elif kind == 5 and others:
            more = rng.choice(others).split("\n")
            start = rng.randrange(len(more))
            lines[at:at] = more[start : start + rng.choice((1, 3, 30))]
        elif kind == 6:
            del lines[at:]
        else:
            lines[at] = change_line(lines[at], rng)
        if not lines:
            lines = [""]
    return rng.choice(("\n",) * 9 + ("\r\n",)).join(lines)


def change_line(line: str, rng: Random) -> str:
    """A line with other numbers, words or punctuation, or with a part of it many times."""
    kind = rng.randrange(6)
    if kind == 0 and (found := list(_NUMBER.finditer(line))):
        one = rng.choice(found)
        return line[: one.start()] + rng.choice(NUMBERS) + line[one.end() :]
    if kind == 1:
        number = rng.choice(NUMBERS)
        return _NUMBER.sub(lambda _: number, line)
    found = list(_TOKEN.finditer(line))
    if not found:
        return line + rng.choice(WORDS)
    one = rng.choice(found)
    if kind == 2:
        return line[: one.start()] + rng.choice(WORDS) + line[one.end() :]
    if kind == 3:
        return line[: one.start()] + line[one.end() :]
    if kind == 4:
        other = rng.choice(found)
        start, end = sorted((one.start(), other.end()))
        return line[:start] + line[start:end] * rng.choice((2, 20, 400)) + line[end:]
    return line[: one.start()] + rng.choice(WORDS) + line[one.start() :]


def change_tree(tree: Any, rng: Random, values: Sequence[Any] = VALUES) -> Any:
    """A tree of lists and tables in which some nodes are others."""
    for _ in range(some(rng)):
        tree = _change_node(tree, rng, values)
    return tree


def _change_node(tree: Any, rng: Random, values: Sequence[Any]) -> Any:
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.02:
        return rng.choice((*values, [tree], {"x": tree}, str(tree), _nested(rng)))
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = rng.choice(keys)
    out: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    kind = rng.randrange(10)
    if kind == 0:
        del out[key]
    elif kind == 1 and isinstance(out, list):
        out[key:key] = [out[key]] * rng.choice((1, 10, 1000))
    elif kind == 1:
        out[str(rng.choice(WORDS)) or "x"] = out[key]
    elif kind == 2:
        out[key] = tree[rng.choice(keys)]
    elif kind == 3 and not isinstance(out[key], dict | list):
        out[key] = rng.choice(values)
    else:
        out[key] = _change_node(out[key], rng, values)
    return out


def _nested(rng: Random) -> Any:
    deep: Any = []
    for _ in range(rng.choice((3, 100, 400))):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    return deep


def change_json(text: str, rng: Random) -> str:
    """JSON, or lines of it, with other values; now and then no longer JSON."""
    if rng.random() < 0.3:
        return change_text(text, rng)
    try:
        return json.dumps(change_tree(json.loads(text), rng))
    except (ValueError, RecursionError):
        pass
    lines = text.split("\n")
    for _ in range(some(rng)):
        at = rng.randrange(len(lines))
        try:
            lines[at] = json.dumps(change_tree(json.loads(lines[at]), rng))
        except (ValueError, RecursionError):
            lines[at] = change_line(lines[at], rng)
    return "\n".join(lines)


def change_table(text: str, rng: Random) -> str:
    """CSV with other cells, columns and rows."""
    rows = [line.split(",") for line in text.split("\n")]
    for _ in range(some(rng)):
        row = rng.choice(rows)
        column = rng.randrange(len(row))
        kind = rng.randrange(7)
        if kind == 0:
            row[column] = rng.choice((*NUMBERS, *WORDS))
        elif kind == 1:
            del row[column:]
            row.append("")
        elif kind == 2:
            row[column:column] = [row[column]] * rng.choice((1, 3, 5000))
        elif kind == 3:
            for one in rows:
                if column < len(one):
                    one[column] = rng.choice(NUMBERS)
        elif kind == 4:
            rows.insert(rng.randrange(len(rows)), list(rows[0]))
        elif kind == 5:
            rng.shuffle(rows[0])
        else:
            rows[rng.randrange(len(rows))] = [change_line(",".join(row), rng)]
    return "\n".join(",".join(row) for row in rows)


def encoded(text: str) -> bytes:
    """The bytes of a text, lone surrogates and all."""
    return text.encode("utf-8", "surrogatepass")


def change_file(name: str, data: bytes, rng: Random, others: Sequence[str] = ()) -> bytes:
    """A file changed as its kind asks for, now and then as bytes."""
    if rng.random() < 0.12 or b"\0" in data[:4096]:
        return change_bytes(data, rng)
    text = data.decode("utf-8", "replace")
    how: Callable[[str, Random], str]
    if text.lstrip().startswith(("{", "[")):
        how = change_json
    elif name.endswith((".csv", ".prom")):
        how = change_table if rng.random() < 0.7 else change_text
    else:
        return encoded(change_text(text, rng, others))
    return encoded(how(text, rng))


def toml_text(value: Any) -> str:
    """A value as TOML writes it, in one line; what TOML lacks becomes a word that is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {toml_text(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    return "none" if value is None else repr(value)


def toml_file(tree: Any) -> str:
    """A tree as a TOML file; one that is nested too deeply to be written becomes a list that is."""
    try:
        if not isinstance(tree, dict):
            return toml_text(tree)
        return "".join(f"{json.dumps(str(key))} = {toml_text(value)}\n" for key, value in tree.items())
    except RecursionError:
        return f"params = {'[' * 5000}{']' * 5000}\n"
