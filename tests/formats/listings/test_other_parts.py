"""Parts that paragraphs, documents of JSON and answers of `ping` tell of."""

import io
import json

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ListedNumber, ListedState, SchedulerNode
from nccl_doctor.formats.listings import listed_things, slurm_columns

PBS = FIXTURES / "listings" / "pbsnodes.txt"
REDFISH = {
    "@odata.id": "/redfish/v1/Chassis/HGX_Chassis_0/Thermal",
    "Temperatures": [
        {
            "Name": "GPU_1",
            "ReadingCelsius": 44,
            "UpperThresholdCritical": 92,
            "Status": {"State": "Enabled", "Health": "OK"},
        },
        {"Name": "GPU_5", "ReadingCelsius": 95, "Status": {"State": "Enabled", "Health": "Critical"}},
    ],
    "Fans": [{"Name": "FAN_3", "Reading": 880, "ReadingUnits": "RPM", "Status": {"State": "Absent"}}],
}
SMART = {
    "smartctl": {"exit_status": 8},
    "model_name": "NVME-X",
    "smart_status": {"passed": False},
    "nvme_smart_health_information_log": {
        "critical_warning": 4,
        "temperature": 71,
        "percentage_used": 104,
        "media_errors": 12,
    },
}
STORCLI = {
    "Controllers": [
        {
            "Command Status": {"Status": "Success"},
            "Response Data": {
                "Drive /c0/e252/s0": [{"EID:Slt": "252:0", "State": "Failed"}],
                "Drive /c0/e252/s0 State": {"Media Error Count": 3, "Drive Temperature": " 28C (82.40 F)"},
            },
        }
    ]
}
PING = (
    "PING gpu02 (10.0.0.2) 56(84) bytes of data.\n"
    "64 bytes from gpu02 (10.0.0.2): icmp_seq=1 ttl=64 time=0.088 ms\n"
    "64 bytes from gpu02 (10.0.0.2): icmp_seq=4 ttl=64 time=0.142 ms\n\n"
    "--- gpu02 ping statistics ---\n"
    "4 packets transmitted, 2 received, 50% packet loss, time 3061ms\n"
    "rtt min/avg/max/mdev = 0.088/0.115/0.142/0.027 ms\n"
)


def read(text: str) -> Facts:
    facts = Facts()
    listed_things.read_format(io.BytesIO(text.encode()), "told", facts)
    return facts


def states(facts: Facts) -> set[tuple[str, str, str]]:
    return {(row.name, row.state, row.level) for row in facts.rows(ListedState)}


def numbers(facts: Facts) -> dict[tuple[str, str], tuple[float, str]]:
    return {(row.name, row.title): (row.value, row.unit) for row in facts.rows(ListedNumber)}


def test_nodes_of_pbs() -> None:
    (finding,) = analyze.analyze([str(PBS)])[0].findings
    assert "pbsnodes: gpu02 is down,offline (GPU 5 fell off the bus)" == finding.message
    facts = read(PBS.read_text())
    assert ("gpu01", "job-busy", "well") in states(facts)
    assert (8.0, "") == numbers(facts)["gpu01", "GPUs in use"]
    assert {("n7", "down,job-exclusive", "bad")} == states(read("n7                   down,job-exclusive\nn8   well\n"))


def test_answers_of_a_bmc() -> None:
    facts = read(json.dumps(REDFISH))
    assert {("GPU_1", "OK", "well"), ("GPU_5", "Critical", "bad")} == states(facts)
    assert {
        ("GPU_1", "temperature"): (44.0, "°C"),
        ("GPU_5", "temperature"): (95.0, "°C"),
        ("FAN_3", ""): (880.0, "RPM"),
    } == numbers(facts)


def test_disks_in_json() -> None:
    facts = read(json.dumps(SMART, indent=1))
    assert {("NVME-X", "failed", "bad"), ("NVME-X", "critical warning", "bad")} == states(facts)
    assert (12.0, "errors") == numbers(facts)["NVME-X", "media errors"]
    facts = read(json.dumps(STORCLI))
    assert {("252:0", "Failed", "bad")} == states(facts)
    assert (28.0, "°C") == numbers(facts)["Drive /c0/e252/s0 State", "temperature"]


@pytest.mark.parametrize(
    "document", [{"status": "error", "loss": 2.0}, [{"State": "Failed"}], {"a": {"Health": "Critical"}}, 3]
)
def test_documents_of_others_tell_nothing(document: object) -> None:
    assert set() == states(read(json.dumps(document)))


def test_broken_documents_are_survived() -> None:
    for document in (REDFISH, SMART, STORCLI):
        text = json.dumps(document)
        for cut in range(1, len(text), 23):
            assert set() == states(read(text[:cut]))
    assert set() == states(read('{"@odata.id": ' + "[" * 5000))


def test_lost_packets_of_ping_are_a_fault_and_none_are_none() -> None:
    facts = read(PING)
    assert {("gpu02", "losing packets", "bad")} == states(facts)
    assert {
        ("gpu02", "packet loss"): (50.0, "%"),
        ("gpu02", "round trip"): (0.115, "ms"),
        ("gpu02", "longest round trip"): (0.142, "ms"),
    } == numbers(facts)
    assert set() == states(read(PING.replace("50%", "0%").replace(" 2 received", " 4 received")))


def test_rows_of_gpus_without_titles() -> None:
    facts = Facts()
    text = b"gpu01   gpu:h100:8(S:0-1)   gpu:h100:4(IDX:0-3)   mixed\ngpu02   gpu:h100:8(S:0-1)   gpu:h100:0(IDX:N/A)   drained\n"
    slurm_columns.read_format(io.BytesIO(text), "sinfo.txt", facts)
    assert {("gpu01", "MIXED", 8, 4), ("gpu02", "DRAINED", 8, 0)} == {
        (row.host, row.state, row.gpus, row.gpus_used) for row in facts.rows(SchedulerNode)
    }


def test_a_table_between_bars_and_one_between_tabs() -> None:
    bars = (
        "+--------+--------+\n| NEURON | NEURON |\n| DEVICE | MEMORY |\n+--------+--------+\n| 0      | 96 GB  |\n| 1      | 96 GB  |\n"
        "+--------+--------+\n"
    )
    assert {("0", "NEURON MEMORY"): (96.0, "GB"), ("1", "NEURON MEMORY"): (96.0, "GB")} == numbers(read(bars))
    tabs = "Core\tCPU\tAvg_MHz\tBusy%\tPkgWatt\n-\t-\t41\t1.20\t35.5\n0\t0\t34\t1.09\t35.5\n"
    told = numbers(read(tabs))
    assert ((41.0, "MHz"), (35.5, "W"), (34.0, "MHz")) == (
        told["all", "Avg_MHz"],
        told["all", "PkgWatt"],
        told["0", "Avg_MHz"],
    )


def test_a_long_text_is_read_up_to_a_limit_that_is_told() -> None:
    rows = "Fan1             | 30h | ok  |  7.1 | 5040 RPM\n"
    facts = Facts()
    text = rows + "x\n" * 60_000 + rows
    reading = listed_things.read_format(io.BytesIO(text.encode()), "long", facts)
    assert (50_000, 1) == (reading.lines, reading.understood)
    assert reading.note is not None
    assert 1 == len(facts.rows(ListedNumber))
