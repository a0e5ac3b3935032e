"""What lines of one form may be is asked once, and what is read stays the same."""

import io
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.printed import printed_numbers
from nccl_doctor.formats.printed.forms import line_kinds
from nccl_doctor.formats.printed.forms.line_kinds import EVERY, Form, LineKinds

FORMS = (
    "step {} loss {}.{}",
    "[{}/{}]",
    "loss: 0.{}",
    "Epoch {}",
    "Time taken: {}.{} s",
    "12:{}:45,{} INFO fit.py:{} iteration {} train_loss={}.{} elapsed: {}s",
    "Throughput: {},{} images/s, Batch size: {}, took {}.{} ms",
    "{}%|###  | {}/{} [00:{}<{}:{}, {}.{}it/s]",
    'queue_seconds_sum{{m="a"}} {}',
    'queue_seconds_count{{m="a"}} {}',
    'tokens_per_second{{gpu="{}"}} {}.{}',
    '{{"latency_s": {}.{}, "n": {}}}',
    "size  time(us)  bw(MB/s)",
    "{}  {}.{}  {}.{}",
    "step  loss  time (ms)  tok/s",
    "{}  {}.{}  {}.{}  {}",
    "  *-network:{}",
    "       capacity: {} MB/s",
    "s:{} trl:{}.{}",
    "+-----{}-----+ | {} W / {} W |",
    "no number at all",
    "step {} loss {}.{} wall_time={}.{}",
    "{} iterations, loss: {}.{}, {}:{}:{} elapsed",
    "iter {} loss 0.{} {}.{} ms",
    "%   M  MAGMA Gflop/s (ms)  cuBLAS Gflop/s (ms)",
    " {}  {}.{} (  {}.{})   ---  ( --- )  ok",
    "Figure of Merit (FOM): {}.{}",
    "using time {}.{} s, latency = .{} ms",
    "elapsed time: {}h {}m",
    "Wall clock    {}.{}",
    "pod-{}f{}b took {}.{} ms on 0x{}a",
    "{}ae{}-{}a4 step {} loss {}.{}",
    "bandwidth: {}.{} GB/s",
    "10:{}:{} queue took {}.{} ms and latency = {} us",
    "run {} throughput = {}.{}k tokens/s, duration: {}e-{} s",
    "iter {} loss: -{}.{} elapsed {}.{} min",
    "update={} loss={}.{}e-{} rank {} 0.{} s",
    "Loss {}e+{} | epoch {}/{} [{}/{}]",
    "Train Epoch: {} [{}/{} ({}%)]\tLoss: {}.{}",
    "2026-11-02 10:{}:{}.{} step={} total loss = {}.{}",
    "validation: step {} val_loss {}",
    "took {}h {}m {}s",
    "throughput {} ops/s in 1,{} ms",
    "node{} latency: {} us, p{} latency: {} us",
    "per iteration of ({},{},{}) x {}: {}.{} s",
    "fwd FLOPS per GPU = fwd flops per GPU / fwd latency of {}: {}.{} TFLOPS",
    "GET /v1/models/{} HTTP/1.1 took {}",
)
numbers = st.one_of(st.integers(0, 99), st.integers(0, 10**6), st.integers(10**13, 10**18)).map(str)


@st.composite
def texts(draw: st.DrawFn) -> list[str]:
    """Lines of a few forms, of each enough for columns."""
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=4, unique=True))
    return [
        form.format(*(draw(numbers) for _ in range(form.count("{}"))))
        for form in draw(st.lists(st.sampled_from(forms), min_size=10, max_size=40))
    ]


def rows(text: str) -> dict[str, list[Any]]:
    facts = Facts()
    printed_numbers.read_format(io.BytesIO(text.encode()), "out.log", facts)
    tables = ("printed_number", "throughput_run", "step", "scalar")
    return {table: facts.query(f"SELECT * FROM {table}") for table in tables}


def _any(_: LineKinds, data: bytes) -> Iterator[tuple[bytes, Form, bytes]]:
    return ((line, Form(EVERY), line) for line in data.split(b"\n"))


@given(texts())
def test_what_is_read_does_not_depend_on_what_is_remembered(text: list[str]) -> None:
    found = rows("\n".join(text))
    with mock.patch.object(LineKinds, "of_lines", _any):
        assert rows("\n".join(text)) == found


def test_lines_of_one_form_are_looked_at_once() -> None:
    data = b"".join(b"| %d  N/A  GPU-%d | %d%% |\n" % (n, n, n) for n in range(2000))
    with mock.patch.object(line_kinds, "_kinds", wraps=line_kinds._kinds) as asked:
        kinds = list(LineKinds().of_lines(data))
    assert [line for line, *_ in kinds] == data.split(b"\n")
    assert asked.call_count <= 4  # of the line and of its form, and the empty end


def test_forms_are_remembered_up_to_a_number() -> None:
    known = LineKinds()
    words = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=5)]
    list(known.of_lines("\n".join(words).encode()))
    assert len(known._known) <= line_kinds._MOST < len(words)


@pytest.mark.filterwarnings("error")
def test_numbers_too_long_for_columns_are_read_alone() -> None:
    text = ["step 1 loss 2.0 took 0.5 s"] * 9 + [
        "step 12345678901234567890123 loss 1.0 took 0.5 s",
        "step 2 loss 1.5 took 0.5 s",
    ]
    (loss,) = rows("\n".join(text))["scalar"]
    assert loss[2] == len(text)
