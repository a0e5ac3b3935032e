"""Rows whose form is known give what rows give that are taken apart one by one."""

import io
from pathlib import Path
from unittest import mock

import pytest
from helpers.places import FIXTURES

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.nccl import nccl_tests
from nccl_doctor.formats.nccl.nccl_tests_rows import RowForms

HEADS = {
    True: "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    False: "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
}


def facts_of(text: bytes) -> list[list[tuple[object, ...]]]:
    facts = Facts()
    nccl_tests.read_format(io.BytesIO(text), "job.log", facts)
    return [facts.query(f"SELECT * FROM {name}") for name in ("bench_run", "bench_row", "bench_spread", "evidence")]


@pytest.mark.parametrize("path", sorted((FIXTURES / "nccl_tests").iterdir()), ids=lambda path: path.name)
def test_tables_of_programs(path: Path) -> None:
    together = facts_of(path.read_bytes())
    with mock.patch.object(RowForms, "cells", return_value=None):
        assert facts_of(path.read_bytes()) == together


@pytest.mark.parametrize("has_root", [True, False])
def test_types_and_titles_that_change(has_root: bool) -> None:
    """`float16` and `float99` have one form, and the number behind the operation is a root in one table and a time in the other."""
    rows = [
        f"  {1 << size:10d} {1 << size - 2:10d} {kind:>8} {redop:>6} {number:>8} 1.50 2.25 0 11.25 1.50 2.25 N/A"
        for size in range(20, 24)
        for kind in ("float16", "float32", "float99", "bf16", "int8", "int32")
        for redop in ("sum", "max")
        for number in ("-1 11.25", " 0 11.25", "1e+03", "12.50", "9000")
    ]
    both = [HEADS[has_root], *rows, HEADS[not has_root], *rows, "# Avg bus bandwidth    : 12.5 "]
    text = ("# nThread 1 nGpus 8 minBytes 8\n" + "\n".join(both) + "\n").encode()
    together = facts_of(text)
    assert len(together[1]) > len(rows)
    with mock.patch.object(RowForms, "cells", return_value=None):
        assert facts_of(text) == together
