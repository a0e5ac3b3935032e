"""SuperBench: the results of nodes, its diagnosis, and what is cut or odd."""

import json
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.formats.registry import recognise


def node(name: str, busbw: float = 228.5, **more: object) -> dict[str, object]:
    """What one node measured."""
    return {
        "node": name,
        "nccl-bw:nvlink/allreduce_8589934592_busbw:0": busbw,
        "kernel-launch/event_overhead:0": 0.006,
        "kernel-launch/return_code": 0,
        "monitor/gpu_temperature:0": 81,
        **more,
    }


def found(path: Path) -> dict[str, str]:
    report = analyze.analyze([str(path)])[0]
    return {finding.name: finding.message for finding in report.findings}


@pytest.mark.parametrize("node_last", [False, True])
def test_the_slow_node_is_named(node_last: bool, tmp_path: Path) -> None:
    path = tmp_path / "results-summary.jsonl"
    records = [node(f"node{n:02d}", 141.0 if n == 3 else 228.0 + n / 10) for n in range(6)]
    if node_last:
        records = [
            {**{key: value for key, value in one.items() if key != "node"}, "node": one["node"]} for one in records
        ]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    assert "superbench" == recognise(path.read_bytes()).kind  # type: ignore[union-attr]
    messages = found(path)
    assert ["superbench-node-slow"] == list(messages)
    assert messages["superbench-node-slow"].startswith(
        "node03: nccl-bw:nvlink/allreduce_8589934592_busbw (rank 0) measured 141, 228."
    )


def test_nodes_that_are_alike_are_none(tmp_path: Path) -> None:
    path = tmp_path / "results-summary.jsonl"
    path.write_text("".join(json.dumps(node(f"node{n:02d}", 228.0 + n)) + "\n" for n in range(6)))
    assert not found(path)


def test_a_benchmark_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "results-summary.jsonl"
    path.write_text(
        json.dumps(node("node01", **{"disk-benchmark/return_code": 124})) + "\n" + json.dumps(node("node02")) + "\n"
    )
    assert {"superbench-failed": "node01: the benchmark disk-benchmark ended with code 124"} == found(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"Category": "KernelLaunch", "Defective Details": "kernel-launch/event_overhead:0(VAL: 0.1)", "index": "node07"}\n',
        '[\n  {\n    "index": "node07",\n    "diagnosis/category": "KernelLaunch",\n'
        '    "diagnosis/issue_details": "kernel-launch/event_overhead:0(VAL: 0.1)"\n  }\n]\n',
    ],
)
def test_the_diagnosis_names_its_nodes(text: str, tmp_path: Path) -> None:
    path = tmp_path / "diagnosis_summary.json"
    path.write_text(text)
    said = "node07: the diagnosis calls it defective: KernelLaunch: kernel-launch/event_overhead:0(VAL: 0.1)"
    assert {"superbench-failed": said} == found(path)


def test_odd_values_and_a_cut_record(tmp_path: Path) -> None:
    path = tmp_path / "results-summary.jsonl"
    odd = node(
        "node01",
        **{"a/bw": 10**400, "b/bw": True, "c/bw": None, "d/bw": float("nan"), "no metric": 3, "e/return_code:7": 32},
    )
    path.write_text(json.dumps(odd) + "\n" + json.dumps(node("node02"))[:60])
    facts, _ = analyze.read_facts([str(path)])
    assert {
        "nccl-bw:nvlink/allreduce_8589934592_busbw",
        "kernel-launch/event_overhead",
        "kernel-launch/return_code",
        "e/return_code",
    } == {test for (test,) in facts.query("SELECT DISTINCT test FROM active_test")}
    assert "ends in the middle of the record that starts in line 2" in facts.query("SELECT note FROM input")[0][0]
