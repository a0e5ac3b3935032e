"""Nodes that are asked together are compared: the odd one is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import preflight
from nccl_doctor.derive.node_differences import odd
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts import wire
from nccl_doctor.facts.store import Facts
from nccl_doctor.node.runtime.root import Root
from nccl_doctor.simulate import node
from nccl_doctor.simulate.node import Tree


def asked(folder: Path, changes: dict[str, Callable[[Tree], None]], machine: str = "dgx-h100") -> Report:
    facts = Facts()
    for host, change in changes.items():
        tree = node.build(machine, host=host)
        change(tree)
        tree.write(folder / host)
        assert wire.take(facts, wire.dump(preflight.look(Root(folder / host))).splitlines())
    return preflight.report_of(facts)


def leave(tree: Tree) -> None:
    """As it is."""


def other_firmware(tree: Tree) -> None:
    for path in tree.files:
        if path.endswith("/fw_ver"):
            tree.put(path, "28.36.1010")


def setting(tree: Tree) -> None:
    tree.extra.setdefault("environ", {})["NCCL_IB_TC"] = "106"


def driver_of_the_kernel(tree: Tree) -> None:
    """Without the settings of NVIDIA's own driver."""
    for path in [
        path for path in tree.files if "/ecn/" in path or path.endswith(("/qos/trust", "/tc/1/traffic_class"))
    ]:
        tree.remove(path)


def distrustful(tree: Tree) -> None:
    for path in tree.files:
        if path.endswith("/qos/trust"):
            tree.put(path, "pcp")


@pytest.mark.parametrize(
    ("change", "name", "machine"),
    [
        (other_firmware, "node-firmware-unlike-others", "dgx-h100"),
        (setting, "node-setting-unlike-others", "dgx-h100"),
        (distrustful, "node-roce-unlike-others", "b200-roce"),
        (driver_of_the_kernel, "node-roce-unlike-others", "b200-roce"),
    ],
)
def test_the_odd_one_of_four_is_named(tmp_path: Path, change: Callable[[Tree], None], name: str, machine: str) -> None:
    report = asked(tmp_path, {"node01": leave, "node02": leave, "node03": change, "node04": leave}, machine)
    found = {finding.name: finding for finding in report.findings}
    assert name in found, list(found)
    assert "node03" == found[name].hosts
    assert "3 of 4 nodes" in found[name].message


def test_equal_nodes_are_fit(tmp_path: Path) -> None:
    report = asked(tmp_path, {f"node{number:02}": leave for number in range(1, 5)})
    assert "fit" == report.fitness
    assert [] == [finding.name for finding in report.findings if finding.severity != "note"]
    assert "node[01-04]" == report.job["host_names"]


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.sampled_from("abc"), min_size=1, max_size=12))
def test_the_majority_is_never_odd(told: dict[str, str]) -> None:
    found = odd(told)
    for host, value, common, same in found:
        assert value == told[host] != common
        assert same == list(told.values()).count(common) >= list(told.values()).count(value)
    assert len(found) == len(told) - max(list(told.values()).count(value) for value in "abc")
