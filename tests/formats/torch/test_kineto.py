"""Traces of torch.profiler: sums agree with a plain reading by json, stragglers are named, cut files are read up to the cut."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from helpers.second_readers import assert_trace_agrees

from nccl_doctor.app import analyze
from nccl_doctor.common import budgets
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceArrival, TraceCall, TraceOp
from nccl_doctor.formats import registry
from nccl_doctor.formats.torch import kineto
from nccl_doctor.inputs import json_depth

FOLDER = FIXTURES / "torch"
TRACES = [*sorted(FOLDER.glob("kineto_*/*.gz")), *sorted(FOLDER.glob("gpu_*/*.gz"))]
sys.path.insert(0, str(FOLDER.parent / "make"))

import pytorch as make  # noqa: E402 - the script beside the fixtures


def read(data: bytes, name: str = "rank0.json") -> tuple[Facts, registry.Reading]:
    facts = Facts()
    return facts, kineto.read_format(io.BytesIO(data), name, facts)


@pytest.mark.parametrize("path", TRACES, ids=lambda p: f"{p.parent.name}-{p.name.split('.')[0]}")
def test_sums_agree_with_a_reading_by_json(path: Path) -> None:
    assert_trace_agrees(path)


@pytest.mark.parametrize(
    ("name", "verdict", "expected"),
    [
        ("kineto_4r_slow2", "warning", {"trace-straggler", "trace-input-wait", "trace-without-gpu"}),
        ("kineto_2r", "nothing-found", {"trace-without-gpu"}),
        ("gpu_healthy", "nothing-found", set()),
        ("gpu_slow1", "warning", {"trace-straggler", "trace-communication-exposed"}),
    ],
)
def test_verdicts(name: str, verdict: str, expected: set[str]) -> None:
    report, _, problems = analyze.analyze([str(FOLDER / name)])
    assert (verdict, expected, []) == (report.verdict, {f.name for f in report.findings}, problems)
    late = {f.ranks for f in report.findings if f.name in ("trace-straggler", "trace-input-wait")}
    assert late == ({"2"} if name == "kineto_4r_slow2" else {"1"} if name == "gpu_slow1" else set())


@pytest.mark.parametrize("name", ["gpu_slow1/rank1", "kineto_4r_slow2/rank2"])
def test_the_order_of_keys_and_blanks_change_nothing(name: str) -> None:
    """An event as Kineto prints it is read by its shape, others by a decoder."""
    trace = json.loads(gzip.decompress((FOLDER / f"{name}.pt.trace.json.gz").read_bytes()))
    order = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
    printed = [{key: event[key] for key in order if key in event} for event in trace["traceEvents"]]
    turned = [dict(reversed(event.items())) for event in printed]
    found = []
    for events in (printed, turned, printed[:50] + turned[50:]):
        data = json.dumps({**trace, "traceEvents": events}, indent=len(found) or None).encode()
        facts, reading = read(data)
        found.append((reading, [facts.rows(table) for table in (Trace, TraceOp, TraceCall)]))
    assert found[0] == found[1] == found[2]
    assert found[0][1][2]


def test_arrivals_by_hand() -> None:
    """Rank 1 comes 18 ms later, so its kernel takes 12 ms where the others take 30; four times."""
    facts, _ = analyze.read_facts([str(FOLDER / "gpu_slow1")])
    found = {a.rank: a for a in facts.rows(TraceArrival)}
    assert {0: (4, 0), 1: (4, 4), 2: (4, 0), 3: (4, 0)} == {r: (a.calls, a.shortest) for r, a in found.items()}
    assert (12.0, 30.0, 0.072) == pytest.approx((found[1].took_ms, found[0].took_ms, found[1].caused_s))
    assert 0.072 == pytest.approx(found[0].waited_s)


def test_a_cut_trace_is_read_up_to_the_cut() -> None:
    data = gzip.decompress((FOLDER / "kineto_4r_slow2" / "rank2.pt.trace.json.gz").read_bytes())
    facts, reading = read(data[: len(data) // 2])
    assert 100 < reading.understood < 555
    assert reading.note == f"ends in the middle of the trace, behind event {reading.lines}"
    assert 0 == facts.rows(Trace)[0].complete


def test_a_cut_gzip_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes((FOLDER / "kineto_2r" / "rank0.pt.trace.json.gz").read_bytes()[:9000])
    _, problems = analyze.read_facts([str(path)])
    assert 1 == len(problems)
    assert "cut" in problems[0] or "middle" in problems[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"traceEvents":' + b"[" * 200_000,
        b'{"traceEvents":[' + b'{"a":' * 100_000,
        b'{"traceEvents": [1, 2, null, "x", []]}',
        b'{"traceEvents": [{"ph": "X", "cat": ["a"], "name": 3, "ts": "x", "dur": {}, "args": 3}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nccl", "ts": 1, "dur": NaN}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce_x", "ts": 1, "dur": 2, "args": {"Seq": %d}}]}'
        % 10**30,
        b'{"distributedInfo": {"rank": 99999999999999999999}, "deviceProperties": 3, "traceEvents": []}',
    ],
)
def test_broken_and_hostile_input_is_survived(data: bytes) -> None:
    _, reading = read(data)
    assert reading.lines >= reading.understood


def test_brackets_in_strings_are_not_nesting() -> None:
    event = {"ph": "X", "cat": "kernel", "name": 'a[[[["{\\' * 50, "ts": 1, "dur": 1}
    data = json.dumps({"traceEvents": [event] * 500}).encode()
    _, reading = read(data)
    assert (500, None) == (reading.understood, reading.note)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_nesting_is_counted_over_any_pieces(size: int) -> None:
    text = json.dumps({"a\\": ['"[', {"b": '\\"]'}]}).encode()
    for levels, deep in ((budgets.limit("depth") - 1, False), (budgets.limit("depth") + 1, True)):
        guard = json_depth.Shallow(io.BytesIO(text * 3 + b"[" * levels))
        try:
            while guard.read(size):
                pass
            assert not deep
        except json_depth.TooDeep:
            assert deep


def test_recognised_by_content() -> None:
    for path in TRACES:
        known = registry.recognise(gzip.decompress(path.read_bytes())[: 1 << 16])
        assert known is not None
        assert "kineto-trace" == known.kind
    assert registry.recognise(json.dumps(make.dump(make.healthy(0), 2)).encode()) != registry.recognise(
        b'{"traceEvents": []}'
    )
