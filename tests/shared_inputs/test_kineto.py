"""Genuine traces of torch.profiler agree with a plain reading by json."""

import gzip
from pathlib import Path

import pytest
from helpers.places import SHARED
from helpers.second_readers import assert_trace_agrees

from nccl_doctor.formats import registry

TRACES = sorted((SHARED / "real" / "facebookresearch__HolisticTraceAnalysis").glob("*.gz"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_sums_agree_with_a_reading_by_json(path: Path) -> None:
    assert_trace_agrees(path)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_a_genuine_trace_is_recognised(path: Path) -> None:
    known = registry.recognise(gzip.decompress(path.read_bytes())[: 1 << 16])
    assert known is not None
    assert "kineto-trace" == known.kind
