"""Metrics that Prometheus collected give what the same samples give as CSV; GPUs without a name are told apart."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest, LinkCounter
from nccl_doctor.facts.tables.gpu import GpuCounter, GpuThrottle, GpuUse
from nccl_doctor.formats.gpu import prometheus
from nccl_doctor.formats.gpu.sweeps import Sweeps
from nccl_doctor.formats.registry import recognise

FIXTURES = FIXTURES / "gpu"
METRICS = {
    "utilization.gpu": "DCGM_FI_DEV_GPU_UTIL",
    "memory.used": "DCGM_FI_DEV_FB_USED",
    "power.draw": "DCGM_FI_DEV_POWER_USAGE",
    "power.limit": "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "clocks.current.sm": "DCGM_FI_DEV_SM_CLOCK",
    "temperature.gpu": "DCGM_FI_DEV_GPU_TEMP",
    "clocks_event_reasons.active": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
}


def table() -> pandas.DataFrame:
    frame = pandas.read_csv(FIXTURES / "hot_gpu2.csv", skipinitialspace=True)
    frame.columns = [name.split(" [")[0] for name in frame.columns]
    return frame


def answer() -> dict[str, Any]:
    """What Prometheus would answer for the samples of hot_gpu2.csv."""
    frame = table()
    series = []
    for index, rows in frame.groupby("index"):
        times = [int(time.timestamp()) for time in pandas.to_datetime(rows["timestamp"])]
        for column, name in METRICS.items():
            texts = rows[column].astype(str).str.split(" ").str[0]
            values = [str(int(text, 16) if text.startswith("0x") else text) for text in texts]
            metric = {"__name__": name, "gpu": str(index), "UUID": f"GPU-{index}", "instance": "node01:9400"}
            series.append(
                {"metric": metric, "values": [[time, value] for time, value in zip(times, values, strict=True)]}
            )
    return {"status": "success", "data": {"resultType": "matrix", "result": series}}


@pytest.mark.parametrize(("code", "severity"), [(0, None), (13, "warning"), (79, "error")])
def test_the_number_of_an_xid_is_a_fault_of_its_gpu(code: int, severity: str | None) -> None:
    lines = (
        f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="node01"}} {value}\n'
        for gpu in range(4)
        for name, value in (("DCGM_FI_DEV_GPU_UTIL", 97), ("DCGM_FI_DEV_XID_ERRORS", code if gpu == 2 else 0))
    )
    facts = Facts()
    prometheus.read_format(
        io.BytesIO(("# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" + "".join(lines)).encode()), "dcgm.txt", facts
    )
    found = [(one.severity, one.evidence[0].line) for one in analyze.report_of(facts).findings]
    assert ([(severity, 7)] if severity else []) == found


GROWING = {  # name of a metric that grows on one GPU -> finding, and its value in each answer
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("gpu-thermal-throttle", 2_000_000_000),
    "DCGM_FI_DEV_POWER_VIOLATION": ("gpu-power-capped-alone", 2_000_000_000),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("gpu-page-retirement-pending", 1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("gpu-page-retirement-pending", 1),
}


@pytest.mark.parametrize("metric", GROWING)
@pytest.mark.parametrize("is_json", [False, True])
def test_a_counter_that_grows_on_one_gpu_names_it(tmp_path: Path, metric: str, is_json: bool) -> None:
    name, step = GROWING[metric]
    path = tmp_path / "metrics"
    for growth, wanted in ((step, [name]), (0, [])):
        values = [
            [7 * 10**9 * (step > 1) + (growth * turn if gpu == 2 else 0) for turn in range(30)] for gpu in range(4)
        ]
        if is_json:
            series = [
                {
                    "metric": {"__name__": metric, "gpu": str(gpu), "UUID": f"GPU-{gpu}", "Hostname": "node01"},
                    "values": [[1_770_000_000 + 15 * turn, str(value)] for turn, value in enumerate(of_gpu)],
                }
                for gpu, of_gpu in enumerate(values)
            ]
            path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
        else:
            path.write_text(
                "".join(
                    f"# TYPE {metric} counter\n"
                    + "".join(
                        f'{metric}{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="node01"}} {values[gpu][turn]}\n'
                        for gpu in range(4)
                    )
                    for turn in range(30)
                )
            )
        findings = analyze.analyze([str(path)])[0].findings
        assert wanted == [finding.name for finding in findings]
        assert all(finding.hosts == "node01" and "GPU 2" in finding.message for finding in findings)
        assert all("GPU-2" in place.text for finding in findings for place in finding.evidence)


def uses(path: Path) -> list[tuple[object, ...]]:
    facts, _ = analyze.read_facts([str(path)])
    names = (
        "gpu",
        "samples",
        "busy_share",
        "util_mean",
        "power_median",
        "clock_median",
        "temperature_max",
        "memory_max",
    )
    return sorted(
        tuple(round(value, 6) if isinstance(value := getattr(row, name), float) else value for name in names)
        for row in facts.rows(GpuUse)
    )


def test_answer_of_prometheus_equals_the_table(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(answer()))
    assert uses(FIXTURES / "hot_gpu2.csv") == uses(path)
    report, facts, problems = analyze.analyze([str(path)])
    assert [] == problems
    assert {"gpu-thermal-throttle", "gpu-straggler"} == {finding.name for finding in report.findings}
    assert {"node01"} == {row.host for row in facts.rows(GpuUse)}


def test_text_of_the_exporter() -> None:
    text = (FIXTURES / "dcgm_exporter.txt").read_text()
    facts = Facts()
    reading = prometheus.read_format(io.BytesIO(text.encode() * 3), "metrics", facts)
    rows = facts.rows(GpuUse)
    first = table().groupby("index").first()
    assert ([0, 1, 2, 3], {3}) == ([row.gpu for row in rows], {row.samples for row in rows})
    assert (72, None) == (reading.understood, reading.note)
    assert [float(str(text).split()[0]) for text in first["utilization.gpu"]] == [row.util_mean for row in rows]
    assert {("node01", "NVIDIA H100 80GB HBM3", None)} == {(row.host, row.model, row.first) for row in rows}


@given(st.data())
def test_cut_and_changed_answers_are_reported(data: st.DataObject) -> None:
    whole = json.dumps({"status": "success", "data": {"result": answer()["data"]["result"][:2]}}).encode()[:3000]
    cut = data.draw(st.integers(0, len(whole)))
    facts = Facts()
    reading = prometheus.read_format(io.BytesIO(whole[:cut]), "metrics", facts)
    assert (0, True) == (reading.understood, bool(reading.note) or not whole[:cut].strip())


@pytest.mark.parametrize(
    "text",
    [
        b'{"status":"success","data":{"result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"0"},"values":[[1,"NaN"],[1],"x",null]}]}}',
        b'{"status":"success","data":{"result":[null,{"metric":[]},{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL"},"value":[1,"1"]}]}}',
        b'DCGM_FI_DEV_GPU_UTIL{gpu="0",GPU_I_ID="3"} 97\nDCGM_FI_DEV_GPU_UTIL{gpu="99999999"} 97\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} inf\n',
    ],
)
def test_hostile_metrics(text: bytes) -> None:
    facts = Facts()
    known = recognise(text)
    assert known is not None
    assert "gpu-metrics" == known.kind
    prometheus.read_format(io.BytesIO(text), "metrics", facts)
    assert [] == facts.rows(GpuUse)


def test_rows_without_an_index_are_told_apart_by_time(tmp_path: Path) -> None:
    lines = (FIXTURES / "hot_gpu2.csv").read_text().splitlines()
    path = tmp_path / "gpu.csv"
    path.write_text("\n".join(line.replace(line.split(", ")[1] + ", ", "", 1) for line in lines) + "\n")
    assert uses(FIXTURES / "hot_gpu2.csv") == uses(path)


@given(st.integers(1, 16), st.floats(0.2, 60), st.floats(0, 0.01), st.integers(3, 20), st.integers(1, 97))
def test_places_in_a_sweep(gpus: int, period: float, step: float, sweeps: int, cut: int) -> None:
    times = np.array([sweep * period + gpu * step for sweep in range(sweeps) for gpu in range(gpus)])
    wanted = [gpu for _ in range(sweeps) for gpu in range(gpus)]
    reader = Sweeps()
    cut = max(cut, 3 * gpus)
    found = [*reader.places(times[:cut]).tolist(), *reader.places(times[cut:]).tolist()]
    assert wanted == found


@pytest.mark.parametrize("times", [[], [1.0], [3.0, 2.0, 1.0], [float("nan")] * 9, [0.0, 1.0, 1.1, 2.9, 3.0, 4.7, 6.1]])
def test_times_without_a_pattern_are_of_one_gpu(times: list[float]) -> None:
    assert [0] * len(times) == Sweeps().places(np.array(times)).tolist()


def exported(metric: str, rows: dict[int, float], **labels: str) -> str:
    """Lines of DCGM's exporter: a value for each GPU."""
    beside = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f"# TYPE {metric} gauge\n" + "".join(
        f'{metric}{{gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100",Hostname="node04"{beside}}} {value:g}\n'
        for gpu, value in rows.items()
    )


EVENTS = (
    exported("DCGM_FI_DEV_GPU_UTIL", dict.fromkeys(range(4), 98))
    + exported("DCGM_EXP_XID_ERRORS_COUNT", {0: 0, 2: 0, 3: 0}, window_size_in_ms="300000")
    + exported("DCGM_EXP_XID_ERRORS_COUNT", {1: 2}, window_size_in_ms="300000", xid="79")
    + exported("DCGM_EXP_XID_ERRORS_COUNT", {1: 1}, window_size_in_ms="300000", xid="31")
    + exported("DCGM_EXP_CLOCK_EVENTS_COUNT", dict.fromkeys(range(4), 9), clock_event="power_cap")
    + exported("DCGM_EXP_CLOCK_EVENTS_COUNT", {2: 7}, clock_event="hw_thermal")
    + exported("DCGM_EXP_CLOCK_EVENTS_COUNT", {0: 0}, clock_event="sw_thermal")
    + exported("DCGM_EXP_CLOCK_EVENTS_TOTAL", {3: 40}, clock_event="sw_thermal")
    + exported("DCGM_EXP_GPU_HEALTH_STATUS", {0: 0, 1: 0, 2: 0, 3: 20}, health_watch="NVLINK", health_error_code="DCGM_FR_NVLINK_DOWN")
    + exported("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", {0: 0, 1: 0, 2: 5000, 3: 1})
)  # fmt: skip


def as_answer(text: str) -> str:
    """The same values as the answer to a query of one moment."""
    series = []
    for line in text.splitlines():
        if not line.startswith("#"):
            head, _, value = line.rpartition("} ")
            metric, _, labels = head.partition("{")
            named = dict(pair.split("=") for pair in labels.split(","))
            series.append({"metric": {"__name__": metric} | {key: text.strip('"') for key, text in named.items()},
                           "value": [1.7e9, value]})  # fmt: skip
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}})


@pytest.mark.parametrize("text", [EVENTS, as_answer(EVENTS)], ids=["text", "answer"])
def test_events_that_the_exporter_counts_name_their_gpu(text: str) -> None:
    known = recognise(text.encode())
    assert known is not None
    assert "gpu-metrics" == known.kind
    facts = Facts()
    prometheus.read_format(io.BytesIO(text.encode()), "m.txt", facts)
    reasons = {(row.gpu, row.reason) for row in facts.rows(GpuThrottle)}
    assert {(gpu, "power-cap") for gpu in range(4)} | {(2, "hw-thermal")} == reasons
    counters = {(row.gpu, row.name): row.last for row in facts.rows(GpuCounter)}
    assert {(1, "xid-79"): 2, (1, "xid-31"): 1, (3, "thermal-events"): 40} == counters
    assert [(3, "fail")] == [
        (int(row.device or -1), row.outcome) for row in facts.rows(ActiveTest) if row.outcome != "pass"
    ]
    assert {0: 0, 1: 0, 2: 5000, 3: 1} == {int(row.link[4:]): row.value for row in facts.rows(LinkCounter)}


def test_labels_of_hostile_metrics_are_left_out() -> None:
    for labels in ({"xid": "9" * 5000}, {"xid": "-1"}, {"xid": "x"}, {"xid": "²"}, {"clock_event": "other"}, {}):
        text = exported("DCGM_EXP_XID_ERRORS_COUNT", {0: 1e300}, **labels)
        facts = Facts()
        prometheus.read_format(io.BytesIO(text.encode()), "m.txt", facts)
        assert [] == facts.rows(GpuCounter)


def test_nvidia_gpu_exporter_names_its_gpus_once_and_counts_xids() -> None:
    # nvidia_gpu_exporter 1.4 and newer: samples have a UUID only, `nvidia_smi_gpu_info` the index and the model
    lines = [
        f'nvidia_smi_{name}{{uuid="{uuid}"}} {value}\n'
        for uuid in ("aaaa-1", "bbbb-2")
        for name, value in (("utilization_gpu_ratio", 0.5), ("temperature_gpu", 61))
    ]
    lines += [
        f'nvidia_smi_gpu_info{{index="{index}",name="NVIDIA H200",uuid="{uuid}"}} 1\n'
        for index, uuid in ((4, "aaaa-1"), (5, "bbbb-2"))
    ]
    lines.append('nvidia_smi_xid_errors_total{uuid="bbbb-2",xid="79"} 2\n')
    facts = Facts()
    prometheus.read_format(io.BytesIO("".join(lines).encode()), "metrics.txt", facts)
    assert [(4, "NVIDIA H200", 50.0), (5, "NVIDIA H200", 50.0)] == facts.query(
        "SELECT gpu, model, util_mean FROM gpu_use"
    )
    assert [(5, "xid-79", 2.0)] == facts.query("SELECT gpu, name, last FROM gpu_counter")


def test_the_names_of_the_first_exporter() -> None:
    labels = '{gpu="3",uuid="GPU-3",device="nvidia3",Hostname="node01"}'
    text = f"dcgm_sm_clock{labels} 1410\ndcgm_gpu_temp{labels} 54\ndcgm_power_usage{labels} 301\ndcgm_gpu_utilization{labels} 97\n"
    assert "gpu-metrics" == getattr(recognise(text.encode()), "kind", None)
    facts = Facts()
    prometheus.read_format(io.BytesIO(text.encode()), "metrics.txt", facts)
    (use,) = facts.rows(GpuUse)
    assert ("node01", 3, 97.0, 301.0, 54.0, 1410.0) == (
        use.host, use.gpu, use.util_mean, use.power_median, use.temperature_max, use.clock_median,
    )  # fmt: skip
