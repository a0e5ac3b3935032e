"""Genuine files put together as no program does: two kinds in one file, envelopes of log services around each other, encodings."""

import json
from collections.abc import Callable
from random import Random

from mutations import some

Mutator = Callable[[bytes, Random], bytes]
STAMP = "2026-05-07T12:{:02}:{:02}.000000000Z"


def spliced(one: bytes, other: bytes, rng: Random) -> bytes:
    """Two files in one: behind each other, from somewhere, line by line, or in blocks that end anywhere."""
    kind = rng.randrange(4)
    if kind == 0:
        return one + other
    if kind == 1:
        return one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :]
    apart = [data.split(b"\n") for data in (one, other)]
    if kind == 2:
        out = []
        while any(apart):
            lines = rng.choice([lines for lines in apart if lines])
            out += lines[: (count := rng.choice((1, 1, 3, 40)))]
            del lines[:count]
        return b"\n".join(out)
    size = rng.choice((100, 4096, 1 << 16))
    blocks = [data[at : at + size] for data in (one, other) for at in range(0, len(data), size)]
    rng.shuffle(blocks)
    return b"".join(blocks)


def _docker(line: str, at: int, rng: Random) -> str:
    return json.dumps({"log": line + rng.choice(("\n", "\n", "\n", "")), "stream": "stdout", "time": _stamp(at)})


def _cri(line: str, at: int, rng: Random) -> str:
    return f"{_stamp(at)} {rng.choice(('stdout', 'stderr'))} {rng.choice('FFFP')} {line}"


def _record(line: str, at: int, rng: Random) -> str:
    return json.dumps({rng.choice(("message", "msg", "log")): line, "timestamp": _stamp(at), "level": "INFO"})


def _row(line: str, at: int, rng: Random) -> str:
    if at == 0:
        return "@timestamp,@message"
    quoted = line.replace('"', '""') if rng.random() < 0.98 else line
    return f'{_stamp(9999 - at)},"{quoted}"'


def _journal(line: str, at: int, _: Random) -> str:
    return f"__CURSOR={at}\nMESSAGE={line}\n_HOSTNAME=node01\n"


def _launched(line: str, at: int, rng: Random) -> str:
    return f"{rng.choice(('[rank3]: ', '3: ', '(node01) ', f'[{at},0]<stdout>:', _stamp(at) + ' '))}{line}"


ENVELOPES = (_docker, _cri, _record, _row, _journal, _launched)


def enveloped(data: bytes, rng: Random) -> bytes:
    """Every line in envelopes, one to three deep."""
    text = data.decode("utf-8", "replace")
    for _ in range(some(rng, 3)):
        envelope = rng.choice(ENVELOPES)
        text = "\n".join(envelope(line, at, rng) for at, line in enumerate(text.split("\n"))) + "\n"
        if len(text) > 1 << 20:
            break
    return text.encode("utf-8", "replace")


def folded(data: bytes, rng: Random) -> bytes:
    """Lines wrapped at a width, with carriage returns, or without ends."""
    kind, width = rng.randrange(3), rng.choice((60, 80, 132, 250))
    if kind == 0:
        return b"\n".join(line[at : at + width] for line in data.split(b"\n") for at in range(0, len(line) or 1, width))
    return data.replace(b"\n", rng.choice((b"\r", b"\r\n", b"\n\r", b"\x0b", b"\x00")) if kind == 1 else b" ")


def recoded(data: bytes, rng: Random) -> bytes:
    """Another encoding for all of it or from somewhere on."""
    name = rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "cp037"))
    at = rng.choice((0, 0, rng.randrange(len(data) + 1)))
    return data[:at] + data[at:].decode("utf-8", "replace").encode(name, "replace")


MUTATORS: tuple[Mutator, ...] = (enveloped, enveloped, folded, recoded)


def _stamp(at: int) -> str:
    return STAMP.format(at // 60 % 60, at % 60)
