"""Output of iperf3: recorded over the loopback of one machine, and other hosts in its form."""

import io
import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.bandwidth import iperf3

LOOPBACK = "127.0.0.1 to 127.0.0.1"


def read(text: bytes | str) -> list[ActiveTest]:
    facts = Facts()
    iperf3.read_format(io.BytesIO(text.encode() if isinstance(text, str) else text), "i.txt", facts)
    return facts.rows(ActiveTest)


def run(peer: str, rate: str, retried: int = 0) -> str:
    return (
        f"Connecting to host {peer}, port 5201\n"
        f"[  5] local 10.0.0.1 port 40000 connected to {peer} port 5201\n"
        "[ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n"
        f"[  5]   0.00-1.00   sec  1.09 GBytes  {rate}   12    382 KBytes\n"
        "- - - - - - - - - - - - - - - - - - - - - - - - -\n"
        f"[  5]   0.00-10.00  sec  1.09 GBytes  {rate}  {retried}             sender\n"
        f"[  5]   0.00-10.04  sec  1.09 GBytes  {rate}                  receiver\n"
        "\niperf Done.\n"
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("iperf3_one.txt", [("tcp", 13.6, "4 segments sent again")]),
        ("iperf3_four.txt", [("tcp", 13.0, "3 segments sent again")]),  # all streams together
        ("iperf3_udp.txt", [("udp", 0.0972, "2.8 % lost")]),
        ("iperf3_bidir.txt", [("tcp", 6.21, "8 segments sent again"), ("tcp", 5.89, "6 segments sent again")]),
    ],
)
def test_recorded_runs(name: str, wanted: list[tuple[str, float, str]]) -> None:
    rows = read((FIXTURES / "bandwidth" / name).read_bytes())
    assert wanted == [(row.test, pytest.approx(row.value), row.text) for row in rows]
    assert {LOOPBACK} == {row.device for row in rows}


def test_recorded_json_agrees_with_its_own_bytes() -> None:
    text = (FIXTURES / "bandwidth" / "iperf3_reverse.json").read_text()
    got = json.loads(text)["end"]["sum_received"]
    (row,) = read(text)
    assert pytest.approx(8 * got["bytes"] / got["seconds"] / 1e9) == row.value
    assert "8 segments sent again" == row.text
    assert 2 == len(read(text + "\n" + text))


def test_the_sender_of_a_reverse_run_is_the_other_host() -> None:
    one = json.loads((FIXTURES / "bandwidth" / "iperf3_reverse.json").read_text())
    one["start"]["connected"][0] |= {"local_host": "10.0.0.1", "remote_host": "10.0.0.2"}
    assert ["10.0.0.2 to 10.0.0.1"] == [row.device for row in read(json.dumps(one))]


def test_the_slow_way_is_named(tmp_path: Path) -> None:
    rates = {
        "10.0.0.2": "94.0 Gbits/sec",
        "10.0.0.3": "9.38 Gbits/sec",
        "10.0.0.4": "93.2 Gbits/sec",
        "10.0.0.5": "93.9 Gbits/sec",
    }
    text = "".join(run(peer, rate, 812) for peer, rate in rates.items())
    (tmp_path / "runs.txt").write_text(text)
    report, _, _ = analyze.analyze([str(tmp_path / "runs.txt")])
    assert ["tcp-test-slow"] == [finding.name for finding in report.findings]
    assert "10.0.0.1 to 10.0.0.3: 9.38 Gb/s over TCP (812 segments sent again)" in report.findings[0].message


def test_hosts_of_pdsh_are_kept_apart() -> None:
    text = "".join(
        f"node0{node}: {line}\n" for node in (1, 2) for line in run("10.0.0.9", f"{node} Gbits/sec").splitlines()
    )
    assert [("node01", 1.0), ("node02", 2.0)] == [(row.host, row.value) for row in read(text)]


@pytest.mark.parametrize("size", [0, 30, 120, 400, 600])
def test_text_that_breaks_off(size: int) -> None:
    assert {94.0} >= {row.value for row in read(run("10.0.0.2", "94.0 Gbits/sec")[:size])}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"start": 1, "end": []}',
        '{"start": {"connected": [3]}, "end": {"sum_received": {"bits_per_second": 1e9}}}',
        '{"start": {"connected": [{"local_host": "a", "remote_host": "b"}]}, "end": {"sum_received": {"bits_per_second": "x"}}}',
        '{"start": {"connected": []}, "error": "unable to connect to server: Connection refused", "end": {}}',
        "[" * 5_000,
    ],
)
def test_odd_json_says_nothing(text: str) -> None:
    assert [] == read(text)


def test_hosts_beyond_the_most_leave_the_others_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf3, "_HOSTS", 1)
    lines = [
        f"{host}: {line}\n"
        for rate in (1, 2)
        for host in ("node01", "node02")
        for line in run("10.0.0.9", f"{rate} Gbits/sec").splitlines()
    ]
    assert [("node01", 1.0), ("node01", 2.0)] == [(row.host, row.value) for row in read("".join(lines))]


STOPPED = """[  5] local 10.0.0.2 port 5201 connected to 10.0.0.1 port 40000
[ ID] Interval           Transfer     Bandwidth
[  5]   0.00-1.00   sec   400 MBytes  3.36 Gbits/sec
[  5]   1.00-2.00   sec   380 MBytes  3.18 Gbits/sec
[  5]   2.00-2.04   sec  15.3 MBytes  3.27 Gbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
"""


def test_a_run_without_an_end_has_the_rate_of_its_intervals() -> None:
    unsummed = STOPPED + "[  5]   0.00-2.04   sec  0.00 Bytes  0.00 bits/sec                  sender\n"
    for text in (STOPPED, unsummed):
        assert [("tcp", 3.27)] == [(row.test, round(row.value or 0, 2)) for row in read(text)]
    streams = STOPPED + STOPPED.partition("\n")[2].replace("[  5]", "[  7]")
    assert [6.54] == [round(row.value or 0, 2) for row in read(streams)]
    summed = streams + STOPPED.partition("\n")[2].replace("[  5]", "[SUM]").replace("3.", "6.")
    assert [6.27] == [round(row.value or 0, 2) for row in read(summed)]


def test_streams_of_iperf_2(tmp_path: Path) -> None:
    (tmp_path / "iperf.txt").write_text(
        "[  4] local 10.0.0.1 port 40002 connected with 10.0.0.2 port 5001\n"
        "[  3] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001\n"
        "[ ID] Interval       Transfer     Bandwidth\n"
        "[  3]  0.0-10.0 sec  55.0 GBytes  47.2 Gbits/sec\n"
        "[  4]  0.0-10.0 sec  54.0 GBytes  46.4 Gbits/sec\n"
        "[SUM]  0.0-10.0 sec   109 GBytes  93.6 Gbits/sec\n"
    )
    report, facts, _ = analyze.analyze([str(tmp_path / "iperf.txt")])
    assert ["tcp-test"] == [one.kind for one in report.inputs]
    assert [("10.0.0.1 to 10.0.0.2", 93.6)] == facts.query("SELECT device, value FROM active_test")
