"""Lines whose prefixes are taken off together say what each says alone."""

import re
from io import BytesIO
from random import Random

import pytest

from nccl_doctor.inputs import labelled, prefixes
from nccl_doctor.inputs.prefix_checks import MOST_TOLD, kind_of
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


def split(given: list[bytes], size: int) -> list[tuple[prefixes.Label, str]]:
    """The lines as one splitter gives them, so many at once."""
    splitter = PrefixSplitter()
    return [
        (label._replace(stamp=None), text)
        for at in range(0, len(given), size)
        for label, texts in splitter.split(b"\n".join(given[at : at + size]))
        for text in texts
    ]


@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_splitter(size: int) -> None:
    assert split(lines(), size) == list(map(alone, lines()))


def runs() -> list[bytes]:
    """Lines as pdsh and its like give them: many of one node after another."""
    random = Random(SEED)
    given = []
    for prefix in random.choices(PREFIXES, k=400):
        texts = [text for text in TEXTS if text not in ("97 %", "{n} {n} 10")]
        for text in random.choices(texts, k=random.randrange(1, 30)):
            given.append((prefix + text).format(n=random.randrange(10)).encode())
    return given


@pytest.mark.parametrize("size", [1, 7, 500, 20_000])
def test_runs_of_one_writer(size: int) -> None:
    assert split(runs(), size) == list(map(alone, runs()))


def blocks() -> list[bytes]:
    """What one command prints on many nodes: the same lines but for digits, sometimes torn, mixed or with line ends of Windows."""
    random = Random(SEED)
    texts = [text for text in TEXTS if text not in ("97 %", "{n} {n} 10")]
    kinds = [random.choices(texts, k=random.randrange(1, 12)) for _ in range(4)]
    kinds += [["GPU {n}: ok", "", "  grün {n}", "node: x"], ["Port {n}:", "\tState: {n}"]]
    kinds += [
        [
            "\tNode GUID: 0x{c}",
            "GPU {n} (UUID: GPU-{c:.8}-4b1d-9e55-0a1b-{c:.12})",
            "{c}: x",
            "{c:.6} {n}",
            "x{c}: y",
            "0x{c:.4}: z",
            "  {c:.5}",
        ]
    ]
    given = []
    for node in range(300):
        block = random.choice(kinds)
        code = f"{random.getrandbits(64):016x}"
        lines = [f"node{node % 97:02}: {text}".format(n=random.randrange(10), c=code).encode() for text in block]
        if not node % 7:
            lines = [line + b"\r" for line in lines]
        if node % 5:
            given += lines
        else:  # torn by the node before it
            at = random.randrange(len(given) + 1) if given else 0
            given[at:at] = lines
    return given


@pytest.mark.parametrize("size", [7, 500, 20_000])
def test_blocks_that_many_nodes_print(size: int) -> None:
    assert split(blocks(), size) == list(map(alone, blocks()))


@pytest.mark.parametrize("text", ["{c}: x", "{c} | x", "{c}/1: x", "GUID: 0x{c}", "GPU-{c}-1 y"])
def test_a_word_of_hexadecimal_digits_may_be_a_host(text: str) -> None:
    """`4a1b2c3d: ` is none, and `a41b2c3d: ` is one, though both are hexadecimal numbers."""
    codes = ("4a1b2c3d", "2e82ff74", "a41b2c3d", "f094645c", "5b6001d7")
    given = [f"node01: {line}".encode() for line in ("a", "b", "c", "d", *(text.format(c=code) for code in codes))]
    assert split(given, len(given)) == list(map(alone, given))


def test_few_runs_are_remembered() -> None:
    splitter = PrefixSplitter()
    for number in range(300):
        text = "\n".join(f"node{number:03}: {'x' * number} {line}" for line in range(5))
        assert [text for _, texts in splitter.split(text.encode()) for text in texts] == [
            f"{'x' * number} {line}" for line in range(5)
        ]
    assert all(len(behind.whole) <= 64 for behind in splitter._behind.values())


def test_digits_of_long_words_do_not_matter() -> None:
    """`ext4: ` is no host, `node04711: ` is one whatever its digits are."""
    random = Random(SEED)
    words = [
        "node0{}",
        "gpu-a{}-b{}",
        "enp{}s{}f{}",
        "mlx5_{}{}{}",
        "error{}{}{}",
        "ibp{}{}s{}",
        "cuda-{}.{}.{}",
        "x{}.y{}.py{}",
    ]
    for word in words:
        many = [word.format(*(random.choice((7, 42, 81234)) for _ in range(3))) for _ in range(50)]
        for one in (one for one in many if len(one) > MOST_TOLD):
            assert kind_of(one) == kind_of(re.sub(r"\d", "0", one))


NUMBERS = ["procs -----memory-----", " r  b   swpd", " 9  0      0", "10  0      0", "12  3      0", " 8  0      0"]


@pytest.mark.parametrize("size", [5, 600])
def test_a_line_that_goes_on_with_a_number_has_the_writer_of_the_lines_around_it(size: int) -> None:
    """`node01: 97 %` alone may be about a device; below a line that `node01: ` stands before, it is not."""
    given = [f"node{node:02}: {text}".encode() for node in range(40) for text in NUMBERS]
    assert alone(given[3]) == (prefixes.NOTHING, "node00: 10  0      0")
    splitter = PrefixSplitter()
    found = [
        (label.host, text)
        for at in range(0, len(given), size)
        for label, texts in splitter.split(b"\n".join(given[at : at + size]))
        for text in texts
    ]
    assert found == [(f"node{node:02}", text) for node in range(40) for text in NUMBERS]


ONE = [b"node01: " + text.format(n=1).encode() for text in TEXTS]
NODES = [f"node{at // 30:02}: {text}".format(n=1).encode() for at, text in enumerate(300 * ("a", "", "b: {n}"))]
PEELS = ((labelled._word,), (labelled._word, labelled._word), (prefixes.peel,), (prefixes.peel, prefixes.peel))


@pytest.mark.parametrize("peels", PEELS)
@pytest.mark.parametrize("given", [lines(), ONE, [line.rstrip(b"\r") for line in ONE], [b"node01:", *ONE], NODES])
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
