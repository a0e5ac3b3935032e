"""Lines whose prefixes are taken off together say what each says alone."""

from io import BytesIO
from random import Random

import pytest

from nccl_doctor.inputs import labelled, prefixes
from nccl_doctor.inputs.prefix_splitter import PrefixSplitter

SEED = 7
LINES = 3_000
PREFIXES = (
    "", "3: ", "12: ", "node01: ", "node02: ", "eth0: ", "eth1: ", "gpu7: ", "ext4: ", "10.1.0.4: ", "worker-0  | ",
    "[pod/train-1/main] ", "[pod/train-2/main] 2026-05-07T12:00:0{n}.123456789Z ", "2026-05-07T12:00:0{n}.5Z ",
    "2026-05-07T12:00:0{n}.123456789Z stdout F ", "2026-05-07T12:00:0{n}.1+00:00 node0{n} kernel: ", "12:00:0{n} ", "[1,{n}]<stdout>:",
    "(pid=23{n}) ", "(Worker pid=23{n}, ip=10.0.0.{n}) ", "Tue May  7 12:00:0{n} 2024[1,{n}]<stdout>:", "rank{n}: ",
    '<stdout rank="{n}">', "\ufeff", "  {n}: ", "nöde1: ",
)  # fmt: skip
TEXTS = (
    "", " ", "step {n}", "node0{n}: done", "  Port 1: Active", "97 %", "{n} {n} 10", "[{n}, {n}]", "| a | b |", "stdout F x", "\tkernel: x",
    "node0{n} kernel: x", "node01:101:10{n} [0] NCCL INFO x", "\x1b[31mred {n}\x1b[0m", "grün {n}", "carried\r", "x" * 600 + "{n}",
    '{{"log": "deep {n}\\n", "stream": "stdout"}}', "2026-05-07 12:00:00,00{n} - x", "Traceback (most recent call last):",
)  # fmt: skip


def lines() -> list[bytes]:
    random = Random(SEED)
    return [
        (random.choice(PREFIXES) + random.choice(TEXTS)).format(n=random.randrange(10)).encode() for _ in range(LINES)
    ]


def alone(raw: bytes) -> tuple[prefixes.Label, str]:
    line = raw.rstrip(b"\r").decode().removeprefix("\ufeff")
    return prefixes.split(prefixes.clean(line), timeless=True)


@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_splitter(size: int) -> None:
    given = lines()
    splitter = PrefixSplitter()
    found = [
        (label._replace(stamp=None), text)
        for at in range(0, len(given), size)
        for label, texts in splitter.split(given[at : at + size])
        for text in texts
    ]
    assert found == list(map(alone, given))


ONE = [b"node01: " + text.format(n=1).encode() for text in TEXTS]
PEELS = ((labelled._word,), (labelled._word, labelled._word), (prefixes.peel,), (prefixes.peel, prefixes.peel))


@pytest.mark.parametrize("peels", PEELS)
@pytest.mark.parametrize("given", [lines(), ONE, [line.rstrip(b"\r") for line in ONE], [b"node01:", *ONE]])
def test_parts(peels: tuple[labelled.Peel, ...], given: list[bytes]) -> None:
    expected: dict[tuple[str | None, int | None], list[tuple[int, bytes]]] = {}
    for number, raw in enumerate(given, 1):
        line = raw.decode().rstrip("\r").removeprefix("\ufeff")
        label, end, _ = labelled.peel_all(peels, line)
        if end:
            expected.setdefault((label.host, label.rank), []).append((number, line[end:].encode()))
    found = {}
    for part in labelled.Parts(BytesIO(b"\n".join(given) + b"\n"), peels):
        texts = part.stream.read(1 << 30).split(b"\n")[:-1]
        numbers = map(part.source_line, range(1, len(texts) + 1))
        found[part.label.host, part.label.rank] = list(zip(numbers, texts, strict=True))
    assert found == expected
