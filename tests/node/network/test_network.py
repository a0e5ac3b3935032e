"""Network cards of a node: parsers, trees of invented nodes healthy and broken, counters that grow, rubbish."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import preflight
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.facts.evidence import Seen
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import RdmaDevice
from nccl_doctor.node.gpu import pci_path
from nccl_doctor.node.gpu.pci_path import Place
from nccl_doctor.node.network import counters, ethernet
from nccl_doctor.node.rdma import efa, infiniband, rdma_ports, roce_qos
from nccl_doctor.node.runtime import expectations, state
from nccl_doctor.node.runtime.root import Absent, Output, Root
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400 Gb/sec (4X NDR)", (400.0, 4, "NDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, 1, "SDR")),
        ("200 Gb/sec", (200.0, None, None)),
        ("1.2.3 Gb/sec (4X X)", (None, None, None)),
        ("", (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_rate(text: str | None, expected: tuple[Any, ...]) -> None:
    assert expected == tuple(rdma_ports.rate(text))


def test_states() -> None:
    said = ["4: ACTIVE", "1: DOWN", "2: INIT", "3: ARMED", "5: ACTIVE_DEFER", "", None]
    assert ["Active", "Down", "Initializing", "Armed", "Active_defer", "", ""] == [rdma_ports.state(s) for s in said]
    assert "LinkUp" == rdma_ports.physical("5: LinkUp")
    assert None is rdma_ports.physical(None)


def test_gids() -> None:
    assert None is rdma_ports.parse_gid("0000:0000:0000:0000:0000:0000:0000:0000")
    assert None is rdma_ports.parse_gid("fe80:0000:0000:0000:0000:0000:0000:0000")
    assert None is rdma_ports.parse_gid("no address")
    found = rdma_ports.parse_gid("0000:0000:0000:0000:0000:ffff:0a02:000b")
    assert found is not None
    assert "10.2.0.11" == str(found.ipv4_mapped)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("link_downed", "3", 3),
        ("link_downed", "255", None),
        ("excessive_buffer_overrun_errors", "15", None),
        ("symbol_error", "65535", None),
        ("symbol_error", "65536", 65536),
        ("port_xmit_data", "4294967295", None),
        ("port_xmit_data", "18446744073709551615", None),
        ("rx_bytes", "4294967295", 4294967295),
        ("link_downed", "N/A (no PMA)", None),
        ("link_downed", "-1", None),
        ("link_downed", "9" * 30, None),
        ("link_downed", None, None),
    ],
)
def test_a_counter_at_its_maximum_is_no_measure(name: str, text: str | None, expected: int | None) -> None:
    assert expected == counters.parse(name, text)


def test_distance_on_the_bus() -> None:
    base = ("pci0000:10", "0000:10:01.0", "0000:11:00.0")
    card = Place("0000:14:00.0", (*base, "0000:12:01.0", "0000:14:00.0"), 0)
    beside = Place("0000:13:00.0", (*base, "0000:12:00.0", "0000:13:00.0"), 0)
    below = Place("0000:23:00.0", (*base, "0000:12:02.0", "0000:20:00.0", "0000:21:00.0", "0000:23:00.0"), 0)
    bridge = Place("0000:33:00.0", ("pci0000:10", "0000:10:03.0", "0000:33:00.0"), 0)
    same = Place("0000:43:00.0", ("pci0000:40", "0000:40:01.0", "0000:43:00.0"), 0)
    other = Place("0000:83:00.0", ("pci0000:80", "0000:80:01.0", "0000:83:00.0"), 1)
    nowhere = Place("0000:99:00.0", (), 1)
    expected = ["PIX", "PXB", "PHB", "NODE", "SYS", None]
    assert expected == [pci_path.distance(card, o) for o in (beside, below, bridge, same, other, nowhere)]
    assert ("0000:13:00.0", "PIX", 2) == pci_path.nearest(card, [other, below, beside])
    assert (None, None, 0) == pci_path.nearest(card, [nowhere])
    virtual = "/sys/devices/LNXSYSTM:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0"
    assert ("pci0001:00", "0001:00:00.0") == pci_path.bridges(virtual)


@pytest.mark.parametrize(
    ("opened", "release", "expected"),
    [
        (1, "5.15.0-105-generic", 1),
        (1, "6.8.0", 1),
        (1, "5.4.0-150-generic", 0),
        (1, "4.18.0-513.el8.x86_64", None),
        (0, "6.8.0", 0),
        (None, "6.8.0", None),
        (1, "", None),
    ],
)
def test_dma_buf_needs_the_open_module_and_a_new_kernel(opened: int | None, release: str, expected: int | None) -> None:
    assert expected == infiniband.shares_dmabuf(opened, release)


def test_rails_are_the_class_that_is_most_and_fastest() -> None:
    def device(name: str, kind: str, board: str, near: int | None = None) -> RdmaDevice:
        values = dict.fromkeys(RdmaDevice._fields, None) | {
            "device": name, "kind": kind, "board": board, "gpus_near": near, "interfaces": "", "rail": 0, "virtual": 0,
        }  # fmt: skip
        return RdmaDevice(**values)  # type: ignore[arg-type]

    rails = [(device(f"mlx5_{n}", "ib", "A", 1), 400.0) for n in range(8)]
    storage = [(device("mlx5_8", "ib", "B"), 400.0), (device("mlx5_9", "ib", "C"), 100.0)]
    management = [(device("mlx5_bond_0", "roce", "D"), 200.0), (device("mlx5_10", "roce", "E"), 25.0)]
    named = {d.device for d, _ in rails}
    assert named | {"mlx5_8"} == infiniband.rails([*rails, *storage, *management], 8)
    assert set() == infiniband.rails(management, 8)
    assert set() == infiniband.rails([], 8)
    roce = [(device(f"mlx5_{n}", "roce", "A"), 0.0 if n == 1 else 100.0) for n in range(2)]
    assert {"mlx5_0", "mlx5_1"} == infiniband.rails([*roce, *management], 8)


def test_addresses_of_ip() -> None:
    said = [
        {"ifname": "eth0", "addr_info": [{"local": "10.1.0.4", "prefixlen": 24, "scope": "global"}]},
        {"ifname": "eth1", "addr_info": [{"local": "fe80::1", "prefixlen": 64, "scope": "link"}]},
        {"ifname": "eth2"},
        "rubbish",
    ]
    assert {"eth0": ["10.1.0.4/24"]} == ethernet.parse_addresses(json.dumps(said))
    for text in ("", "{", "[1]", '{"a": 1}', "[" * 5000):
        assert {} == ethernet.parse_addresses(text)


TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.0.0/24 2 0 2
        |-- 10.1.0.4
           /32 host LOCAL
        |-- 10.1.0.255
           /32 link BROADCAST
     |-- 10.9.9.9
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
"""
ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100010A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
eth1\tzz\t00000000\t0001\t0\t0\t100\t00FFFFFF
short
"""


def test_addresses_without_ip() -> None:
    assert {"eth0": ["10.1.0.4/24"]} == ethernet.from_routes(TRIE, ROUTES)
    double = ROUTES + "eth1\t0000010A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    assert {} == ethernet.from_routes(TRIE, double), "two interfaces in one subnet: nobody knows"


BOND = """Ethernet Channel Bonding Driver: v5.15.0

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
MII Status: up

802.3ad info
LACP active: on

Slave Interface: ens1f0
MII Status: up
Speed: 100000 Mbps
Aggregator ID: 1

Slave Interface: ens1f1
MII Status: down
Speed: Unknown
Aggregator ID: 2
"""


def test_bond() -> None:
    members = list(ethernet.parse_bond("bond0", BOND))
    shown = [(m.name, m.status, m.speed, m.aggregator) for m in members]
    assert [("ens1f0", "up", 100000, 1), ("ens1f1", "down", None, 2)] == shown
    assert "IEEE 802.3ad Dynamic link aggregation" == members[0].mode
    assert [] == list(ethernet.parse_bond("bond0", "rubbish"))


INFO = """provider: efa
    fabric: efa
    domain: rdmap16s27-rdm
    version: 116.10
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa-direct
    domain: rdmap16s27-rdm
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap32s27-rdm
"""


def test_fi_info_counts_domains_and_not_entries() -> None:
    info = efa.parse_info(Output(0, INFO))
    assert {"rdmap16s27-rdm": "FI_PROTO_EFA", "rdmap32s27-rdm": None} == info.domains
    failed = efa.parse_info(Output(61, "fi_getinfo: -61 (No data available)\n"))
    assert (61, {}, "fi_getinfo: -61 (No data available)") == tuple(failed)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("libfabric1_1.8.0amzn1.0_amd64", "1.8.0"),
        ("libfabric-aws-1.22.0amzn4.0-1.amzn2.x86_64", "1.22.0"),
        ("libfabric1-aws_2.1.0amzn5.0_amd64", "2.1.0"),
        ("openmpi40-aws_4.1.7-2_amd64", None),
    ],
)
def test_packages_of_the_installer(line: str, expected: str | None) -> None:
    text = f"# EFA installer version: 1.34.0\n# Packages installed:\n{line}\n"
    assert (expected, "1.34.0") == (efa.package(text, "libfabric"), efa.installer(text))


def test_fi_info_that_hangs_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.build("p4d").write(tmp_path)

    def hang(*command: str, seconds: float = 2.0) -> Output:
        raise TimeoutError("no answer")

    root = Root(tmp_path)
    monkeypatch.setattr(root, "run", hang)
    rows: list[str] = []
    with pytest.raises(TimeoutError, match="fi_info"):
        rows.extend(type(row).__name__ for row in efa.collect(root))
    assert ["EfaNode", "PluginFile"] == rows


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
    assert "failed" not in outcomes(facts).values(), facts.query("SELECT source, note FROM collection")


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
