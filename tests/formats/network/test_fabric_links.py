"""Links of a fabric, what TCP sent again and what queues dropped: of a simulated fabric and of hosts with a slow way out."""

from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts

NETWORK = FIXTURES / "network"


def facts_of(name: str) -> Facts:
    facts, problems = analyze.read_facts([str(NETWORK / name)])
    assert [] == problems
    return facts


@pytest.mark.parametrize("name", ["iblinkinfo_line.txt", "ibnetdiscover_ports.txt"])
def test_the_slow_link_is_named_by_its_host(name: str) -> None:
    report, facts, _ = analyze.analyze([str(NETWORK / name)])
    assert [("ib-port-slow", "node07")] == [(found.name, found.hosts) for found in report.findings]
    assert [("node07", "mlx5_0", 1, 10.0, 4, "SDR", 17)] == facts.query(
        "SELECT host, hca, port, rate, lanes, speed, lid FROM ib_port WHERE rate < 100"
    )


def test_the_slow_link_of_a_map_is_named_by_its_host() -> None:
    """The map tells of each link twice: of the card and of the switch."""
    report, facts, _ = analyze.analyze([str(NETWORK / "ibnetdiscover.txt")])
    assert [("ib-port-slow", "node07")] == [(found.name, found.hosts) for found in report.findings]
    assert [("node07", "mlx5_0", 1, 56.0, 4, "FDR")] == facts.query(
        "SELECT host, hca, port, rate, lanes, speed FROM ib_port WHERE rate < 100"
    )
    # eight hosts, and both ends of four links between switches
    assert [(16, 8)] == facts.query("SELECT count(*), sum(host IS NULL) FROM ib_port")


def test_a_fabric_of_equal_links() -> None:
    report, facts, _ = analyze.analyze([str(NETWORK / "iblinkinfo.txt")])
    assert [] == report.findings
    # eight hosts, and both ends of four links between switches
    assert [(8, 8, 100.0)] == facts.query("SELECT count(host), sum(host IS NULL), max(rate) FROM ib_port")
    assert [("leaf01",), ("leaf02",), ("spine01",)] == facts.query(
        "SELECT DISTINCT hca FROM ib_port WHERE host IS NULL ORDER BY hca"
    )


def test_links_that_many_nodes_print_count_once(tmp_path: Path) -> None:
    """A host whose one link came from thirty nodes is not a switch, and its slow link stays the odd one."""
    printed = (NETWORK / "iblinkinfo_line.txt").read_text()
    one, many = facts_of("iblinkinfo_line.txt"), tmp_path / "many.txt"
    lines = [
        f"node{node:02}: {line}"
        for node in range(30)
        for line in printed.replace("0xec0d9a03", f"0xec0d9a{node:02}").splitlines()
    ]
    many.write_text("\n".join(lines) + "\n")
    report, facts, _ = analyze.analyze([str(many)])
    columns = "SELECT host, hca, port, state, rate, lanes, speed, lid FROM ib_port ORDER BY rowid"
    assert one.query(columns) == facts.query(columns) != []
    assert [("ib-port-slow", "node07")] == [(found.name, found.hosts) for found in report.findings]


def test_ports_that_are_down_are_no_links() -> None:
    assert [(0,)] == facts_of("iblinkinfo.txt").query("SELECT count(*) FROM ib_port WHERE state <> 'Active'")


@pytest.mark.parametrize(("name", "source"), [("nstat_pdsh.txt", "nstat"), ("netstat_clush.txt", "netstat")])
def test_segments_sent_again(name: str, source: str) -> None:
    found = facts_of(name).query("SELECT host, value, source FROM link_counter ORDER BY host")
    assert [("node01", 253), ("node02", 6), ("node03", 58100), ("node04", 142)] == [row[:2] for row in found]
    assert {source} == {row[2] for row in found}


@pytest.mark.parametrize("name", ["nstat_pdsh.txt", "netstat_clush.txt", "tc_pdsh.txt"])
def test_the_host_with_the_slow_way_out_is_named(name: str) -> None:
    report, _, _ = analyze.analyze([str(NETWORK / name)])
    assert [("link-errors-stand-out", "node03")] == [(found.name, found.hosts) for found in report.findings]


def test_dropped_by_a_queue() -> None:
    found = facts_of("tc_pdsh.txt").query("SELECT host, name, value FROM link_counter WHERE value > 0")
    assert [("node03", "tx_dropped", 22735)] == found
