"""Lines that hold no fact and differ only in numbers are counted together: the facts are those of reading each of them."""

import io
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Evidence, Message, Process
from nccl_doctor.log import job_log, parallel
from nccl_doctor.log.classifier import Classifier
from nccl_doctor.log.counts import LogCounts
from nccl_doctor.log.groups import grouped_counts
from nccl_doctor.log.groups.number_shapes import holds_no_fact, may_hold, numberless
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
    "Frob 0x{h} of {n}",
)


def plain(text: str) -> str:
    data = text.encode()
    return bytes(numberless(data.ljust(len(data) + 32)))[: len(data)].decode()


def test_digits_and_addresses_are_zeroed() -> None:
    assert "a00 0\x01000000 f 0x00 0\x01z" == plain("a12 0x7fab12 f 5x77 0xz")[:-1] + "z"
    assert plain("0x7fab") == plain("0xdeaf") != plain("5x7fab")


@pytest.mark.parametrize(
    ("literal", "held"), [(" -> ", False), ("Size", True), ("Alloc 12", True), ("face", True), ("x7", True)]
)
def test_what_a_shape_may_hold(literal: str, held: bool) -> None:
    assert held == may_hold(literal, plain("Alloc 47 Size 0x7fab end"))


def varied(text: str, chance: random.Random) -> str:
    text = re.sub(r"0x([0-9a-f]+)", lambda m: "0x" + "".join(chance.choice("0123456789abcdef") for _ in m[1]), text)
    return re.sub(r"0x[0-9a-f]+|\d", lambda m: m[0] if len(m[0]) > 1 else chance.choice("0123456789"), text)


@given(
    text=st.sampled_from(SAMPLES),
    seed=st.integers(0, 1 << 30),
    more=st.sampled_from(("", " 0x7fab12", " 12 -> 13", " [0]")),
)
def test_no_text_of_a_shape_without_facts_holds_one(text: str, seed: int, more: str) -> None:
    text, classifier = text.split("\n")[0] + more, Classifier(grammar())
    if holds_no_fact(classifier, text, plain(text)):
        other = varied(text, random.Random(seed))
        sentence = classifier.sentence("INFO", other)
        assert sentence is not None, other
        assert sentence.pattern is None, other


def test_most_texts_that_are_skipped_are_skipped_with_any_number() -> None:
    classifier = Classifier(grammar())
    texts = [shape.format(n=12, h="ab12cd") for shape in CHATTER]
    assert [True] * len(texts) == [holds_no_fact(classifier, text, plain(text)) for text in texts]
    facts = [shape.format(n=12, h="ab12cd") for shape in FACTS]
    assert [False] * len(facts) == [holds_no_fact(classifier, text, plain(text)) for text in facts]


def log(lines: int, stamped: bool) -> str:
    chance, written = random.Random(lines), []
    for number in range(lines):
        shape = chance.choice(CHATTER if number % 7 else FACTS)
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
