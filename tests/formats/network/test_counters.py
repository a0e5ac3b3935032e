"""Counters of links: output of real programs against another reading, hosts kept apart, broken and hostile input."""

import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.places import FIXTURES as ALL

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import FabricCheck, LinkCounter, LinkQuality
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.network import counters, dcgm_nvlink, ibdiagnet, mlxlink

FIXTURES = ALL / "network"
MLXLINK = """\
Operational Info
----------------
State                              : {state}
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x
FEC                                : Interleaved_Standard_RS_FEC_PLR - (544,514)

Troubleshooting Info
--------------------
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : {advice}

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 1440.5
Symbol Errors                      : 0
Symbol BER                         : 15E-255
Effective Physical Errors          : {errors}
Effective Physical BER             : {ber}
Raw Physical BER                   : 2E-9
Link Down Counter                  : 2
Link Error Recovery Counter        : 0
"""


def read(data: bytes | str) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, counters.read_format(io.BytesIO(data.encode() if isinstance(data, str) else data), "c.txt", facts)


def values(facts: Facts) -> dict[tuple[str, str], int]:
    return {(row.link, row.name): row.value for row in facts.rows(LinkCounter)}


def test_perfquery_of_a_simulated_switch_agrees_with_its_text() -> None:
    text = (FIXTURES / "perfquery_switch.txt").read_text()
    facts, reading = read(text)
    found = values(facts)
    for block in text.split("# Port counters: ")[1:]:
        port = re.match(r"Lid (\d+) port (\d+)", block)
        assert port is not None
        printed = re.search(r"SymbolErrorCounter:\.+(\d+)", block)
        assert printed is not None
        assert int(printed[1]) == found[f"lid {port[1]} port {port[2]}", "symbol_error"]
    assert text.count("\n") == reading.lines == reading.understood
    assert 9 == found["lid 2 port 3", "link_downed"]


def test_the_bad_port_of_a_switch_is_named() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "perfquery_switch.txt")])
    assert ["link-errors-stand-out"] == [finding.name for finding in report.findings]
    message = report.findings[0].message
    assert "lid 2 port 3" in message
    assert "symbol_error 65535 (the others 0)" in message
    assert "link_downed 9 (the others 0)" in message


def test_ibqueryerrors_names_switches_and_cards() -> None:
    facts, _ = read((FIXTURES / "ibqueryerrors.txt").read_bytes())
    assert {
        ("Switch1 port 3", "symbol_error"): 65535, ("Switch1 port 3", "link_downed"): 9, ("Hca1 port 1", "symbol_error"): 4711,
    } == values(facts)  # fmt: skip


def test_interfaces_of_ip_agree_with_another_reading() -> None:
    text = (FIXTURES / "ip_s_link.txt").read_text()
    facts, _ = read(text)
    wanted = {}
    for block in re.split(r"(?m)^\d+: ", text)[1:]:
        name, rows = block.split(":")[0], block.split("\n")
        for head, row in pairwise(rows):
            cells = head.split()
            if cells[:1] in (["RX:"], ["TX:"]) and name != "lo":
                wanted[name, f"{cells[0][:2].lower()}_errors"] = int(row.split()[cells.index("errors") - 1])
    assert wanted.items() <= values(facts).items()
    assert ("lo", "rx_errors") not in values(facts)


def test_a_command_that_runs_again_and_again_keeps_the_lowest_and_the_highest_value() -> None:
    shown = (3, 3, 7, 5, 40, 12)
    facts, reading = read(
        "".join(f"NIC statistics:\n     rx_crc_errors_phy: {n}\n     rx_discards_phy: 0\n" for n in shown).replace(
            "NIC", "# ethtool -S eth0\nNIC"
        )
    )
    rows = [(row.link, row.name, row.value, row.ref) for row in facts.rows(LinkCounter)]
    assert [("eth0", "rx_crc_errors", 3), ("eth0", "rx_crc_errors", 40), ("eth0", "rx_discards", 0)] == [
        row[:3] for row in rows
    ]
    assert ["rx_crc_errors_phy: 3", "rx_crc_errors_phy: 40", "NIC statistics:"] == [
        facts.evidence_rows([row[3]])[0].text for row in rows
    ]
    assert 3 * len(shown) <= reading.understood


def test_ethtool_is_named_by_the_command_or_a_title_or_counted() -> None:
    text = (FIXTURES / "ethtool_virtio.txt").read_text()
    assert {"eth0"} == {link for link, _ in values(read(text)[0])}
    body = text.partition("\n")[2]
    assert {"eth1"} == {link for link, _ in values(read(f"== eth1 ==\n{body}")[0])}
    assert {"NIC 1", "NIC 2"} == {link for link, _ in values(read(body + body)[0])}


def test_hosts_with_a_prefix_are_kept_apart() -> None:
    text = (FIXTURES / "perfquery_switch.txt").read_text().split("# Port")[3]
    lines = f"# Port{text}".splitlines()
    facts, _ = read("".join(f"node0{host}: {line}\n" for line in lines for host in (1, 2)))
    assert {("node01", 65535), ("node02", 65535)} == {
        (row.host, row.value) for row in facts.rows(LinkCounter) if row.name == "symbol_error"
    }


def test_nvlinks_of_both_generations_and_of_dcgm() -> None:
    owner = "GPU 3: NVIDIA B200 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
    smi = (
        owner
        + "\t Link 0: Replay Errors: 7\n\t Link 0: CRC Errors: 1\n\t Link 5: Malformed packet Errors: 2\n\t Link 5: Symbol BER: 15e-255\n"
    )
    dcgm = (
        "| NVLINK Error Counts                                                          |\n"
        "| GPU 4                                                                        |\n"
        "+=============================+================================================+\n"
        "| Link 2                      |                                                |\n"
        "| -> CRC FLIT Error           | 12                                             |\n"
        "| -> Replay Error             | 3                                              |\n"
    )
    facts, _ = read(smi + dcgm)
    assert {
        ("GPU 3 link 0", "nvlink-replay"): 7, ("GPU 3 link 0", "nvlink-crc"): 1, ("GPU 3 link 5", "nvlink-malformed"): 2,
        ("GPU 4 link 2", "nvlink-crc"): 12, ("GPU 4 link 2", "nvlink-replay"): 3,
    } == values(facts)  # fmt: skip


def test_rdma_statistics_on_one_line_or_many() -> None:
    one = "link mlx5_0/1 rx_write_requests 0 out_of_sequence 812 packet_seq_err 3\n"
    many = "link mlx5_1/1 \n    rx_write_requests 0 \n    out_of_sequence 5 \n"
    facts, _ = read(one + many)
    assert {
        ("mlx5_0/1", "out_of_sequence"): 812, ("mlx5_0/1", "packet_seq_err"): 3, ("mlx5_1/1", "out_of_sequence"): 5,
    } == values(facts)  # fmt: skip


def test_rdma_statistics_of_several_cards_behind_the_prefix_of_a_host() -> None:
    card = "node0{host}: link mlx5_{card}/1 rx_write_requests 7 out_of_sequence {count}\n"
    facts, _ = read("".join(card.format(host=1 + at // 2, card=at % 2, count=at) for at in range(4)))
    assert [
        ("node01", "mlx5_0/1", 0), ("node01", "mlx5_1/1", 1), ("node02", "mlx5_0/1", 2), ("node02", "mlx5_1/1", 3),
    ] == [(row.host, row.link, row.value) for row in facts.rows(LinkCounter)]  # fmt: skip


ICE = """# ethtool -S ens1f0
NIC statistics:
     rx_bytes: 881
     rx_crc_errors.nic: 7712
     rx_dropped.nic: 0
"""
BNXT = """# ethtool -S ens3f0np0
NIC statistics:
     [0]: rx_ucast_packets: 100
     [11]: tx_ucast_packets: 100
     rx_pcs_symbol_err: 31
     link_down_events: 22
"""
I40E = """# ethtool -S enp1s0
NIC statistics:
     port.rx_crc_errors: 12
     port.rx_bytes: 3
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ICE, {("ens1f0", "rx_crc_errors", 7712), ("ens1f0", "rx_dropped", 0)}),
        (BNXT, {("ens3f0np0", "rx_symbol_errors_uncorrected", 31), ("ens3f0np0", "link_downed", 22)}),
        (I40E, {("enp1s0", "rx_crc_errors", 12)}),
        (
            "link rocep3s0f0/1 ip4InDiscards 0 cnpSent 12 tcpRetransSegs 91231 tcpInSegs 5 \n",
            {("rocep3s0f0/1", "ip4_in_discards", 0), ("rocep3s0f0/1", "retransmitted_segments", 91231)},
        ),
        (
            "link bnxt_re0/1 active_pds 3 to_retransmits 400 seq_err_naks_rcvd 5 oos_drop_count 0 \n",
            {
                ("bnxt_re0/1", "retrans_timeout_events", 400),
                ("bnxt_re0/1", "packet_seq_err", 5),
                ("bnxt_re0/1", "out_of_sequence", 0),
            },
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["", "node07: "])
def test_names_of_other_drivers(text: str, expected: set[tuple[str, str, int]], prefix: str) -> None:
    """ice and i40e mark the counters of the port, bnxt_en numbers its queues, irdma and bnxt_re have names of their own."""
    facts, _ = read("".join(f"{prefix}{line}\n" for line in text.splitlines()))

    assert expected == {(row.link, row.name, row.value) for row in facts.rows(LinkCounter)}


def test_a_table_in_a_log_is_found_and_the_rest_is_passed_over() -> None:
    noise = "step 12 loss 2.5\n" * 5000
    facts, reading = read(noise + (FIXTURES / "perfquery_switch.txt").read_text() + noise)
    assert 65535 == values(facts)["lid 2 port 3", "symbol_error"]
    assert 10_000 + 88 == reading.lines
    assert {5001} <= {row[0] for row in facts.query("SELECT line FROM evidence")}


@pytest.mark.parametrize("cut", [1, 200, 777, 2000])
def test_a_cut_file_is_read_as_far_as_it_goes(cut: int) -> None:
    data = (FIXTURES / "perfquery_switch.txt").read_bytes()
    assert values(read(data[:cut])[0]).items() <= values(read(data)[0]).items() | {
        (key, value // 10**n) for key, value in values(read(data)[0]).items() for n in range(6)
    }


def test_hostile_numbers_and_lines_do_no_harm() -> None:
    text = (
        "NIC statistics:\n     rx_crc_errors: 18446744073709551615\n     tx_errors: "
        + "9" * 400
        + "\n     rx_errors: -3\n"
    )
    facts, _ = read(text + "x" * 3_000_000 + "\n     tx_dropped: 4\n")
    assert {("NIC 1", "tx_dropped"): 4} == values(facts)


def quality(text: str) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, mlxlink.read_format(io.BytesIO(text.encode()), "m.txt", facts)


def test_ports_of_mlxlink_are_named_by_the_command_or_counted() -> None:
    good = MLXLINK.format(state="Active", advice="No issue was observed", errors=0, ber="15E-255")
    bad = MLXLINK.format(state="Active", advice="Bad signal integrity", errors=91, ber="4E-11")
    facts, _ = quality(f"$ mlxlink -d mlx5_0 -c\n{good}$ mlxlink -d mlx5_1 -c\n{bad}{good}")
    rows = facts.rows(LinkQuality)
    assert ["mlx5_0", "mlx5_1", "port 3"] == [row.link for row in rows]
    assert [15e-255, 4e-11, 15e-255] == [row.effective_ber for row in rows]
    assert {"IB-NDR"} == {row.speed for row in rows}
    assert [0, 91, 0] == [row.value for row in facts.rows(LinkCounter) if row.name == "effective_errors"]


def test_the_lane_with_far_more_errors_is_told_where_some_remain_after_correction() -> None:
    text = (
        "Operational Info\nState                              : Active\n"
        "Effective Physical BER             : 3E-9\nRaw Physical Errors Per Lane       : 991,881,771234123,912\n"
    )
    for ber, expected in (("3E-9", "lane 3 of 4 has 771234123 raw errors, the others up to 991"), ("15E-255", None)):
        facts, _ = quality(text.replace("3E-9", ber))
        assert [expected] == [row.module for row in facts.rows(LinkQuality)]


def test_mlxlink_with_json() -> None:
    text = """{"result": {"output": {"Operational Info": {"State": "Active", "Speed": "400G", "Width": "4x"},
      "Troubleshooting Info": {"Recommendation": "No issue was observed"},
      "Physical Counters and BER Info": {"Effective Physical BER": "2E-14", "Link Down Counter": "3"}}}}"""
    facts, reading = quality(text)
    assert [("Active", 4, 2e-14)] == [(row.state, row.lanes, row.effective_ber) for row in facts.rows(LinkQuality)]
    assert [("ethernet", 3)] == [(row.kind, row.value) for row in facts.rows(LinkCounter)]
    assert 3 == reading.understood
    assert "is not complete JSON" in (quality(text[:150])[1].note or "")


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("-I- Stage                     Warnings   Errors     Comment", "-I- Port Counters             2          1"),
        (
            "    STAGE                                    Errors Warnings",
            "    Port Counters                            1      2",
        ),
    ],
)
def test_summaries_of_both_generations_of_ibdiagnet(head: str, row: str) -> None:
    facts = Facts()
    text = f"-W- S1/P3: symbol errors grew by 7\n{head}\n{row}\n"
    ibdiagnet.read_format(io.BytesIO(text.encode()), "i.log", facts)
    assert [("Port Counters", 2, 1, "S1/P3: symbol errors grew by 7")] == [
        (found.stage, found.warnings, found.errors, found.text) for found in facts.rows(FabricCheck)
    ]


def test_the_healthy_captures_are_not_blamed(tmp_path: Path) -> None:
    good = MLXLINK.format(state="Active", advice="No issue was observed", errors=0, ber="15E-255")
    (tmp_path / "mlxlink.txt").write_text(good)
    for path in (FIXTURES / "ip_s_link.txt", FIXTURES / "ethtool_virtio.txt", tmp_path / "mlxlink.txt"):
        report, _, _ = analyze.analyze([str(path)])
        assert [] == report.findings, path


@pytest.mark.parametrize("indent", [None, 2])
def test_dcgm_prints_nvlink_errors_in_json(indent: int | None) -> None:
    def report(gpu: int, replays: int) -> str:
        link = {"children": {"CRC FLIT Error": {"value": "0"}, "Replay Error": {"value": str(replays)}}}
        return json.dumps(
            {"body": {"Link 0": link, "Link 1": link}, "header": ["NVLINK Error Counts", f"GPU {gpu}"]}, indent=indent
        )

    data = (report(0, 3) + "\n" + report(7, 120)).encode()
    facts = Facts()
    assert (8, None) == dcgm_nvlink.read_format(io.BytesIO(data), "n.json", facts)[1:]
    assert [("GPU 0 link 0", 3), ("GPU 0 link 1", 3), ("GPU 7 link 0", 120), ("GPU 7 link 1", 120)] == facts.query(
        "SELECT link, value FROM link_counter WHERE name = 'nvlink-replay'"
    )
    assert "ends in the middle" in (dcgm_nvlink.read_format(io.BytesIO(data[:-20]), "n.json", Facts()).note or "")


@pytest.mark.parametrize("prefix", ["", "0: ", "node07: ", "2026-05-07T12:00:00.123456789Z "])
def test_the_problem_of_a_fabric_is_named_behind_a_prefix(prefix: str) -> None:
    text = "-E- lid=0x0003 dev=54002: symbol errors increased\n" + "-I- filler\n" * 60
    text += "-I- Stage                     Warnings   Errors     Comment\n-I- Port Counters             2          0\n"
    facts = Facts()
    ibdiagnet.read_format(
        io.BytesIO("".join(f"{prefix}{line}\n" for line in text.splitlines()).encode()), "i.log", facts
    )
    assert [("Port Counters", 2, 0, "lid=0x0003 dev=54002: symbol errors increased")] == facts.query(
        "SELECT stage, warnings, errors, text FROM fabric_check"
    )


DETAILS = """\
# PortRcvErrorDetails counters: Lid 19 port 2
PortSelect:......................2
CounterSelect:...................0x0000
PortLocalPhysicalErrors:.........41
PortLoopingErrors:...............0
# PortXmitDiscardDetails counters: Lid 19 port 2
PortSelect:......................2
PortInactiveDiscards:............6
PortSwHOQLifetimeLimitDiscards:..0
"""


def test_the_causes_that_perfquery_tells_apart() -> None:
    facts, reading = read(DETAILS)
    found = values(facts)
    assert 41 == found["lid 19 port 2", "port_local_physical_errors"]
    assert 6 == found["lid 19 port 2", "port_inactive_discards"]
    assert 0 == found["lid 19 port 2", "port_hoq_lifetime_limit_discards"]
    assert reading.understood == DETAILS.count("\n")


UNLISTED = """\
NIC statistics:
     fr_rx_ok: 81234
     fr_rx_bad: 12
     mac_tx_underrun_errors: 3
     xdp_drop: 7
     rx_q0_errors: 9
     port_tx_dropped: 0
     frame_fcs_err: 5
"""


def test_error_counters_of_a_driver_that_is_not_listed_are_told_by_their_words() -> None:
    found = values(read(UNLISTED)[0])
    expected = {"fr_rx_bad": 12, "mac_tx_underrun_errors": 3, "port_tx_dropped": 0, "frame_fcs_err": 5}
    assert expected == {name: value for (_, name), value in found.items()}
    prefixed = "".join(f"node03: {line}\n" for line in UNLISTED.splitlines())
    assert expected == {name: value for (_, name), value in values(read(prefixed)[0]).items()}


def test_words_count_for_nothing_where_the_driver_is_listed() -> None:
    listed = UNLISTED.replace("fr_rx_ok: 81234", "rx_crc_errors_phy: 1")
    assert {"rx_crc_errors": 1} == {name: value for (_, name), value in values(read(listed)[0]).items()}
