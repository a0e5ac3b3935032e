"""Network cards of a node: parsers, trees of invented nodes healthy and broken, counters that grow, rubbish."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import RdmaDevice
from nccl_doctor.node.network import ethernet
from nccl_doctor.node.rdma import efa, infiniband, roce_qos
from nccl_doctor.node.runtime import expectations, state
from nccl_doctor.node.runtime.root import Absent, Root
from nccl_doctor.rules import loader, schema
from nccl_doctor.simulate import node

OURS = ("pci", "infiniband", "ethernet", "efa", "selinux")
FAULTS = [name for name, fault in node.FAULTS.items() if fault.change.__module__.endswith("network_faults")]


def look(folder: Path, wanted: dict[str, Any] | None = None) -> tuple[Report, Facts]:
    """What preflight says of a tree, asking only these collectors."""
    facts = preflight.look(Root(folder), OURS, 20.0)
    expectations.add(facts, wanted or {})
    return preflight.report_of(facts), facts


def planted(folder: Path, machine: str, fault: str | None = None) -> tuple[Report, Facts]:
    node.build(machine, fault).write(folder)
    return look(folder)


def alarms(report: Report) -> list[str]:
    return [finding.name for finding in report.findings if finding.severity != "note"]


def outcomes(facts: Facts) -> dict[str, str]:
    return dict(facts.query("SELECT source, outcome FROM collection"))


@pytest.mark.parametrize(("number", "fault"), list(enumerate(FAULTS)), ids=FAULTS)
def test_a_planted_fault_comes_first(tmp_path: Path, number: int, fault: str) -> None:
    kinds = node.FAULTS[fault].machines
    report, _ = planted(tmp_path, kinds[number % len(kinds)], fault)
    assert [fault] == alarms(report)[:1]
    unexplained = [f.name for f in report.findings[1:] if f.severity != "note" and not f.explained_by]
    assert [] == unexplained
    assert {"drain": "drain", "job": "job", "warn": "fit"}[report.findings[0].action] == report.fitness
    assert [] == [check for check in report.checks if check.outcome == "broken"]


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 18
    assert {rule.name for rule in loader.load_rules((), schema.NODE)} >= set(FAULTS)


@pytest.mark.parametrize("machine", list(node.MACHINES))
def test_a_healthy_node_raises_no_alarm(tmp_path: Path, machine: str) -> None:
    report, facts = planted(tmp_path, machine)
    assert ([], "fit") == (alarms(report), report.fitness)
    kind = node.MACHINES[machine]
    rails = sum(nic.count for nic in kind.nics if nic.kind != "ethernet")
    assert rails == facts.query("SELECT count(*) FROM rdma_device WHERE rail = 1")[0][0]
    assert rails == facts.query("SELECT count(*) FROM rdma_device WHERE gpu_path = 'PIX'")[0][0]
    cards = sum(nic.count for nic in kind.nics if nic.kind == "ethernet")
    shown = facts.query(
        "SELECT count(*) FROM net_link WHERE kind = 'physical' AND name LIKE 'eth%' AND addresses <> ''"
    )
    assert cards == shown[0][0]
    assert ("ok" if kind.vendor.startswith("Amazon") else "absent") == outcomes(facts)["efa"]


def test_a_card_that_is_not_meant_for_gpus_may_be_down(tmp_path: Path) -> None:
    tree = node.build("nd-h100-v5")
    card = next(path for path in tree.files if "/infiniband/mlx5_an0/" in path and path.endswith("/state"))
    tree.put(card, "1: DOWN")
    tree.write(tmp_path)
    assert [] == alarms(look(tmp_path)[0])


def test_a_container_that_was_given_no_device_is_no_broken_node(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    tree.remove("/dev/infiniband")
    tree.put("/.dockerenv", "")
    tree.write(tmp_path)
    report, facts = look(tmp_path)
    assert [(1,)] == facts.query("SELECT container FROM node_machine")
    assert (["uverbs-device-missing"], "job") == (alarms(report), report.fitness)
    assert "this container was not given it" in report.findings[0].message


def test_a_node_without_any_network_card_is_fit(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    report, facts = look(tmp_path)
    assert ([], "fit") == (alarms(report), report.fitness)
    assert {"absent"} == {outcomes(facts)[name] for name in ("infiniband", "ethernet", "efa", "selinux")}


def test_the_site_may_expect_fewer_rails(tmp_path: Path) -> None:
    node.build("dgx-h100", "rails-missing").write(tmp_path)
    assert [] == alarms(look(tmp_path, {"nic": {"count": 7}})[0])


def test_growth_is_judged_and_not_the_value(tmp_path: Path) -> None:
    tree = node.build("dgx-h100")
    downs = [path for path in tree.files if path.endswith("/counters/link_downed")]
    for path in downs:
        tree.put(path, 40)
    tree.write(tmp_path / "first")
    tree.put(downs[0], 41)
    tree.write(tmp_path / "then")
    kept = tmp_path / "state"
    for number, (folder, expected) in enumerate((("first", []), ("first", []), ("then", ["rail-link-went-down"]))):
        facts = preflight.look(Root(tmp_path / folder), OURS, 20.0)
        with state.opened(kept) as memory:
            state.remember_counters(facts, memory, "prolog", "boot")
        assert memory.problem is None
        assert expected == alarms(preflight.report_of(facts)), number


def test_gids_of_another_namespace_are_left_alone(tmp_path: Path) -> None:
    """In a pod the types of foreign addresses cannot be read."""
    tree = node.build("b200-roce")
    for path in [path for path in tree.files if "/gid_attrs/types/" in path]:
        tree.remove(path)
    tree.write(tmp_path)
    report, facts = look(tmp_path)
    assert [] == alarms(report)
    assert [(None,)] == facts.query("SELECT DISTINCT kind FROM rdma_gid")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"net/ecn/roce_np/enable/3": "1", "net/ecn/roce_np/enable/5": "0"}, ("3", None, None, None)),
        ({"net/ecn/roce_rp/enable/0": "0"}, (None, "", None, None)),
        ({"net/ecn/roce_rp/enable/0": "maybe"}, None),
        ({"net/qos/trust": "dscp"}, (None, None, "dscp", None)),
        ({"rdma/tc/1/traffic_class": "Global tclass=106"}, (None, None, None, 106)),
        ({"rdma/tc/1/traffic_class": "Global tclass=0"}, None),
        ({"rdma/tc/1/traffic_class": "Global tclass=1060"}, None),
    ],
)
def test_marks_of_roce(tmp_path: Path, files: dict[str, str], expected: tuple[Any, ...] | None) -> None:
    folders = {"net": "sys/class/net/rail0", "rdma": "sys/class/infiniband/mlx5_0"}
    for path, text in files.items():
        of, _, rest = path.partition("/")
        file = tmp_path / folders[of] / rest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    rows = [row[3:7] for row in roce_qos.collect(Root(tmp_path), "mlx5_0", ["rail0"])]
    assert rows == ([] if expected is None else [expected])


RUBBISH = ["", "\n\n", "\x00\x01\x02", "4: ACTIVE" * 300, "-1", "0x", "9" * 5000, "{" * 3000, "Wörter 🙂"]


@pytest.mark.parametrize("machine", ["p5en", "dgx-h100", "b200-roce"])
def test_rubbish_in_any_file_raises_nothing(tmp_path: Path, machine: str) -> None:
    tree = node.build(machine)
    ours = [p for p in sorted(tree.files) if "/infiniband" in p or "/net" in p or "/opt/" in p or "selinux" in p]
    for number, path in enumerate([*ours, "/proc/modules", "/proc/driver/nvidia/version"]):
        tree.files[path] = RUBBISH[number % len(RUBBISH)]
    tree.command("ip -j addr", RUBBISH[7])
    tree.command(" ".join(efa.COMMAND), RUBBISH[3], 1)
    tree.write(tmp_path)
    _, facts = look(tmp_path)
    assert "failed" not in outcomes(facts).values(), facts.query("SELECT source, note FROM collection")


def test_bytes_folders_and_loops_in_place_of_files(tmp_path: Path) -> None:
    node.build("b200-roce").write(tmp_path)
    for number, path in enumerate(sorted((tmp_path / "sys/devices").rglob("*"))):
        if path.is_file() and not path.is_symlink() and number % 3 == 0:
            path.write_bytes(b"\xff\xfe\x00" * 7)
        elif path.is_file() and not path.is_symlink() and number % 7 == 0:
            path.unlink()
            path.mkdir()
        elif path.is_file() and not path.is_symlink() and number % 11 == 0:
            path.unlink()
            path.symlink_to(path.name)
    _, facts = look(tmp_path)
    told = facts.query("SELECT note FROM collection WHERE outcome = 'failed'")
    assert all("cannot be the copy of a file" in note for (note,) in told), told


@pytest.mark.parametrize("module", [infiniband, ethernet, efa], ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_live_node_gives_rows_or_says_what_is_absent(module: Any) -> None:
    try:
        rows = list(module.collect(Root()))
    except Absent as absent:
        pytest.skip(f"nothing to read here: {absent}")
    assert all(isinstance(row[-1], Seen) for row in rows)


STORAGE = dataclasses.replace(
    node.MACHINES["dgx-h100"], name="dgx-h100",
    nics=(*node.MACHINES["dgx-h100"].nics, node.Nic("ib", 2, 200, "mlx5_core", "mlx5_st", storage=True)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "first", "fitness"), [(None, None, "fit"), ("rail-port-down", "rail-port-down", "drain")]
)
def test_storage_cards_of_the_same_board_are_not_rails(
    fault: str | None, first: str | None, fitness: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cards of the rails' board run at half their rate; they serve storage and hang on root ports of their own."""
    monkeypatch.setitem(node.ALL_MACHINES, "dgx-h100", STORAGE)
    tree = node.build("dgx-h100")
    for name in ("board_id", "hca_type"):
        paths = [path for path in tree.files if path.endswith(f"/{name}")]
        rail = next(tree.files[path] for path in paths if "/mlx5_0/" in path)
        for path in paths:
            if "/mlx5_st" in path:
                tree.put(path, rail)
    if fault is not None:
        node.FAULTS[fault].change(tree, node.MACHINES["dgx-h100"])
    tree.write(tmp_path)
    report, facts = preflight.preflight(Root(tmp_path))
    devices = {row.device: row.rail for row in facts.rows(RdmaDevice)}
    assert {name: 0 for name in devices if "st" in name} == {"mlx5_st8": 0, "mlx5_st9": 0}
    assert {f"mlx5_{number}" for number in range(8)} == {name for name, rail in devices.items() if rail}
    worst = [finding.name for finding in report.findings if finding.severity == "error" and not finding.explained_by]
    assert ([first] if first else []) == worst[:1]
    assert fitness == report.fitness
