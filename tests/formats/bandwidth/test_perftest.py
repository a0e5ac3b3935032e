"""Output of perftest: bandwidth in Gb/s whatever its unit, the slow card among peers, and nothing made of other tables."""

import io
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.bandwidth import perftest

HEAD = """\
---------------------------------------------------------------------------------------
                    {title} Test
 Dual-port       : OFF\t\tDevice         : {device}
 Number of qps   : 4\t\tTransport type : IB
 Link type       : IB
---------------------------------------------------------------------------------------
"""
GBITS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
MIB = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
LATENCY = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]\n"


def card(device: str, *rates: float) -> str:
    rows = "".join(
        f" {1 << (14 + at)}      5000             {rate + 1:.2f}             {rate:.2f}             0.74\n"
        for at, rate in enumerate(rates)
    )
    return HEAD.format(title="RDMA_Write BW", device=device) + GBITS + rows


def read(text: str) -> list[tuple[str | None, str, str | None, float | None, str | None]]:
    facts = Facts()
    perftest.read_format(io.BytesIO(text.encode()), "p.txt", facts)
    return [(row.host, row.test, row.device, round(row.value or 0, 2), row.unit) for row in facts.rows(ActiveTest)]


def test_the_largest_bandwidth_counts_in_any_unit() -> None:
    assert [(None, "ib_write_bw", "mlx5_2", 391.83, "Gb/s")] == read(card("mlx5_2", 120.5, 391.83, 390.0))
    text = (
        HEAD.format(title="Send Bidirectional BW", device="mlx5_0")
        + MIB
        + " 65536      5000             23000.00           22888.18           0.36\n"
    )
    assert [(None, "ib_send_bw both ways", "mlx5_0", 192.0, "Gb/s")] == read(text)
    text = (
        HEAD.format(title="RDMA_Write Latency", device="mlx5_0")
        + LATENCY
        + " 2       1000          1.01           4.20         1.06                1.07             0.1    1.2\n"
    )
    assert [(None, "ib_write_lat", "mlx5_0", 1.06, "us")] == read(text)


def test_hosts_of_pdsh_are_kept_apart() -> None:
    text = "".join(
        f"node0{node}: {line}\n" for node in (1, 2) for line in card(f"mlx5_{node}", 390.0 + node).splitlines()
    )
    assert [("node01", "mlx5_1", 391.0), ("node02", "mlx5_2", 392.0)] == [
        (row[0], row[2], row[3]) for row in read(text)
    ]


def test_the_slow_card_among_its_peers_is_named(tmp_path: Path) -> None:
    for at in range(4):
        (tmp_path / f"node0{at}.txt").write_text(card("mlx5_0", 98.0 if at == 2 else 391.0 + at))
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert ["rdma-test-slow"] == [finding.name for finding in report.findings]
    assert "node02 mlx5_0" in report.findings[0].message
    report, _, _ = analyze.analyze([str(FIXTURES / "bandwidth" / "ib_write_bw.txt")])
    assert ([], "nothing-found") == (report.findings, report.verdict)
    assert "ib_write_bw: 391.8 Gb/s" in " ".join(report.job_lines)


@pytest.mark.parametrize(
    "text", ["", GBITS, card("mlx5_0")[:300], card("x" * 500, 5.0), card("mlx5_0", 1e300), GBITS + " 1 2 3 4\n"]
)
def test_cut_and_hostile_text(text: str) -> None:
    assert [] == [row for row in read(text) if row[3] is None or row[3] > 1e10]
