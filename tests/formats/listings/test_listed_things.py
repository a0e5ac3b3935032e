"""Tables and lists of parts of machines: states, readings, counters of errors."""

import io
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter, ListedNumber, ListedState, Measure
from nccl_doctor.formats.listings import listed_things

SONIC = FIXTURES / "listings" / "sonic_show.txt"
ZPOOL = FIXTURES / "listings" / "zpool_status.txt"


def read(text: str) -> Facts:
    facts = Facts()
    listed_things.read_format(io.BytesIO(text.encode()), "told.txt", facts)
    return facts


def states(text: str) -> dict[str, tuple[str, str]]:
    return {row.name: (row.state, row.level) for row in read(text).rows(ListedState)}


def numbers(text: str) -> dict[tuple[str, str], tuple[float, str]]:
    return {(row.name, row.title): (row.value, row.unit) for row in read(text).rows(ListedNumber)}


def test_a_power_supply_that_is_not_ok_is_named_with_its_numbers() -> None:
    report, facts = analyze.analyze([str(SONIC)])[:2]
    (finding,) = [one for one in report.findings if one.name == "listed-part-failed"]
    assert "show platform psustatus: PSU 2 is NOT OK" in finding.message
    told = {(row.name, row.of): (row.value, row.unit) for row in facts.rows(Measure)}
    assert (221.59, "W") == told["listed_power", "PSU 1"]
    assert (2104.11, "MB/s") == told["listed_rx_bps", "Ethernet0"]
    assert ["Ethernet8"] == [one.values["link"] for one in report.findings if one.name == "link-errors-stand-out"]


def test_error_counters_of_ports_are_those_of_links() -> None:
    counted = {(row.link, row.name): row.value for row in read(SONIC.read_text()).rows(LinkCounter)}
    assert 4117 == counted["Ethernet8", "rx_errors"]
    assert 3 == counted["Ethernet0", "rx_dropped"]
    assert 0 == counted["Ethernet24", "tx_fifo_errors"]


def test_a_pool_and_its_disk_that_cannot_be_opened() -> None:
    (finding,) = analyze.analyze([str(ZPOOL)])[0].findings
    assert "zpool status: scratch is DEGRADED, mirror-0 is DEGRADED, 9981122334455667788 is UNAVAIL" in finding.message
    assert ("ONLINE", "well") == states(ZPOOL.read_text())["nvme0n1"]


def test_what_is_well_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "well.txt"
    path.write_text(SONIC.read_text().replace("NOT OK", "OK    ").replace("4,117", "    0"))
    assert [] == analyze.analyze([str(path)])[0].findings


def test_a_port_that_is_off_on_purpose_has_no_state_and_another_is_a_note(tmp_path: Path) -> None:
    text = (
        "Interface            Lanes    Speed    MTU            Alias    Oper    Admin    Type\n"
        "-----------  ---------------  -------  -----  ---------------  ------  -------  ------\n"
        "Ethernet0      49,50,51,52     100G   9100   hundredGigE1/1    down       up     N/A\n"
        "Ethernet4      53,54,55,56     100G   9100   hundredGigE1/2    down     down     N/A\n"
    )
    assert {"Ethernet0": ("down", "bad")} == states(text)
    path = tmp_path / "ports.txt"
    path.write_text(text)
    assert [("listed-part-failed", "note")] == [
        (one.name, one.severity) for one in analyze.analyze([str(path)])[0].findings
    ]


def test_titles_of_several_lines_and_a_column_of_units() -> None:
    optics = (
        "                               Bias      Optical   Optical\n"
        "          Temp       Voltage   Current   Tx Power  Rx Power\n"
        "Port      (Celsius)  (Volts)   (mA)      (dBm)     (dBm)     Last Update\n"
        "-----     ---------  --------  --------  --------  --------  -------------------\n"
        "Et1/1     41.20      3.29      7.11      -1.04     -17.30    0:00:04 ago\n"
        "Et1/2     N/A        N/A       N/A       N/A       N/A       N/A\n"
    )
    assert (-17.3, "dBm") == numbers(optics)["Et1/1", "Optical Rx Power"]
    assert (41.2, "°C") == numbers(optics)["Et1/1", "Temp"]
    monitored = (
        "Ethernet8:\n"
        "    Parameter       Unit    Min       Avg       Max\n"
        "    --------------  ------  --------  --------  --------\n"
        "    Tx Power        dBm     -2.10     -2.05     -2.01\n"
        "    Pre-FEC BER     N/A     1.1E-06   1.3E-06   2.0E-06\n"
    )
    assert {("Tx Power", ""): (-2.05, "dBm"), ("Pre-FEC BER", ""): (1.3e-6, "")} == numbers(monitored)


def test_rows_between_colons_of_storage_scale() -> None:
    text = (
        "mmlsdisk::HEADER:version:reserved:reserved:nsdName:driverType:status:availability:remarks:\n"
        "mmlsdisk::0:1:::data01:nsd:ready:up:desc:\n"
        "mmlsdisk::0:1:::data02:nsd:ready:down:desc:\n"
        "mmdf:fsTotal:HEADER:version:reserved:reserved:fsSize:freeBlocks:freeBlocksPct:\n"
        "mmdf:fsTotal:0:1:::904000:113000:12:\n"
        "mmhealth:Event:HEADER:version:reserved:reserved:node:component:entityname:event:message:\n"
        "mmhealth:Event:0:1:::n01:NETWORK:ib0:network_link_down:The link%3A down:\n"
        "mmbroken:Event\n"
    )
    facts = read(text)
    bad = {(row.name, row.state) for row in facts.rows(ListedState) if row.level == "bad"}
    assert {("data02", "down"), ("ib0", "network_link_down")} == bad
    assert [("mmdf fsTotal", 12.0, "%")] == [(row.name, row.value, row.unit) for row in facts.rows(ListedNumber)]


def test_sensors_of_a_board() -> None:
    text = (
        "Fan1             | 30h | ok  |  7.1 | 5040 RPM\n"
        "PSU2 Status      | 64h | cr  | 10.2 | 0 Watts\n"
        "Inlet Temp       | 25 degrees C      | ok\n"
        "GPU5 Temp        | 95.000     | degrees C  | nc    | na  | na  | na  | 92.000 | 98.000 | na\n"
        "Spare            | na         | discrete   | na    | na  | na  | na  | na     | na     | na\n"
    )
    assert {
        "Fan1": ("ok", "well"),
        "PSU2 Status": ("critical", "bad"),
        "Inlet Temp": ("ok", "well"),
        "GPU5 Temp": ("non-critical", "poor"),
    } == states(text)
    assert {
        ("Fan1", ""): (5040.0, "RPM"),
        ("PSU2 Status", ""): (0.0, "W"),
        ("Inlet Temp", ""): (25.0, "°C"),
        ("GPU5 Temp", ""): (95.0, "°C"),
    } == numbers(text)


def test_sensors_of_chips_count_where_they_are_above_what_is_critical() -> None:
    text = (
        "coretemp-isa-0000\nAdapter: ISA adapter\n"
        "Package id 0:  +95.0°C  (high = +80.0°C, crit = +90.0°C)  ALARM\n"
        "Core 0:        +65.0°C  (high = +80.0°C, crit = +90.0°C)\n\n"
        "nvme-pci-0100\nComposite:\n  temp1_input: 91.850\n  temp1_crit: 84.850\n"
    )
    assert {"coretemp-isa-0000 Package id 0", "nvme-pci-0100 Composite"} == set(states(text))
    assert (65.0, "°C") == numbers(text)["coretemp-isa-0000 Core 0", ""]


def test_an_array_of_disks_that_rebuilds() -> None:
    text = (
        "/dev/md4:\n        Raid Level : raid1\n             State : clean, degraded, recovering\n\n"
        "    Number   Major   Minor   RaidDevice State\n"
        "       0     259        1        0      active sync   /dev/nvme0n1p2\n"
        "       2     259        5        1      spare rebuilding   /dev/nvme1n1p2\n"
    )
    assert {
        "/dev/md4": ("clean, degraded, recovering", "poor"),
        "/dev/nvme0n1p2": ("active sync", "well"),
        "/dev/nvme1n1p2": ("spare rebuilding", "well"),
    } == states(text) | {"/dev/nvme1n1p2": ("spare rebuilding", "well")}


def test_paragraphs_of_ports() -> None:
    text = (
        "Ethernet7 is up, line protocol is up (connected)\n"
        "  5 minutes input rate 12.4 Gbps (12.5% with framing overhead), 1320411 packets/sec\n"
        "     3 input errors, 18 CRC, 0 alignment, 2 symbol, 0 input discards\n"
        "Ethernet8 is down, line protocol is down (notconnect)\n"
        "Vlan4 is down (Administratively down), line protocol is down\n"
    )
    facts = read(text)
    assert {
        ("Ethernet7", "rx_crc_errors"): 18,
        ("Ethernet7", "rx_errors"): 3,
        ("Ethernet7", "rx_symbol_errors"): 2,
        ("Ethernet7", "rx_discards"): 0,
    } == {(row.link, row.name): row.value for row in facts.rows(LinkCounter)}
    assert {("Ethernet7", "input rate"): (12.4, "Gbit/s")} == numbers(text)
    assert {"Ethernet7": ("up", "well"), "Ethernet8": ("down", "bad")} == states(text)


def test_titles_without_a_ruler_whose_words_are_as_many_as_those_of_the_rows() -> None:
    text = (
        "Iface             MTU    RX-OK RX-ERR RX-DRP RX-OVR    TX-OK TX-ERR TX-DRP TX-OVR Flg\n"
        "ib0              2044   884212      0      7 0        900122      0      0      0 BMRU\n"
    )
    counted = {(row.link, row.name): row.value for row in read(text).rows(LinkCounter)}
    assert 7 == counted["ib0", "rx_dropped"]


@pytest.mark.parametrize(
    "text",
    [
        "epoch  step  loss\n1  100  2.31\n2  200  1.97\n",
        "status: One or more devices are faulted.\naction: Make sure they are connected again now.\n",
        "| model | accuracy |\n|-------|----------|\n| a     | 0.91     |\n",
        "size  time(us)  bw(MB/s)\n1  2.36  0.42\n1024  2.76  370.6\n",
    ],
)
def test_tables_of_other_things_are_left_to_other_readers(text: str) -> None:
    facts = read(text)
    assert [] == [*facts.rows(ListedState), *facts.rows(ListedNumber), *facts.rows(LinkCounter)]


def test_damage_is_survived() -> None:
    whole = SONIC.read_text() + ZPOOL.read_text()
    for cut in range(0, len(whole), 41):
        read(whole[:cut])
        read(whole[cut:])
    assert states(whole[-400:]) is not None


def test_supplies_that_are_numbered_are_told_apart() -> None:
    text = (
        "Power                             Actual        Total\n"
        "Supply    Model                   Output     Capacity    Status\n"
        "                                (Watts )     (Watts )\n"
        "-------  -------------------  ----------  ----------  --------------\n"
        "1        NXS-PAC-650W              101 W       650 W     Ok\n"
        "2        NXS-PAC-650W                0 W       650 W     Fail/Shut\n"
    )
    assert {"1": ("Ok", "well"), "2": ("Fail/Shut", "bad")} == states(text)
    assert ((101.0, "W"), (0.0, "W")) == (numbers(text)["1", "Actual Output"], numbers(text)["2", "Actual Output"])
