"""Results of diagnostic programs: their output as they print it, with invented values, and the verdicts on them."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import preflight
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.gpu import dcgm
from nccl_doctor.formats.gpu.dcgm import Result
from nccl_doctor.node.deep import active_tests, parsers
from nccl_doctor.node.runtime import collect, expectations
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node

DCGM_3 = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {"category": "Deployment", "tests": [
                {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}, None,
                {"name": "Persistence Mode", "results": [
                    {"gpu_ids": "0,1", "status": "Fail", "warnings": ["Persistence mode is off for GPU 1"]}]},
            ]},
            {"category": "Integration", "tests": [
                {"name": "PCIe", "results": [
                    {"gpu_ids": "0", "status": "PASS", "info": ["GPU 0 to host: 24.1 GB/s"]},
                    {"gpu_ids": "1", "status": "Fail", "warnings": [{"warning": "1200 replays", "error_id": 7}]}]},
            ]},
        ],
        "version": "3.3.5",
    }
}  # fmt: skip
DCGM_4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {"category": "Deployment", "tests": [
                {"name": "software", "results": [
                    {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"},
                    {"entity_group": "CPU", "entity_id": 0, "status": "Skip"},
                    {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [{"warning": "nouveau is loaded"}]}],
                 "test_summary": {"status": "Fail"}},
            ]},
        ],
    }
}  # fmt: skip
TABLE = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.5                                          |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| Graphics Processes        | Skip                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Fail - GPU: 2                                  |
| Warning                   | GPU 2 has 1200 replays                         |
+-----  Stress  ------------+------------------------------------------------+
| pulse_test                | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU5: Fail                                     |
| GPU Memory                | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""
PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Device         : mlx5_0
 Mtu             : 4096[B]
---------------------------------------------------------------------------------------
 local address: LID 0x04 QPN 0x0089 PSN 0x5d1b64 RKey 0x1fffbd VAddr 0x007f5c2c010000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 2000.000000 != 3500.000000. CPU Frequency is not max.
 65536      1504210          0.00               {value}             0.752105
---------------------------------------------------------------------------------------
"""
COPY = """\
nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
Driver Version: 570.86.15

Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0     55.11     17.80       N/A

SUM host_to_device_memcpy_ce 72.91
"""
ALL_REDUCE = """\
# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   4260.1  252.05  441.08      {wrong}   4255.8  252.30  441.53      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 441.305
"""


def test_json_of_dcgm() -> None:
    assert [
        Result("Denylist", "0,1", "pass"),
        Result("Persistence Mode", "0,1", "fail", None, "Persistence mode is off for GPU 1"),
        Result("PCIe", "0", "pass", None, "GPU 0 to host: 24.1 GB/s"),
        Result("PCIe", "1", "fail", None, "1200 replays"),
    ] == dcgm.parse_dcgm(f"WARNING: no persistence\n{json.dumps(DCGM_3, indent=1)}\n")
    assert [
        Result("software", "0", "pass"), Result("software", None, "skip"),
        Result("software", "3", "fail", None, "nouveau is loaded"),
    ] == dcgm.parse_dcgm(json.dumps(DCGM_4))  # fmt: skip


def test_table_of_dcgm() -> None:
    assert [
        Result("Denylist", None, "pass"),
        Result("Graphics Processes", None, "skip"),
        Result("PCIe", "2", "fail", None, "GPU 2 has 1200 replays"),
        Result("pulse_test", "5", "fail"),
        Result("GPU Memory", None, "pass"),
    ] == dcgm.parse_dcgm(TABLE)


def test_bandwidths() -> None:
    assert 197.16 == parsers.parse_perftest(PERFTEST.format(value="197.16"))
    assert parsers.parse_perftest("Couldn't connect to localhost:18590\n") is None
    copies = [
        Result("host_to_device_memcpy_ce", "0", "pass", 55.11),
        Result("host_to_device_memcpy_ce", "1", "pass", 17.8),
    ]
    assert copies == parsers.parse_nvbandwidth(COPY)
    assert Result("all_reduce_perf", None, "pass", 441.08) == parsers.parse_all_reduce(ALL_REDUCE.format(wrong=0))
    wrong = parsers.parse_all_reduce(ALL_REDUCE.format(wrong=77))
    assert ("fail", "77 wrong values") == (wrong.outcome, wrong.text) if wrong is not None else None


OUTPUTS = (json.dumps(DCGM_3), json.dumps(DCGM_4), TABLE, PERFTEST, COPY, ALL_REDUCE, "")


@given(st.sampled_from(OUTPUTS), st.integers(0, 3000), st.text(max_size=20))
def test_output_that_is_cut_or_spoiled_raises_nothing(text: str, at: int, garbage: str) -> None:
    for spoiled in (text[:at], text[:at] + garbage + text[at:], garbage):
        measured = [
            *dcgm.parse_dcgm(spoiled),
            *parsers.parse_nvbandwidth(spoiled),
            parsers.parse_all_reduce(spoiled),
        ]
        assert all(one is None or isinstance(one, parsers.Result) for one in measured)
        assert (parsers.parse_perftest(spoiled) or 0.0) >= 0.0


@pytest.mark.parametrize(
    "document", [None, [], {"DCGM Diagnostic": 7}, {"DCGM Diagnostic": {"test_categories": [7, {"tests": 7}]}}]
)
def test_json_of_another_shape_is_no_result(document: Any) -> None:
    assert [] == dcgm.parse_dcgm(
        json.dumps({"x": document}) if not isinstance(document, dict) else json.dumps(document)
    )


def judged(tree: node.Tree, folder: Path, deep: int = 1) -> tuple[dict[str, str], list[ActiveTest], str]:
    """Name -> action of what `--deep` finds on a tree, its results, and the verdict."""
    tree.write(folder)
    facts = preflight.look(Root(folder, deep=deep), (*collect.COLLECTORS, "deep"), 60.0, "node01")
    expectations.add(facts, {})
    report = preflight.report_of(facts)
    ours = [one for one in report.findings if one.rule.startswith("DEEP")]
    found = {one.name: one.action for one in sorted(ours, key=lambda one: one.action == "drain")}
    return found, facts.rows(ActiveTest), report.fitness


def installed(tree: node.Tree, **outputs: tuple[int, str]) -> node.Tree:
    """What the programs print on this node, by the beginning of the command."""
    commands = {
        "dcgmi": "dcgmi diag -r 1 -j", "copy": "nvbandwidth -t host_to_device_memcpy_ce",
        "reduce": "all_reduce_perf -b 1G -e 1G -g 8", "holders": " ".join(active_tests.HOLDERS),
        "loopback": f"sh -c {active_tests.LOOPBACK} sh mlx5_0 {active_tests.PORT}",
    }  # fmt: skip
    for name, (status, text) in outputs.items():
        tree.extra.setdefault("commands", {})[commands[name]] = {"status": status, "text": text}
    return tree


def test_a_good_node_passes(tmp_path: Path) -> None:
    good = COPY.replace("17.80       N/A", "55.02     55.07")
    tree = installed(
        node.build("dgx-h100"), holders=(0, ""), dcgmi=(0, json.dumps(DCGM_3).replace("Fail", "Pass")), copy=(0, good),
        reduce=(0, ALL_REDUCE.format(wrong=0)), loopback=(0, PERFTEST.format(value="390.12")),
    )  # fmt: skip
    found, rows, fitness = judged(tree, tmp_path)
    assert ({}, "fit") == (found, fitness)
    assert {"dcgm": 4, "nvbandwidth": 3, "nccl-tests": 1, "ib_write_bw": 1} == {
        tool: sum(row.tool == tool for row in rows) for tool in ("dcgm", "nvbandwidth", "nccl-tests", "ib_write_bw")
    }


def test_what_failed_drains_and_what_is_slow_warns(tmp_path: Path) -> None:
    tree = installed(
        node.build("dgx-h100"), dcgmi=(226, json.dumps(DCGM_3)), copy=(0, COPY),
        reduce=(1, ALL_REDUCE.format(wrong=77)), loopback=(0, PERFTEST.format(value="98.20")),
    )  # fmt: skip
    found, _, fitness = judged(tree, tmp_path)
    assert "drain" == fitness
    assert {
        "dcgm-test-failed": "drain", "all-reduce-wrong-data": "drain", "gpu-copy-slow": "warn", "loopback-slow": "warn",
    } == found  # fmt: skip


def test_a_program_that_cannot_run_proves_nothing(tmp_path: Path) -> None:
    """No nv-hostengine, a CUDA that does not fit: the node is not to blame."""
    error = (255, "Error: unable to establish a connection to the specified host: localhost\nError: Unable to connect.")
    found, rows, fitness = judged(installed(node.build("dgx-h100"), dcgmi=error, copy=error, reduce=error), tmp_path)
    assert ({}, "fit") == (found, fitness)
    assert {"other"} == {row.outcome for row in rows}
    assert "status 255" in (rows[0].text or "")


def test_nothing_runs_while_a_process_uses_a_gpu(tmp_path: Path) -> None:
    tree = installed(node.build("dgx-h100"), holders=(0, "4711\n4712\n"), dcgmi=(226, json.dumps(DCGM_3)))
    assert ({}, []) == judged(tree, tmp_path)[:2]


def test_without_programs_the_collector_is_absent(tmp_path: Path) -> None:
    node.build("dgx-h100").write(tmp_path)
    *rows, said = collect.answer("deep", Root(tmp_path, deep=1))
    assert ([], "absent") == (rows, said["outcome"] if isinstance(said, dict) else None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root runs programs of the system's folders only")
def test_programs_are_run_with_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dcgmi"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setitem(active_tests.DCGM_SECONDS, 1, 0.3)
    rows = [row for row in active_tests.collect(Root(deep=1)) if row.tool == "dcgm"]
    assert ["other"] == [row.outcome for row in rows]
    assert "no answer" in (rows[0].text or "")


def test_facts_of_deep_travel(tmp_path: Path) -> None:
    from nccl_doctor.facts import wire

    tree = installed(node.build("dgx-h100"), dcgmi=(226, json.dumps(DCGM_3)))
    tree.write(tmp_path)
    there = preflight.look(Root(tmp_path, deep=1), ("deep",), 60.0, "node01")
    here = Facts()
    assert wire.take(here, wire.dump(there).splitlines())
    assert [row.test for row in there.rows(ActiveTest)] == [row.test for row in here.rows(ActiveTest)]
