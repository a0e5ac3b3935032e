"""node_exporter: the answer of a real one (1.5.0), InfiniBand added to it, series of several hosts, broken text."""

import gzip
import io
import json
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


def test_hosts_of_labels_and_the_first_and_last_of_several_answers() -> None:
    series = 'node_network_receive_errs_total{device="eth0",instance="node01:9100"} '
    rows, _ = read(f"{series}1\n{series}4\n{series}7\n{series.replace('node01', 'node02')}3\n")
    assert {("node01", 1), ("node01", 7), ("node02", 3)} == {(row.host, row.value) for row in rows}


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


RANGE = FIXTURES / "network" / "node_exporter_range.json"  # of Prometheus 2.42, its range query over the same exporter


def series_of(data: bytes) -> dict[tuple[str, str], int]:
    """Device and name to the last value, of the devices that are no virtual ones."""
    found = json.loads(data)["data"]["result"]
    metrics = [(one["metric"], int(one["values"][-1][1])) for one in found]
    return {(metric["device"], metric["__name__"]): value for metric, value in metrics if metric["device"] == "eth0"}


def test_answer_of_prometheus_against_its_json() -> None:
    data = RANGE.read_bytes()
    known = recognise(data)
    assert known is not None
    assert "link-metrics" == known.kind
    facts, problems = analyze.read_facts([str(RANGE)])
    rows = facts.rows(LinkCounter)
    assert [] == problems
    assert {"node01"} == {row.host for row in rows}
    assert len(series_of(data)) == len(rows)
    assert sorted(series_of(data).values()) == sorted(row.value for row in rows)


def test_errors_in_an_answer_of_prometheus(tmp_path: Path) -> None:
    top = json.loads(RANGE.read_bytes())
    for one in top["data"]["result"]:
        one["values"][-1][1] = "77" if one["metric"]["__name__"].endswith("receive_errs_total") else "0"
    (tmp_path / "answer.json").write_text(json.dumps(top))
    facts, _ = analyze.read_facts([str(tmp_path / "answer.json")])
    assert {"rx_errors": 77} == {row.name: row.value for row in facts.rows(LinkCounter) if row.value}


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_a_cut_answer_of_prometheus_is_read_to_there(tmp_path: Path, share: float) -> None:
    data = RANGE.read_bytes()
    (tmp_path / "answer.json").write_bytes(data[: int(len(data) * share)])
    facts, problems = analyze.read_facts([str(tmp_path / "answer.json")])
    assert 0 < len(facts.rows(LinkCounter)) <= len(series_of(data))
    assert "is no complete JSON" in problems[0]


@pytest.mark.parametrize(
    "metric",
    ['{"__name__": "node_network_receive_errs_total"}', "[]", '{"__name__": 7, "device": "eth0"}', '{"device": {}}'],
)
def test_hostile_series_are_left_out(metric: str) -> None:
    series = f'{{"metric": {metric}, "values": [[1, "1e999"], [2], 3]}}'
    head = '{"status":"success","data":{"resultType":"matrix","result":['
    known = '{"metric":{"__name__":"node_network_receive_errs_total","device":"eth0"},"value":[1,"4"]}'
    rows, _ = read(f"{head}{series},{known}]}}}}")
    assert [4] == [row.value for row in rows]


def scrape(rates: list[int], *, states: list[int] | None = None, symbols: list[int] | None = None) -> str:
    """The answer of one node with a port for each rate in Gb/s."""
    lines = ['node_uname_info{machine="x86_64",nodename="node07",sysname="Linux"} 1']
    for port, rate in enumerate(rates):
        labels = f'{{device="mlx5_{port}",port="1"}}'
        lines += [f"node_infiniband_rate_bytes_per_second{labels} {rate * 125_000_000:g}"]
        lines += [f"node_infiniband_symbol_error_total{labels} {symbols[port]}"] if symbols else []
        lines += [f"node_infiniband_state_id{labels} {states[port]}"] if states else []
    return "# TYPE node_infiniband_rate_bytes_per_second gauge\n" + "\n".join(lines) + "\n"


def as_answer(texts: list[str]) -> str:
    """What Prometheus answers for these texts, one every 30 s."""
    series: dict[str, list[list[object]]] = {}
    for turn, text in enumerate(texts):
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            if "infiniband" in head and not head.startswith("#"):
                series.setdefault(head, []).append([1_770_000_000 + 30 * turn, value])
    result = []
    for head, values in series.items():
        name, _, labels = head.partition("{")
        words = dict(pair.split("=", 1) for pair in labels.rstrip("}").split(","))
        metric = {"__name__": name, "instance": "node07:9100"} | {key: word.strip('"') for key, word in words.items()}
        result.append({"metric": metric, "values": values})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


EIGHT = [400] * 8


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([scrape(EIGHT, states=[4] * 8)], {}),
        ([scrape(EIGHT)], {}),
        ([scrape([*EIGHT[:5], 200, 400, 400], states=[4] * 8)], {"ib-port-slow": "mlx5_5 port 1 runs at 200 Gb/s"}),
        ([scrape([*EIGHT, 100, 100], states=[4] * 10)], {}),
        ([scrape([*EIGHT, 10])], {}),
        ([scrape([*EIGHT, 10], states=[*[4] * 8, 1])], {"ib-port-not-active": "mlx5_8 port 1 is Down"}),
        ([scrape(EIGHT, symbols=[7] * 8)] * 3, {}),
        (
            [scrape(EIGHT, symbols=[0, 0, 20 * turn, *[0] * 5]) for turn in range(4)],
            {"link-errors-stand-out": "node07: mlx5_2/1: symbol_error 60 (0 in an earlier table)"},
        ),
    ],
)
def test_ports_that_are_slow_down_or_count_more_and_more(
    tmp_path: Path, texts: list[str], wanted: dict[str, str], is_json: bool
) -> None:
    path = tmp_path / "metrics"
    path.write_text(as_answer(texts) if is_json else "".join(texts))
    findings = analyze.analyze([str(path)])[0].findings
    assert list(wanted) == [finding.name for finding in findings]
    assert all(words in finding.message for finding, words in zip(findings, wanted.values(), strict=True))
    assert all(finding.hosts == "node07" for finding in findings)
