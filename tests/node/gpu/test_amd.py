"""AMD GPUs of a node: files of amdgpu, the topology of KFD, and what is said where nothing is judged."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import preflight
from nccl_doctor.cli import prologue
from nccl_doctor.facts.tables import AmdGpu, NodeCounter
from nccl_doctor.node.gpu import amd
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.reporters import node as reporter
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import bus

KIND = node.AMD_MACHINES["mi300x"]


def test_each_gpu_with_its_links(tmp_path: Path) -> None:
    node.build("mi300x").write(tmp_path)
    rows = [row for row in amd.collect(Root(tmp_path)) if isinstance(row, AmdGpu)]
    assert [place.pci for place in bus.gpus(KIND)] == [row.pci for row in rows]
    assert {("AMD Instinct MI300X", "amdgpu", 7, 0, 196592.0)} == {
        (row.model, row.driver, row.links, row.uncorrected, row.memory_total) for row in rows
    }
    assert 1 == len({row.hive for row in rows})


def test_counters_that_are_not_there_are_unknown(tmp_path: Path) -> None:
    tree = node.build("mi300x")
    for place in bus.gpus(KIND):
        for name in ("ras", "pcie_replay_count", "xgmi_hive_info", "mem_info_vram_total"):
            tree.remove(f"{place.folder}/{name}")
    tree.remove(amd.NODES)
    tree.write(tmp_path)
    rows = list(amd.collect(Root(tmp_path)))
    assert [] == [row for row in rows if isinstance(row, NodeCounter)]
    assert {(None, None, None, None, None)} == {
        (row.uncorrected, row.corrected, row.links, row.hive, row.memory_total) for row in rows
    }


@pytest.mark.parametrize("has_counters", [True, False])
def test_fit_is_never_said_without_its_limits(tmp_path: Path, has_counters: bool) -> None:
    tree = node.build("mi300x")
    if not has_counters:
        tree.remove(amd.NODES)
        for place in bus.gpus(KIND):
            tree.remove(f"{place.folder}/ras")
    tree.write(tmp_path)
    report = preflight.report_of(preflight.look(Root(tmp_path), ("amd",), 20.0))
    assert "fit" == report.fitness
    for said in (reporter.headline(report), prologue.nagios(report), prologue.detector(report), prologue.lines(report)):
        assert "AMD GPUs are judged only in part" in said
    (note,) = [finding.message for finding in report.findings if finding.name == "amd-gpus-judged-in-part"]
    judged, _, unread = note.partition("; not judged are")
    assert has_counters == ("RAS errors" in judged) == ("XGMI links" in judged)
    assert (not has_counters) == ("RAS errors" in unread) == ("XGMI links" in unread)


def test_a_node_without_amd_gpus_says_so(tmp_path: Path) -> None:
    node.build("p5").write(tmp_path)
    with pytest.raises(Absent):
        list(amd.collect(Root(tmp_path)))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"location_id": 49408, "domain": 0}, "0000:c1:00.0"),
        ({"location_id": 0x0511, "domain": 1}, "0001:05:02.1"),
        ({"location_id": 0}, None),
        ({}, None),
        ({"location_id": 1 << 40}, None),
    ],
)
def test_the_location_of_a_gpu(properties: dict[str, int], expected: str | None) -> None:
    assert expected == amd.parse_location(properties)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ue: 2\nce: 14\n", {"ue": 2, "ce": 14}),
        ("", {}),
        ("query not supported", {}),
        ("ue: -1\nce: x", {}),
        ("ue: 7", {"ue": 7}),
    ],
)
def test_error_counts(text: str, expected: dict[str, int]) -> None:
    assert expected == amd.parse_errors(text)


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    assert all(value >= 0 for value in (*amd.parse_properties(text).values(), *amd.parse_errors(text).values()))
