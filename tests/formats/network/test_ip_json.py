"""Counters of `ip -s -j link` and of `rdma -j statistic`."""

import json
from pathlib import Path

from nccl_doctor.app.analyze import read_facts


def interface(name: str, errors: int) -> dict[str, object]:
    """One interface as iproute2 prints it."""
    counts = {"bytes": 10, "packets": 5, "errors": errors, "dropped": 7}
    return {
        "ifindex": 2,
        "ifname": name,
        "flags": ["UP"],
        "stats64": {"rx": counts, "tx": {**counts, "carrier_errors": 3}},
    }


def test_counters_have_the_names_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "ip.json").write_text(json.dumps([interface("lo", 9), interface("ens1", 812)]))
    facts, problems = read_facts([str(tmp_path / "ip.json")])
    assert not problems
    counted = {(link, name): value for link, name, value in facts.query("SELECT link, name, value FROM link_counter")}
    assert (812, 7, 3) == tuple(counted["ens1", name] for name in ("rx_errors", "tx_dropped", "tx_carrier_errors"))
    assert {"ens1"} == {link for link, _ in counted}


def test_a_file_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    (tmp_path / "ip.json").write_text(json.dumps([interface("ens1", 812), interface("ens2", 5)])[:-40])
    facts, _ = read_facts([str(tmp_path / "ip.json")])
    assert [("ens1",)] == facts.query("SELECT DISTINCT link FROM link_counter")
    assert "middle of the interface" in facts.query("SELECT note FROM input")[0][0]


def test_counters_of_rdma_ports(tmp_path: Path) -> None:
    ports = [
        {
            "ifname": f"mlx5_{card}",
            "port": 1,
            "rx_write_requests": 9,
            "out_of_sequence": 77 * card,
            "resp_rx_outof_buf": card,
        }
        for card in range(3)
    ]
    (tmp_path / "rdma.json").write_text(json.dumps(ports, indent=2))
    facts, problems = read_facts([str(tmp_path / "rdma.json")])
    assert not problems
    counted = facts.query(
        "SELECT link, name, value FROM link_counter WHERE source = 'rdma' AND link = 'mlx5_2/1' ORDER BY name"
    )
    assert [("mlx5_2/1", "out_of_buffer", 2), ("mlx5_2/1", "out_of_sequence", 154)] == counted
