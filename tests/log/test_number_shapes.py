"""Lines that hold no fact and differ only in numbers are counted together: the facts are those of reading each of them."""

import io
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Evidence, Message, Process
from nccl_doctor.log import job_log, parallel
from nccl_doctor.log.classifier import Classifier
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.groups import grouped_counts
from nccl_doctor.log.groups.number_shapes import numberless, shortened
from nccl_doctor.log.groups.shape_kinds import Kind, ShapeKinds, in_shapes
from nccl_doctor.log.line_patterns import grammar, load

SAMPLES = sorted({text for pattern in load() if pattern.where == "nccl" for text in pattern.sample})
CHATTER = (
    "include/alloc.h:240 Cuda Alloc Size {n} pointer 0x7f{h}",
    "Cuda Host Alloc Size {n} pointer 0x7f{h}",
    "Allocated shareable buffer 0x7f{h} size {n}",
    "New proxy send connection {n} from local rank {n}, transport 2",
    "Memory used = {n}",
)
FACTS = (
    "comm 0x55{h} rank 3 nranks 8 cudaDev 0 busId 1b000 - Init COMPLETE",
    "Using network IB{n}",
)
STRANGE = (
    "Frob 0x{h} of {n}",
    "[{n}] Turned a queue: qp_idx={n}, qpn={h}",
    "Rank {n} has {n} gadgets (max {n}).",
)


def shape_of(text: str) -> str:
    data = f" {text}".encode()
    whole = np.array([1]), np.array([len(data)])
    short, begin, end = shortened(numberless(data.ljust(len(data) + 32)), *whole)
    return short[begin[0] : end[0]].decode()


def kind_of(text: str) -> Kind:
    return ShapeKinds(Classifier(grammar())).kinds([text], [shape_of(text)])[0]


def test_digits_addresses_and_codes_are_one_character() -> None:
    assert "a0 0\x010 f 0x0 0\x01z" == shape_of("a12 0x7fab12 f 5x77 0xz")
    assert shape_of("0x7fab") == shape_of("0xdeaf12") != shape_of("5x7fab")
    assert "id \x02, 0 and face" == shape_of("id 7fab129e, 7129 and face") == shape_of("id 1e2f, 5 and face")
    assert "xab0 \x02-\x02 a0" == shape_of("xab12 12ab-34cd a1")


@pytest.mark.parametrize(
    ("literal", "held"), [(" -> ", False), ("Size", True), ("Alloc 12", True), ("", True), (" 12ab34 end", True)]
)
def test_literals_as_they_are_in_shapes(literal: str, held: bool) -> None:
    (there,) = in_shapes([literal])
    assert held == (there in shape_of("Alloc 47 Size 7fab end"))


def varied(text: str, chance: random.Random) -> str:
    """Another text of the same shape."""

    def number(found: re.Match[str]) -> str:
        if found[0].startswith("0x"):
            return "0x" + "".join(chance.choice("0123456789abcdef") for _ in found[0][2:])
        size = chance.choice((len(found[0]), chance.randrange(1, 20)))
        if found[0].isdecimal():
            return "".join(chance.choice("0123456789") for _ in range(size))
        code = "".join(chance.choice("0123456789abcdef") for _ in range(max(size, 4) - 2))
        return chance.choice("0123456789") + code + chance.choice("abcdef")

    return re.sub(r"0x[0-9a-f]+|(?<!\w)(?=\w*\d)(?=\w*[a-f])[0-9a-f]{4,64}(?!\w)|\d+", number, text, flags=re.ASCII)


@given(
    text=st.sampled_from((*SAMPLES, *STRANGE)),
    seed=st.integers(0, 1 << 30),
    more=st.sampled_from(("", " 0x7fab12", " 12 -> 13", " [0]", " 12ab34cd", " 7 12ab:3 -> 4")),
    before=st.sampled_from(("", "", "12ab34 ", "12 ", "[3] ", "7 : ")),
)
def test_no_text_of_a_shape_without_facts_holds_one(text: str, seed: int, more: str, before: str) -> None:
    text, classifier = before + text.split("\n")[0] + more, Classifier(grammar())
    kind, other = kind_of(text), varied(text, random.Random(seed))
    if kind == Kind.OTHER or shape_of(other) != shape_of(text):  # `63f` with more digits is a code
        return
    sentence = classifier.sentence("INFO", other)
    if kind == Kind.FREE:
        assert sentence is not None, other
        assert sentence.pattern is None, other
    else:
        assert sentence is None, other
        assert classifier.is_unknown("INFO", other), other


def test_most_texts_that_are_skipped_are_skipped_with_any_number() -> None:
    for shapes, kind in ((CHATTER, Kind.FREE), (FACTS, Kind.OTHER), (STRANGE, Kind.UNKNOWN)):
        assert [(shape, kind) for shape in shapes] == [
            (shape, kind_of(shape.format(n=12, h="ab12cd"))) for shape in shapes
        ]


def log(lines: int, stamped: bool) -> str:
    chance, written = random.Random(lines), []
    for number in range(lines):
        shape = chance.choice(FACTS if number % 7 == 0 else STRANGE if number % 3 == 0 else CHATTER)
        text = shape.format(n=chance.randrange(10_000), h=f"{chance.getrandbits(24):06x}")
        stamp = f"2026-05-07T12:{number // 60 % 60:02d}:{number % 60:02d}.123Z " if stamped else ""
        written.append(f"{stamp}node{number % 3:02d}:{4000 + number % 16}:1 [0] NCCL INFO {text}\n")
    return "".join(written)


def counted(text: str, *, large: bool) -> tuple[LogCounts, list[object]]:
    counts, tail = parallel.scan(io.BytesIO(text.encode()), large=large)
    facts = Facts()
    job_log.add(facts, [("job.log", counts, tail)])
    lines = {row.id: (row.line, row.text) for row in facts.rows(Evidence)}
    return counts, [
        sorted(((*row[:-1], lines[row[-1]]) for row in facts.rows(table)), key=repr) for table in (Process, Message)
    ]


@pytest.mark.parametrize("stamped", [False, True])
def test_lines_counted_together_and_one_by_one_give_the_same_facts(
    stamped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = log(4_000, stamped) * 6  # several blocks: the first one shows that there are many numbers
    asked: list[str] = []
    sentence = Classifier.sentence
    monkeypatch.setattr(
        Classifier,
        "sentence",
        lambda self, level, body, *rest: (asked.append(body), sentence(self, level, body, *rest))[1],
    )
    together, rows = counted(text, large=True)
    one_by_one, others = counted(text, large=False)
    assert others == rows
    assert (one_by_one.lines, one_by_one.nccl_lines, one_by_one.understood) == (
        together.lines,
        together.nccl_lines,
        together.understood,
    )
    with monkeypatch.context() as patch:
        patch.setattr(grouped_counts, "_WORTH", 0)  # shapes are never looked for
        count = len(asked)
        assert rows == counted(text, large=True)[1]
    assert len(asked) - count > 1_000
