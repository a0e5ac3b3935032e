"""Telegraf, nvtop, xpu-smi, neuron-monitor, npu-smi, hl-smi and exports of VictoriaMetrics: each device by itself, and broken input."""

import io
import json
from typing import Any

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app.analyze import report_of
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuUse
from nccl_doctor.formats import registry
from nccl_doctor.formats.gpu.collected import accelerators, other_tables

TELEGRAF = "".join(
    f"nvidia_smi,host=hgx-04,index={gpu},name=NVIDIA\\ H100,uuid=GPU-{gpu} "
    f"clocks_current_sm={345 if gpu == 2 else 1980}i,power_draw={180.5 if gpu == 2 else 640.5},utilization_gpu=97i"
    f" {1763625600000000000 + step * 10**10}\n"
    for step in range(20)
    for gpu in range(4)
)
XPU = "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz)\n" + "".join(
    f"08:00:{step:02}.00{device},    {device}, 95.10, {300 if device == 1 else 455}.12, {900 if device == 1 else 1550}\n"
    for step in range(20)
    for device in range(4)
)


def _device(watts: int) -> dict[str, Any]:
    return {
        "device_name": "A100", "gpu_clock": "1410MHz", "temp": "58C", "fan_speed": None, "power_draw": f"{watts}W",
        "gpu_util": "97%",
    }  # fmt: skip


NVTOP = "\n".join(json.dumps([_device(385), _device(285)], indent=1) for _ in range(3))
NEURON = "".join(
    json.dumps(
        {
            "neuron_runtime_data": [
                {
                    "pid": 7,
                    "report": {
                        "neuroncore_counters": {
                            "neuroncores_in_use": {
                                "0": {"neuroncore_utilization": 88.2},
                                "1": {"neuroncore_utilization": 41.0},
                            }
                        }
                    },
                }
            ],
            "instance_info": {"instance_name": "trn1-03"},
        }
    )
    + "\n"
    for _ in range(20)
)
NPU = (FIXTURES / "gpu" / "npu_smi.txt").read_text()
EXPORT = "".join(
    json.dumps(
        {
            "metric": {"__name__": name, "Hostname": "node01", "gpu": str(gpu), "modelName": "H200"},
            "values": [value - 50 * gpu] * 40,
            "timestamps": [1763625600000 + 15000 * step for step in range(40)],
        }
    )
    + "\n"
    for gpu in range(2)
    for name, value in (("DCGM_FI_DEV_GPU_UTIL", 97), ("DCGM_FI_DEV_POWER_USAGE", 650))
)
HL = "index, timestamp, name, utilization.aip [%], power.draw [W]\n" + "".join(
    f"{gpu}, Fri Nov 20 08:00:{step:02} UTC 2026, HL-225, {97 - 60 * gpu} %, {470 - 200 * gpu} W\n"
    for step in range(20)
    for gpu in range(2)
)


def _read(text: str) -> tuple[list[Any], str | None]:
    data = text.encode()
    known = registry.recognise(data)
    assert known is not None
    facts = Facts()
    reading = registry.read_file(known, io.BytesIO(data), "samples", facts)
    return facts.rows(GpuUse), reading.note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TELEGRAF,
            [("hgx-04", gpu, 97.0, 180.5 if gpu == 2 else 640.5, 345.0 if gpu == 2 else 1980.0) for gpu in range(4)],
        ),
        (XPU, [(None, gpu, 95.1, 300.12 if gpu == 1 else 455.12, 900.0 if gpu == 1 else 1550.0) for gpu in range(4)]),
        (NVTOP, [(None, 0, 97.0, 385.0, 1410.0), (None, 1, 97.0, 285.0, 1410.0)]),
        (NEURON, [("trn1-03", 0, 88.2, None, None), ("trn1-03", 1, 41.0, None, None)]),
        (NPU, [(None, 0, 88.0, 305.1, None), (None, 1, 0.0, 120.4, None)]),
        (EXPORT, [("node01", 0, 97.0, 650.0, None), ("node01", 1, 47.0, 600.0, None)]),
        (HL, [(None, 0, 97.0, 470.0, None), (None, 1, 37.0, 270.0, None)]),
    ],
    ids=["telegraf", "xpu-smi", "nvtop", "neuron-monitor", "npu-smi", "victoria-metrics", "hl-smi"],
)
def test_devices(text: str, expected: list[tuple[Any, ...]]) -> None:
    rows, note = _read(text)
    found = [(row.host, row.gpu, row.util_mean, row.power_median, row.clock_median) for row in rows]
    assert note is None
    for want, got in zip(expected, found, strict=True):
        assert want[:2] == got[:2]
        assert [one if one is None else pytest.approx(one, rel=0.01) for one in want[2:]] == list(got[2:])


@pytest.mark.parametrize("text", [TELEGRAF, XPU, NVTOP, NEURON, NPU, EXPORT, HL])
def test_cut_files_are_read_as_far_as_they_go(text: str) -> None:
    for end in range(len(text) * 4 // 5, len(text), len(text) // 9):
        rows, _ = _read(text[:end])
        assert rows


def test_what_is_not_whole_is_told() -> None:
    assert "ends in the middle of the snapshot that starts in line" in str(_read(NVTOP[:-20])[1])
    assert "line 20 is no complete JSON" == _read(NEURON[:-30])[1]
    assert "line 80 is cut or damaged" == _read(TELEGRAF[:-110])[1]
    assert "line 81 is cut or damaged" == _read(XPU[:-20])[1]
    assert "line 4 is no complete JSON" == _read(EXPORT[:-30])[1]


@pytest.mark.parametrize(
    "line",
    [
        "nvidia_smi,index=x utilization_gpu=5i 1\n",
        "nvidia_smi,host=a,index=0 utilization_gpu=\n",
        "Timestamp, DeviceId, GPU Utilization (%)\n1,2\n,x,y\n08:00:00, 99999, 5\n",
        '{"neuron_runtime_data":[[],{"report":7}]}\n{"neuron_runtime_data":null}\n',
        '[{"device_name":1,"gpu_clock":[]}]',
        "+------------------------+\n| npu-smi 24 |\n| 0  x | OK | a b |\n",
    ],
)
def test_hostile_values_give_nothing(line: str) -> None:
    assert [] == _read(line)[0]


def test_npu_smi_calls_an_npu_unhealthy() -> None:
    rows = "".join(
        f"| {number}     910B3               | {health:<13} | 95.1        50                0    / 0             |\n"
        "| 0                         | 0000:C1:00.0  | 0           0    / 0          3398 / 65536         |\n"
        for number, health in enumerate(("OK", "Warning", "Alarm", "UNKNOWN"))
    )
    text = f"+{'-' * 90}+\n| npu-smi 24.1.rc2                 Version: 24.1.rc2   |\n{rows}"
    facts = Facts()
    accelerators.read_format(io.BytesIO(text.encode()), "npu.txt", facts)
    assert [("NPU 0", "pass"), ("NPU 1", "warn"), ("NPU 2", "fail"), ("NPU 3", "other")] == facts.query(
        "SELECT device, outcome FROM active_test ORDER BY device"
    )
    found = [finding for finding in report_of(facts).findings if finding.name == "npu-unhealthy"]
    assert {"error", "warning"} == {finding.severity for finding in found}


def test_tables_drawn_like_that_of_nvidia_smi() -> None:
    text = (FIXTURES / "gpu" / "hl_smi.txt").read_text()
    facts = Facts()
    other_tables.read_format(io.BytesIO(text.encode()), "hl.txt", facts)
    used = {row.gpu: row for row in facts.rows(GpuUse)}
    assert (472.0, 97.0) == (used[0].power_median, used[0].util_mean)
    assert (31.0, 768.0) == (used[1].temperature_max, used[1].memory_max)
    for cut in range(0, len(text), 61):
        other_tables.read_format(io.BytesIO(text[:cut].encode()), "hl.txt", Facts())


def test_the_table_of_xpu_smi() -> None:
    text = (
        "|            Intel XPU-SMI v2.0    Driver: 25.18.1    Level Zero: 1.27.0             |\n"
        "|   0  Intel(R) Data Center GPU Max 1550   Off  | 0000:29:00.0      Off      |      0 |\n"
        "| N/A    41C  312W / 600W               | 70239MiB / 131072MiB       |     93%        Default |\n"
    )
    facts = Facts()
    other_tables.read_format(io.BytesIO(text.encode()), "xpu.txt", facts)
    (row,) = facts.rows(GpuUse)
    assert (312.0, 93.0, 41.0, 70239.0) == (row.power_median, row.util_mean, row.temperature_max, row.memory_max)
