"""Lines whose layout is known are read as those of which each is searched and hashed."""

import io
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Scalar, Step, ThroughputRun
from nccl_doctor.formats.training.lines import line_layouts, recent_lines
from nccl_doctor.formats.training.lines.block_lines import BlockLines
from nccl_doctor.formats.training.lines.line_layouts import Layouts, without
from nccl_doctor.formats.training.lines.line_numbers import Texts
from nccl_doctor.formats.training.steps import step_lines

_MANY = line_layouts.LEAST


def found(lines: list[bytes], sample: bytes) -> list[int]:
    block = BlockLines(b"\n".join([*lines, *[sample] * _MANY, b"the end, behind which a block has no more bytes" * 30]))
    layouts = Layouts()
    layouts.learn(block, np.arange(len(lines), len(lines) + _MANY), 1, (0,))
    parts = np.concatenate([alike.parts for alike in layouts.find(block)])
    return [part for part in parts.tolist() if part < len(lines)]


@given(st.integers(0, 60), st.integers(0, 255).filter(lambda byte: byte not in b"\r\n"))
def test_a_line_has_a_layout_where_only_digits_differ(at: int, byte: int) -> None:
    sample = b"[rank12]: step 00120 loss 2.3456 tokens/s 12345 mem 40.1GB at 9"
    at %= len(sample)
    other = sample[:at] + bytes([byte]) + sample[at + 1 :]

    is_alike = re.sub(rb"\d", b"0", other) == re.sub(rb"\d", b"0", sample)

    assert ([0] if is_alike else []) == found([other], sample)


@given(st.lists(st.text("0123456789.e-, ", min_size=1, max_size=60), min_size=1, max_size=5), st.randoms())
def test_numbers_of_a_layout_are_those_of_the_text(parts: list[str], chance: random.Random) -> None:
    sample = ("a" + "x".join(parts)).encode()
    if not re.search(rb"\d", sample):
        return
    lines = [re.sub(rb"\d", lambda _: b"%d" % chance.randint(0, 9), sample) for _ in range(_MANY)]
    block = BlockLines(b"\n".join([*lines, bytes(100)]))
    layouts = Layouts()
    layouts.learn(block, np.arange(_MANY), 1, (0,))
    (alike,) = layouts.find(block)
    (group,) = Texts(lines).groups()

    assert list(range(_MANY)) == alike.parts.tolist()
    runs = range(len(re.findall(rb"\d+", sample)))
    for run in runs:
        assert group.numbers.whole(run).tolist() == alike.numbers.whole(run).tolist()
        assert alike.numbers.parsed(run, run).tolist() == [float(re.findall(rb"\d+", line)[run]) for line in lines]
    assert group.numbers.writers(tuple(runs)).tolist() == alike.numbers.writers(tuple(runs)).tolist()


@pytest.mark.parametrize("form", ["{}.{}", "{}e-{}", "{}.{}e+{}", "{}e{}"])
def test_decimals_are_those_that_python_reads(form: str) -> None:
    chance = random.Random(form)
    shape = re.sub(r"\{\}", "0", form).encode()
    for digits in range(1, 20):
        texts = [form.format(*(str(chance.randint(10 ** (digits - 1), 10**digits - 1)) if part == 0 else f"{chance.randint(1, 25):02d}"
                               for part in range(form.count("{}")))) for _ in range(_MANY)]  # fmt: skip
        lines = [f"time: {text} s".encode() for text in texts]
        block = BlockLines(b"\n".join([*lines, bytes(100)]))
        layouts = Layouts()
        layouts.learn(block, np.arange(_MANY), 1, (0,))
        (alike,) = layouts.find(block)
        (group,) = Texts(lines).groups()
        assert [float(text) for text in texts] == alike.numbers.decimal(0, shape).tolist()
        assert [float(text) for text in texts] == group.numbers.decimal(0, shape).tolist()


def test_what_is_left_of_a_block_has_its_places() -> None:
    lines = [b"step %03d" % number if number % 3 else b"word %d" % number for number in range(4 * _MANY)]
    block = BlockLines(b"\n".join(lines) + b"\n")
    layouts = Layouts()
    layouts.learn(block, np.flatnonzero(np.arange(len(lines)) % 3), 1, (0,))

    rest, begin, moved = without(block, layouts.find(block))

    assert b"step" not in rest.replace(b"step %03d" % (len(lines) - 1), b"")
    for match in re.finditer(rb"word \d+", rest):
        at = match.start() + int(moved[np.searchsorted(begin, match.start(), side="right") - 1])
        assert match[0] == block.block[at : at + len(match[0])]


def test_the_facts_are_the_same_with_and_without_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    lines = []
    for step in range(1, 4_000):
        if step % 1_500 == 0:
            lines.append(f"WORLD_SIZE={step}\n")
        lines += [
            f"[rank{rank}]: step {step} loss {chance.uniform(1, 20):.3f} {chance.uniform(1, 2e4):.1f} tokens/s\n"
            for rank in (0, 1, 12)
        ]
        lines.append(f"{{'loss': {chance.uniform(1, 9):.4f}, 'epoch': {step / 9000:.2f}}}\r\n")
        if step > 3_000:
            lines.append(f"iter {step}: loss 3.2000, time {chance.uniform(1, 900):.2f}ms, mfu 12.30%\n")
    text = "".join(lines).encode()

    def read(block: int, least: int) -> list[object]:
        monkeypatch.setattr(step_lines, "_BLOCK", block)
        monkeypatch.setattr(line_layouts, "LEAST", least)
        monkeypatch.setattr(recent_lines, "_KEPT", block)
        monkeypatch.setattr(recent_lines, "_LEAVING", block)
        facts = Facts()
        step_lines.read_format(io.BytesIO(text), "train.log", facts)
        return [repr(facts.rows(table)) for table in (ThroughputRun, Step, Scalar)]

    whole = read(1 << 23, 1 << 30)
    assert all(whole == read(block, 8) for block in (1 << 14, 1 << 16, 1 << 18))


def test_a_launch_begins_behind_the_last_line_of_a_layout_and_in_front_of_the_first_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_lines, "_BLOCK", 1 << 14)
    losses = [f"{{'loss': {1 + step % 9000 / 9001:.5f}, 'epoch': 0.5}}\n" for step in range(1, 4_000)]
    known = [f"step {step:06d} loss 2.0 {1000 + step % 9}.5 tokens/s\n" for step in range(1, 4_000)]
    text = "".join(["WORLD_SIZE=8\n", *known, *losses, *known, "WORLD_SIZE=16\n", *losses, "WORLD_SIZE=32\n", *known])
    facts = Facts()

    step_lines.read_format(io.BytesIO(text.encode()), "train.log", facts)

    assert [2 * len(losses)] == [scalar.n for scalar in facts.rows(Scalar) if scalar.name == "loss"]
    assert [8, 32] == [run.gpus for run in facts.rows(ThroughputRun)]
