"""Traces of `rocprof --hip-trace`, whose events have no categories and whose numbers are in quotes."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceOp
from nccl_doctor.formats import registry

LABELS = "".join(
    f',{{"args":{{"name":"{name}"}},"ph":"M","pid":{pid},"name":"process_name","sort_index":{at}}}\n'
    for at, (name, pid) in enumerate([("CPU HIP API", 2), ("COPY", 1), ("GPU0", 6), ("GPU1", 7)])
)


def event(name: str, pid: int, start: str, took: str) -> str:
    fields = f'"name":"{name}","ts":"{start}","dur":"{took}","pid":"{pid}","tid":"0"'
    return f',{{"ph":"X",{fields},\n  "args":{{\n    "BeginNs":"{start}000"\n  }}\n}}\n'


EVENTS = [
    event("hipLaunchKernel", 2, "1000", "15"),
    event("gemm_64x64", 6, "1000", "4000"),
    event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 6, "5000", "2000"),
    event("CopyHostToDevice", 6, "7000", "1000"),
    event("gemm_64x64", 7, "1000", "7000"),
]


def text(events: list[str], labels: str = LABELS) -> bytes:
    flow = ',{"ts":1000,"ph":"s","cat":"DataFlow","id":0,"pid":2,"tid":0,"name":"dep"}\n'
    return (
        '{ "traceEvents":[{}\n' + labels + "".join(events) + flow + '],\n"otherData": {\n    "a": "b"\n  }\n}'
    ).encode()


def read(data: bytes) -> Facts:
    known = registry.recognise(data)
    assert known is not None
    assert "kineto-trace" == known.kind
    facts = Facts()
    registry.read_file(known, io.BytesIO(data), "results.json", facts)
    return facts


def test_kernels_by_the_names_of_their_processes() -> None:
    facts = read(text(EVENTS))
    (trace,) = facts.rows(Trace)
    assert ("rocprof", "rocm", 0.002) == (trace.tool, trace.accelerator, pytest.approx(trace.comm_s))
    (op,) = facts.rows(TraceOp)
    assert (1, 2.0) == (op.n, op.total_ms)


def test_numbers_with_prefixes_of_older_releases() -> None:
    labels = LABELS.replace('"GPU0"', '"2 GPU0"').replace('"COPY"', '"1 COPY"')
    (trace,) = read(text(EVENTS, labels)).rows(Trace)
    assert 0.002 == pytest.approx(trace.comm_s)


@pytest.mark.parametrize("bad", ["", "x", "1e999", "9" * 40, "-"])
def test_values_that_are_no_numbers(bad: str) -> None:
    (trace,) = read(text([*EVENTS, event("gemm_64x64", 6, bad, "5"), event("gemm_64x64", 6, "5", bad)])).rows(Trace)
    assert 0.002 == pytest.approx(trace.comm_s)


@pytest.mark.parametrize("cut", [3, 120, 400])
def test_a_cut_trace_is_read_as_far_as_it_is_whole(cut: int) -> None:
    assert len(read(text(EVENTS)[:-cut]).rows(Trace)) == 1
