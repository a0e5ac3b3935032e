"""What files and commands of network cards say, text by text."""

import json
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.facts.tables import RdmaDevice
from nccl_doctor.node.gpu import pci_path
from nccl_doctor.node.gpu.pci_path import Place
from nccl_doctor.node.network import counters, ethernet
from nccl_doctor.node.rdma import efa, infiniband, rdma_ports
from nccl_doctor.node.runtime.root import Output, Root
from nccl_doctor.simulate import node


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
