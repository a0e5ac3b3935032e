"""Numbers in JSON that no other reader knows: documents of results, statistics, records on lines."""

import io
import json
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import PrintedNumber
from nccl_doctor.formats.printed import printed_numbers
from nccl_doctor.formats.printed.json_numbers import numbers_of_document


def read(text: str) -> tuple[Facts, dict[str, PrintedNumber]]:
    facts = Facts()
    printed_numbers.read_format(io.BytesIO(text.encode()), "out.txt", facts)
    return facts, {row.name: row for row in facts.rows(PrintedNumber)}


def test_lines_of_json() -> None:
    records = [
        {"ts": 1_790_000_000 + n, "latency_s": 2.0 + n, "usage": {"tokens": 9}, "itl": {"p99_ms": 8.5}}
        for n in range(9)
    ]
    _, rows = read("".join(f"{json.dumps(record)}\n" for record in records))
    assert {("latency_s", "s", 6.0), ("itl.p99_ms", "ms", 8.5)} == {
        (row.name, row.unit, row.median) for row in rows.values()
    }


def test_a_document_with_statistics_tells_means() -> None:
    text = json.dumps(
        {
            "request_rate": {"unit": "requests/sec", "avg": 4.5},
            "first_token": {"unit": "ms", "avg": 120.0, "p99": 300.0},
            "request_count": {"unit": "requests", "avg": 50.0},
            "tokens_per_second": {"done": {"mean": 431.0, "max": 455.0}, "failed": {"mean": 0.0, "count": 0}},
        },
        indent=1,
    )
    _, rows = read(text)
    assert {"request_rate": 4.5, "first_token": 120.0, "tokens_per_second.done": 431.0} == {
        name: row.median for name, row in rows.items()
    }


def test_a_limit_of_zero_is_no_time() -> None:
    assert {"latency_s"} == set(read('{"limits": {"duration": 0}, "latency_s": 2.5}\n{"latency_s": 2.5}\n')[1])


def test_a_table_inside_json() -> None:
    table = {"columns": ["size", "busbw (GB/s)", "time_us"], "data": [[1024, 0.5, 9.5], [2048, 1.5, None], ["x"], 7]}
    found = numbers_of_document(json.dumps({"run": table}).encode())
    assert [("busbw (GB/s)", "GB/s", 0.5), ("time_us", "us", 9.5), ("busbw (GB/s)", "GB/s", 1.5)] == [
        one[:3] for one in found or []
    ]
    assert [] == numbers_of_document(b'{"columns": ["a", 5], "data": [[1, 2]]}')


def test_successful_requests_count_and_not_all_of_them_again() -> None:
    rates = {"successful": {"mean": 0.5}, "errored": {"mean": 0.0, "count": 0}, "total": {"mean": 0.75}}
    found = numbers_of_document(
        json.dumps({"requests_per_second": rates, "total": {"latency_s": {"mean": 2.5}}}).encode()
    )
    assert [("requests_per_second.successful", 0.5), ("latency_s", 2.5)] == [
        (one.name, one.value) for one in found or []
    ]


def test_results_of_as_many_steps_each_are_no_steps(tmp_path: Path) -> None:
    results = [{"name": f"run{n}", "steps": 30, "time_s": 9.5 + n, "images_per_s": 900.0 - n} for n in range(3)]
    (tmp_path / "results.json").write_text(json.dumps(results))
    _, facts, _ = analyze.analyze([str(tmp_path / "results.json")])
    assert [("images_per_s", 3), ("time_s", 3)] == sorted((row.name, row.n) for row in facts.rows(PrintedNumber))


def test_a_log_of_reframe_tells_values_with_their_units() -> None:
    _, rows = read(
        "job_completion_time|info|num_tasks|flops_value|flops_unit|flops_ref|display_name\n"
        "2026-08-23T11:36:02|Stream /1|1|0.67|Gflops/s|1.2|Stream %tasks=1\n"
        "2026-08-23T11:36:02|Stream /2|2|1.29|Gflops/s|1.2|Stream %tasks=2\n"
        "2026-08-23T11:36:02|Stream /3|2|null|Gflops/s|1.2|Stream %tasks=3\n"
    )
    assert {"flops"} == set(rows)
    flops = rows["flops"]
    assert (2, 0.67, "Stream %tasks=1", 1.29) == (flops.n, flops.lowest, flops.lowest_label, flops.highest)


_RESULTS = {
    "timestamp": "2026-05-07T12:00:01Z",
    "results": {
        "health": {"status": "PASS", "message": "All devices answer", "gpus": [{"index": 0, "memory_total_gb": 79.2}]},
        "matmul": {
            "status": "FAIL", "metric_name": "tflops", "metric_value": 74.25, "metric_unit": "TFLOPS",
            "by_size": [{"size": 4096, "time_ms": 2.0}, {"size": 8192, "time_ms": 16.0}],
        },
        "training": {"metric_name": "tokens_per_second", "metric_value": 331000.5, "metric_unit": "tokens/s"},
    },
}  # fmt: skip


@pytest.mark.parametrize("indent", [2, None])
def test_a_document_of_results_names_its_measures(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(_RESULTS, indent=indent) + "\n")
    found = {row.name: (row.unit, row.n, row.highest) for row in analyze.analyze([str(path)])[1].rows(PrintedNumber)}
    assert {
        "matmul tflops (FAIL)": ("TFLOPS", 1, 74.25),
        "by_size.time_ms": ("ms", 2, 16.0),
        "training tokens_per_second": ("tokens/s", 1, 331000.5),
    } == found


def test_numbers_of_a_document_stand_on_the_lines_of_their_keys() -> None:
    told = numbers_of_document(json.dumps({"a": {"latency_ms": 1.5}, "b": {"latency_ms": 2.5}}, indent=1).encode())
    assert [("a.latency_ms", 3), ("b.latency_ms", 6)] == [(one.name, one.line) for one in told or []]


def test_a_document_that_is_cut_off_is_read_line_by_line() -> None:
    _, found = read(json.dumps(_RESULTS, indent=2)[:-9])
    assert 2 == found["time_ms"].n


def test_deep_and_broken_documents_give_nothing() -> None:
    assert numbers_of_document(b"[" * 100_000) is None
    assert numbers_of_document(b"3") is None
    deep = b'{"a":' * 40 + b'{"time_ms": 1.0}' + b"}" * 40
    assert [] == numbers_of_document(deep)


def test_an_object_of_numbers_with_one_unit() -> None:
    told = numbers_of_document(
        b'{"engines": {"Render/3D": {"busy": 96.1, "wait": 0.0, "unit": "%"}}, "rc6": {"value": 4.5, "unit": "%"},'
        b' "job": {"name": "a", "unit": "x"}}'
    )
    assert told is not None
    assert {("Render/3D.busy", "%", 96.1), ("Render/3D.wait", "%", 0.0), ("rc6", "%", 4.5)} == {
        (one.name, one.unit, one.value) for one in told
    }
