"""Text whose every record has numbers of its own, made of one that a program printed."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"

# What changes keeps its width: decimals behind the point, integers of five and more digits and codes behind `0x` all but how they begin,
# and times. Dates, zeros, versions, totals and the speeds of links, which are the same on all nodes, stay.
_CHANGES = re.compile(
    r"(?P<clock>(?<![\w:.-])\d\d:\d\d:\d\d(?![:\d]))"
    r"|(?<![\w.:])\d+\.(?P<decimals>\d+)(?![\w.:]|\sGbps)"
    r"|(?<![\w.-])(?!20\d\d[01]\d[0-3]\d)\d(?P<integer>\d{4,})(?![\w.-])"
    r"|0x[0-9a-fA-F]{2}(?P<code>[0-9a-fA-F]{4,})"
)
_STAYS = re.compile(r"version|total|revision|firmware|mtu|psid|python", re.IGNORECASE)
_BEFORE = 40  # characters in front of a number that say what it is
_DAY = 86_400


def varied(text: str, more: str | None = None, sizes: bool = False) -> Iterator[str]:
    """The text again and again, with other numbers each time, equal ones equally; its clock goes on from where it stopped.

    `more` are digits that change too, as a group of that name. `sizes`: integers stay, being those of messages.
    """
    changes = re.compile(rf"{more}|{_CHANGES.pattern}" if more else _CHANGES.pattern)
    pieces: list[str] = []  # text that stays, and what changes behind each
    tokens: list[str] = []
    for line in text.splitlines(keepends=True):
        at = 0
        for found in changes.finditer(line):
            group = found.lastgroup or ""
            before = line[max(0, found.start() - _BEFORE) : found.start()]
            stays = _STAYS.search(before) or (sizes and group == "integer")
            if not re.search("[1-9a-f]", found[0].removeprefix("0x")) or (stays and group != "more"):
                continue
            pieces.append(line[at : found.start(group)])
            tokens.append(("0x" if group == "code" else "") + found[group])
            at = found.end(group)
        pieces.append(line[at:])
        tokens.append("")
    yield text
    distinct = list(dict.fromkeys(tokens))
    seconds = {token: _seconds(token) for token in distinct if ":" in token}
    span = max(seconds.values()) - min(seconds.values()) + 1 if seconds else 0
    codes = {token: len(token) - 2 for token in distinct if token.startswith("0x")}
    width = sum(len(token) for token in distinct if token not in seconds and token not in codes)
    chance = random.Random(1)
    passed = 0
    while True:
        passed += span
        digits = f"{chance.randrange(10**width):0{width}d}" if width else ""
        new, at = {}, 0
        for token in distinct:
            if token in seconds:
                now = (seconds[token] + passed) % _DAY
                new[token] = f"{now // 3600:02d}:{now // 60 % 60:02d}:{now % 60:02d}"
            elif token in codes:
                new[token] = f"{chance.getrandbits(4 * codes[token]):0{codes[token]}x}"
            else:
                new[token] = digits[at : at + len(token)]
                at += len(token)
        yield "".join(part for piece, token in zip(pieces, tokens, strict=True) for part in (piece, new[token]))


def _seconds(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + seconds


def looped(path: str, more: str | None = None, names: str = "", sizes: bool = False) -> Callable[[], Iterator[str]]:
    """What a command in a loop prints: a fixture again and again with other numbers, the head of its table only once in one file.

    Behind `names` a number is added that counts the repetitions.
    """

    def text() -> Iterator[str]:
        for number, printed in enumerate(varied((FIXTURES / path).read_text(), more, sizes), 1):
            yield printed.replace(names, f"{names}{number}").rstrip("\n") if names else printed.rstrip("\n")

    return text


def on_nodes(path: str, prompt: str = "", more: str | None = None, sizes: bool = False) -> Callable[[], Iterator[str]]:
    """What pdsh prints: a fixture from one node after another, each with numbers of its own; `prompt` stands before that of each."""

    def text() -> Iterator[str]:
        captured = prompt + "\n" * bool(prompt) + (FIXTURES / path).read_text()
        for node, printed in enumerate(varied(captured, more, sizes), 1):
            yield "\n".join(f"node{node:05d}: {line}" for line in printed.splitlines())

    return text
