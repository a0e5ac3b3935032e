"""Output of netperf in its form: streams both ways, datagrams, requests, other units."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.bandwidth import netperf

ENDS = "from 0.0.0.0 (0.0.0.0) port 0 AF_INET to node02 (10.0.0.2) port 0 AF_INET : demo"
STREAM = """\
Recv   Send    Send
Socket Socket  Message  Elapsed
Size   Size    Size     Time     Throughput
bytes  bytes   bytes    secs.    {unit}

131072  16384  16384    10.00    {rate}
"""
DATAGRAMS = """\
Socket  Message  Elapsed      Messages
Size    Size     Time         Okay Errors   Throughput
bytes   bytes    secs            #      #   10^6bits/sec

212992   65507   10.00      178532      0    9355.79
"""
REQUESTS = """\
Local /Remote
Socket Size   Request  Resp.   Elapsed  Trans.
Send   Recv   Size     Size    Time     Rate
bytes  Bytes  bytes    bytes   secs.    per sec

16384  131072 1        1       10.00    {rate}
16384  131072
"""


def read(text: str) -> list[tuple[str, float | None, str | None, str | None]]:
    facts = Facts()
    netperf.read_format(io.BytesIO(text.encode()), "n.txt", facts)
    return [(row.test, row.value, row.unit, row.device) for row in facts.rows(ActiveTest)]


def run(kind: str, rows: str) -> str:
    return f"MIGRATED {kind} TEST {ENDS}\n{rows}\n"


THERE, BACK = "0.0.0.0 to 10.0.0.2", "10.0.0.2 to 0.0.0.0"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (run("TCP STREAM", STREAM.format(unit="10^6bits/sec", rate="9412.34")), ("tcp", 9.41234, "Gb/s", THERE)),
        (run("TCP MAERTS", STREAM.format(unit="10^9bits/sec", rate="93.5")), ("tcp", 93.5, "Gb/s", BACK)),
        (run("TCP STREAM", STREAM.format(unit="MBytes/sec", rate="1000")), ("tcp", 8.388608, "Gb/s", THERE)),
        (run("UDP STREAM", DATAGRAMS), ("udp", 9.35579, "Gb/s", THERE)),
        (
            run("UDP STREAM", DATAGRAMS + "212992           10.00      170000           8908.64\n"),
            ("udp", 8.90864, "Gb/s", THERE),
        ),
        (run("TCP REQUEST/RESPONSE", REQUESTS.format(rate="25000.00")), ("tcp", 40.0, "us", THERE)),
    ],
)
def test_a_run(text: str, wanted: tuple[str, float, str, str]) -> None:
    ((test, value, unit, device),) = read(text)
    assert (wanted[0], *wanted[2:]) == (test, unit, device)
    assert pytest.approx(wanted[1]) == value


@pytest.mark.parametrize("rate", ["0.00", "-", "9..4", "nan"])
def test_no_result_is_none(rate: str) -> None:
    assert [] == read(run("TCP REQUEST/RESPONSE", REQUESTS.format(rate=rate)))


def test_runs_of_several_nodes() -> None:
    text = run("TCP STREAM", STREAM.format(unit="10^6bits/sec", rate="9412.34"))
    facts = Facts()
    lines = "".join(f"{host}: {line}\n" for host in ("node01", "node03") for line in text.splitlines())
    netperf.read_format(io.BytesIO(lines.encode()), "n.txt", facts)
    assert ["node01", "node03"] == [row.host for row in facts.rows(ActiveTest)]
