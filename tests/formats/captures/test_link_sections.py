"""Bonds and ports of InfiniBand as commands and files of /proc and /sys show them."""

from pathlib import Path

import pytest

from nccl_doctor.app.analyze import read_facts, report_of
from nccl_doctor.facts.store import Facts

BOND = """\
Ethernet Channel Bonding Driver: v6.1.90

Bonding Mode: {mode}
MII Status: up
MII Polling Interval (ms): 100

{info}Slave Interface: ens1f0
MII Status: up
Speed: 25000 Mbps
Duplex: full
Link Failure Count: 0
Slave queue ID: 0
{first}
Slave Interface: ens1f1
MII Status: {status}
Speed: Unknown
Duplex: Unknown
Link Failure Count: 3
Slave queue ID: 0
{second}"""
AGGREGATED = {
    "mode": "IEEE 802.3ad Dynamic link aggregation",
    "info": "802.3ad info\nLACP active: on\nActive Aggregator Info:\n\tAggregator ID: 7\n\tNumber of ports: 1\n\n",
    "first": "Aggregator ID: 7\ndetails actor lacp pdu:\n    port number: 1\n",
    "second": "Aggregator ID: 8\n",
}
PLAIN = {"mode": "fault-tolerance (active-backup)", "info": "", "first": "", "second": ""}


def facts_of(tmp_path: Path, text: str) -> Facts:
    (tmp_path / "capture.txt").write_text(text)
    return read_facts([str(tmp_path / "capture.txt")])[0]


@pytest.mark.parametrize("kind", [AGGREGATED, PLAIN], ids=["802.3ad", "active-backup"])
def test_a_member_without_link_is_named(kind: dict[str, str], tmp_path: Path) -> None:
    facts = facts_of(tmp_path, BOND.format(status="down", **kind))

    rows = facts.query("SELECT name, status, speed, aggregator FROM bond_member ORDER BY name")
    aggregators = (7, 8) if kind is AGGREGATED else (None, None)
    assert [("ens1f0", "up", 25000, aggregators[0]), ("ens1f1", "down", None, aggregators[1])] == rows
    found = [one for one in report_of(facts).findings if one.name == "bond-member-down"]
    assert ["ens1f1"] == [one.values["name"] for one in found]


def test_a_bond_whose_members_are_up_is_well(tmp_path: Path) -> None:
    assert [] == report_of(facts_of(tmp_path, BOND.format(status="up", **PLAIN))).findings


PORT = """\
PortInfo:
# Port info: Lid 31 port {port}
LinkState:.......................{state}
PhysLinkState:...................{physical}
Lid:.............................0
LinkWidthActive:.................4X
LinkSpeedActive:.................2.5 Gbps
"""


def test_ports_of_a_switch(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        PORT.format(port=3, state="Active", physical="LinkUp") + PORT.format(port=4, state="Down", physical="Polling"),
    )

    rows = facts.query("SELECT hca, port, state, physical FROM ib_port ORDER BY port")
    assert [("lid 31", 3, "Active", "LinkUp"), ("lid 31", 4, "Down", "Polling")] == rows
    report = report_of(facts)
    assert ["ib-port-not-active"] == [one.name for one in report.findings]
    assert any("2 RDMA ports, 1 active; not active: lid 31/4 Polling" in line for line in report.job_lines)


def test_ports_in_the_files_of_sysfs(tmp_path: Path) -> None:
    folder = "/sys/class/infiniband"
    text = "".join(
        f"{folder}/mlx5_{card}/ports/1/state:{state}\n{folder}/mlx5_{card}/ports/1/rate:400 Gb/sec (4X NDR)\n"
        for card, state in enumerate(("4: ACTIVE", "2: INIT", "1: DOWN"))
    )
    rows = facts_of(tmp_path, text).query("SELECT hca, state FROM ib_port ORDER BY hca")
    assert [("mlx5_0", "Active"), ("mlx5_1", "Initializing"), ("mlx5_2", "Down")] == rows
