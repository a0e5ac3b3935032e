"""node_exporter: the answer of a real one (1.5.0), InfiniBand added to it, series of several hosts, broken text."""

import gzip
import io
import re
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.network import node_exporter
from nccl_doctor.formats.registry import recognise

REAL = FIXTURES / "network" / "node_exporter.txt.gz"


def real() -> str:
    return gzip.decompress(REAL.read_bytes()).decode()


def read(text: str) -> tuple[list[LinkCounter], Reading]:
    facts = Facts()
    found = node_exporter.read_format(io.BytesIO(text.encode()), "m.txt", facts)
    return facts.rows(LinkCounter), found


def test_counters_agree_with_the_text() -> None:
    text = real()
    assert "link-metrics" == getattr(recognise(text.encode()[: 1 << 16]), "kind", None)
    rows, reading = read(text)
    printed = dict(re.findall(r'(?m)^node_network_receive_errs_total\{device="(eth\d)"\} (\S+)$', text))
    assert {device: float(value) for device, value in printed.items()} == {
        row.link: float(row.value) for row in rows if row.name == "rx_errors"
    }
    assert text.count("\n") == reading.lines
    assert {"n1"} == {row.host for row in rows}


def infiniband(port: int, symbols: str) -> str:
    return f'node_infiniband_symbol_error_total{{device="mlx5_{port}",port="1"}} {symbols}\n'


def test_the_port_with_errors_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(real() + "".join(infiniband(port, "9.1e+04" if port == 2 else "3") for port in range(4)))
    report, _, _ = analyze.analyze([str(path)])
    assert ["link-errors-stand-out"] == [finding.name for finding in report.findings]
    assert "mlx5_2/1: symbol_error 91000 (the others 3)" in report.findings[0].message


def test_hosts_of_labels_and_the_last_of_several_answers() -> None:
    series = 'node_network_receive_errs_total{device="eth0",instance="node01:9100"} '
    rows, _ = read(f"{series}1\n{series}7\n{series.replace('node01', 'node02')}3\n")
    assert {("node01", 7), ("node02", 3)} == {(row.host, row.value) for row in rows}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e400", "0x7"])
def test_values_that_are_no_count_are_left_out(value: str) -> None:
    assert [] == read(infiniband(0, value))[0]


def test_a_cut_answer_and_bytes_that_are_no_text() -> None:
    text = real()
    assert len(read(text[: len(text) // 2])[0]) <= len(read(text)[0])
    facts = Facts()
    node_exporter.read_format(
        io.BytesIO(b'node_network_receive_errs_total{device="\xff"} 1\n' + b"x" * 3_000_000), "m", facts
    )
    assert 1 == len(facts.rows(LinkCounter))
