"""amd-smi and rocm-smi: the same readings as text, JSON and CSV give the same rows; broken and hostile ones.

Neither program runs without a GPU of AMD. The texts follow amdsmi_cli/amdsmi_logger.py (which turns one dictionary into all three
forms, as `text_of` and `csv_of` do here) and rocm_smi.py.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AmdGpu, GpuThrottle, GpuUse, LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.amd import smi as amd_smi
from nccl_doctor.formats.registry import recognise


def reading(gpu: int, *, wrong: int = 0, replays: int = 0) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "usage": {"gfx_activity": {"value": 90 + gpu, "unit": "%"}, "umc_activity": {"value": 40, "unit": "%"}},
        "power": {"socket_power": {"value": 600 + 2 * gpu, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
        "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}, "max_clk": {"value": 2100, "unit": "MHz"}}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}, "mem": {"value": 60, "unit": "C"}},
        "pcie": {"width": 16, "replay_count": replays},
        "ecc": {"total_correctable_count": 4, "total_uncorrectable_count": wrong},
        "ecc_blocks": {"UMC": {"uncorrectable_count": wrong}, "GFX": {"uncorrectable_count": 0}},
        "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 150000, "unit": "MB"}},
        "throttle": {"hbm_thermal_violation_status": "ACTIVE" if gpu == 1 else "NOT ACTIVE"},
    }


def text_of(record: dict[str, Any]) -> str:
    lines = [f"GPU: {record['gpu']}"]

    def add(tree: dict[str, Any], depth: int) -> None:
        for key, value in tree.items():
            pad = "    " * depth
            if isinstance(value, dict) and "value" not in value:
                lines.append(f"{pad}{key.upper()}:")
                add(value, depth + 1)
            else:
                shown = f"{value['value']} {value['unit']}" if isinstance(value, dict) else value
                lines.append(f"{pad}{key.upper()}: {shown}")

    add({key: value for key, value in record.items() if key != "gpu"}, 1)
    return "\n".join(lines) + "\n\n"


def csv_of(records: list[dict[str, Any]], stamp: int | None = None) -> str:
    titles = (
        "gpu,gfx_activity,umc_activity,socket_power,gfx_0_clk,gfx_0_max_clk,edge,hotspot,mem,width,replay_count,"
        "total_correctable_count,total_uncorrectable_count,total_vram,used_vram,hbm_thermal_violation_status"
    )
    rows = [("timestamp," if stamp else "") + titles]
    for one in records:
        cells = [
            one["gpu"], one["usage"]["gfx_activity"]["value"], 40, one["power"]["socket_power"]["value"], 2100, 2100, "N/A", 71, 60, 16,
            one["pcie"]["replay_count"], 4, one["ecc"]["total_uncorrectable_count"], 196592, 150000,
            one["throttle"]["hbm_thermal_violation_status"],
        ]  # fmt: skip
        rows.append((f"{stamp}," if stamp else "") + ",".join(map(str, cells)))
    return "\r\n".join(rows) + "\r\n"


def read(text: str) -> tuple[Facts, Reading]:
    known = recognise(text.encode()[: 1 << 16])
    assert "amd-smi" == getattr(known, "kind", None)
    facts = Facts()
    return facts, amd_smi.read_format(io.BytesIO(text.encode()), "amd.txt", facts)


RECORDS = [reading(0), reading(1), reading(2, wrong=3), reading(3, replays=5)]


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(text_of, RECORDS)),
        json.dumps(RECORDS, indent=4),
        json.dumps({"gpu_data": RECORDS}, indent=4),
        csv_of(RECORDS),
    ],
    ids=["text", "JSON", "JSON with gpu_data", "CSV"],
)
def test_each_form_gives_the_same_numbers(text: str) -> None:
    facts, _ = read(text)
    uses = sorted(facts.rows(GpuUse), key=lambda row: row.gpu or 0)
    assert [(gpu, 90.0 + gpu, 600.0 + 2 * gpu, 71.0, 196592.0, 150000.0) for gpu in range(4)] == [
        (row.gpu, row.util_mean, row.power_median, row.temperature_max, row.memory_total, row.memory_max)
        for row in uses
    ]
    states = facts.rows(AmdGpu)
    assert [(0, 4), (0, 4), (3, 4), (0, 4)] == [(row.uncorrected, row.corrected) for row in states]
    assert [0, 0, 0, 5] == [row.value for row in facts.rows(LinkCounter)]
    assert [(1, "hw-thermal")] == [(row.gpu, row.reason) for row in facts.rows(GpuThrottle)]
    assert states[2].blocks in ("umc", "")


def test_the_report_names_the_gpu_whose_memory_failed() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "gpu" / "amd_smi_metric.txt")])
    assert ["amd-gpu-uncorrectable"] == [finding.name for finding in report.findings if finding.severity == "error"]


def test_watching_is_a_series() -> None:
    text = csv_of(RECORDS[:2], 1779000000)
    for second in range(1, 60):
        text += csv_of(RECORDS[:2], 1779000000 + second).partition("\r\n")[2]
    facts, found = read(text)
    assert [(60, 59.0)] * 2 == [(row.samples, row.seconds) for row in facts.rows(GpuUse)]
    assert 121 == found.understood == found.lines


def test_monitor_and_rocm_smi() -> None:
    monitor = "GPU  POWER  GPU_T  MEM_T  GFX_CLK  GFX%  MEM%  SINGLE_ECC  DOUBLE_ECC  PCIE_REPLAY\n"
    monitor += "  0  131 W  42 °C  35 °C  132 MHz  0 %  0 %  0  1  0\n"
    facts, _ = read(monitor)
    assert [(0, 1)] == [(row.gpu, row.uncorrected) for row in facts.rows(AmdGpu)]
    card = {
        "GPU use (%)": "97",
        "Average Graphics Package Power (W)": "560.0",
        "VRAM Total Memory (B)": "206158430208",
        "Card Series": "MI300X",
    }
    card |= {"PCI Bus": "0000:C1:00.0"}
    lines = "".join(f"GPU[0]\t\t: {key}: {value}\n" for key, value in card.items())
    rule = "=" * 12
    for text in (json.dumps({"card0": card}), f"{rule} ROCm System Management Interface {rule}\n{lines}"):
        facts, _ = read(text)
        (use,) = facts.rows(GpuUse)
        assert (97.0, 560.0, 196608.0) == (use.util_mean, use.power_median, use.memory_total)
        assert [("0000:c1:00.0", "MI300X")] == [(row.pci, row.model) for row in facts.rows(AmdGpu)]
    csv = "device,GPU use (%),Average Graphics Package Power (W)\ncard0,97,560.0\ncard1,0,90.0\n"
    assert [97.0, 0.0] == [row.util_mean for row in read(csv)[0].rows(GpuUse)]


@pytest.mark.parametrize("cut", [30, 400, 1200, 3000])
def test_cut_files(cut: int) -> None:
    assert len(read("".join(map(text_of, RECORDS))[:cut])[0].rows(AmdGpu)) <= 4
    _, found = read(json.dumps(RECORDS, indent=4)[: cut + 300])
    assert "is not complete JSON" in (found.note or "")


def test_hostile_values_are_left_out() -> None:
    text = text_of(RECORDS[0]).replace("90 %", "9" * 300).replace("600 W", "nan W") + "GPU: 99999\n    USAGE:\n"
    facts, _ = read(text + "        GFX_ACTIVITY: " + "[" * 100_000 + "\n")
    assert len(facts.rows(AmdGpu)) == 1
    assert {None} == {row.power_median for row in facts.rows(GpuUse)}


def test_torn_quoted_and_repeated_rows_of_csv() -> None:
    text = csv_of(RECORDS[:1], 1779000000)
    row = text.splitlines()[1]
    text += (
        f"{row[:20]}\n\n{row}\n" + csv_of(RECORDS[:1], 1779000000) + row.replace("N/A", '"N/A') + "\n" + f"{row}\n" * 3
    )
    facts, _ = read(text)
    assert [(0, 7)] == [(use.gpu, use.samples) for use in facts.rows(GpuUse)]


def test_idle_gpus_without_faults_are_not_blamed(tmp_path: Path) -> None:
    idle = "".join(map(text_of, [reading(gpu) for gpu in (0, 2, 3)])).replace("9", "0")
    (tmp_path / "amd.txt").write_text(idle)
    report, _, _ = analyze.analyze([str(tmp_path / "amd.txt")])
    assert [] == report.findings


def ras_info(errors: dict[tuple[int, str], tuple[int, int]]) -> str:
    """`rocm-smi --showrasinfo` of four GPUs."""
    lines = ["", "============================ ROCm System Management Interface ============================"]
    for gpu in range(4):
        lines += ["", f"GPU[{gpu}]: \tRAS INFO", "         Block       Status    uncorrectable err  correctable err  "]
        for block in ("UMC", "SDMA", "GFX", "MMHUB", "XGMI_WAFL"):
            corrected, uncorrected = errors.get((gpu, block), (0, 0))
            lines.append(f"{block:>14}  {'ENABLED':>11}  {corrected:>17}  {uncorrected:>15}  ")
        lines += ["_" * 80]
    return "\n".join([*lines, "=" * 80, ""])


def test_errors_of_blocks_of_rocm_smi() -> None:
    facts = Facts()
    text = ras_info({(2, "UMC"): (3, 2), (2, "GFX"): (0, 1), (1, "UMC"): (7, 0)})

    amd_smi.read_format(io.BytesIO(text.encode()), "ras.txt", facts)

    assert [(0, 0, 0, ""), (1, 7, 0, ""), (2, 3, 3, "gfx,umc"), (3, 0, 0, "")] == [
        (gpu.gpu, gpu.corrected, gpu.uncorrected, gpu.blocks) for gpu in facts.rows(AmdGpu)
    ]


@pytest.mark.parametrize("readings", [1, 5])
def test_one_reading_shows_a_slow_gpu_among_busy_ones(readings: int, tmp_path: Path) -> None:
    """rocm-smi writes units behind the clocks also in CSV."""
    rows = [
        f"card{gpu},{45 + gpu},{'(700Mhz)' if gpu == 4 else '(1700Mhz)'},{210 if gpu == 4 else 480},{99 if busy else 0}"
        for _ in range(readings)
        for gpu, busy in enumerate([True] * 8 + [False] * 2)
    ]
    head = "device,Temperature (Sensor junction) (C),sclk clock speed:,Average Graphics Package Power (W),GPU use (%)"
    (tmp_path / "rocm.csv").write_text("\n".join([head, *rows, ""]))

    report, _, _ = analyze.analyze([str(tmp_path / "rocm.csv")])

    (finding,) = [one for one in report.findings if one.name == "gpu-straggler"]
    assert ("note", "possible") == (finding.severity, finding.confidence)
    assert finding.message.startswith(
        "GPU 4 stands out among its 7 peers: power 210 W against 480 W, clock 700 MHz against 1700 MHz"
    )


NEWEST = (
    "Device  Node  IDs              Temp        Power     Partitions          SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%  ",
    "              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)",
    "{gpu}       {node}     0x74a1,   2885{gpu}  52.0°C      {power}W    NPS1, SPX, 0  {clock}Mhz  900Mhz  0%   auto  750.0W  71%    99%",
)
ROCM_6_0 = (
    "Device  [Model : Revision]    Temp        Power     Partitions      SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%  ",
    "        Name (20 chars)       (Junction)  (Socket)  (Mem, Compute)                                                 ",
    "{gpu}       [0x74a1 : 0x00]       52.0°C      {power}W    NPS1, SPX       {clock}Mhz  900Mhz  0%   auto  750.0W   71%   99%   \n"
    "        AMD Instinct MI300X                                              ",
)
ROCM_5 = (
    "GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan   Perf  PwrCap  VRAM%  GPU%  ",
    "{gpu}    52.0c           {power}W  {clock}Mhz  900Mhz   0%    auto  750.0W   71%   99%   ",
)


ROCM_2 = (
    "GPU  Temp   AvgPwr   SCLK     MCLK    Fan     Perf    PwrCap  SCLK OD  MCLK OD  GPU%  ",
    "{gpu}    52.0c  {power}W   {clock}Mhz  900Mhz  41.18%  manual  750.0W  0%       0%       99%   ",
)


@pytest.mark.parametrize("gap", ["", " "])
@pytest.mark.parametrize("table", [NEWEST, ROCM_6_0, ROCM_5, ROCM_2])
def test_the_table_of_rocm_smi(table: tuple[str, ...], gap: str) -> None:
    rule = "=" * 46
    rows = [
        table[-1].format(gpu=gpu, node=gpu + 2, power=690.0 - 100 * gpu, clock=2100 - 300 * gpu) for gpu in range(3)
    ]
    lines = [
        "",
        "",
        f"{rule}{gap}ROCm System Management Interface{gap}{rule}",
        *table[:-1],
        "=" * 90,
        *rows,
        "=" * 90,
        "",
    ]

    known = recognise("\n".join(lines).encode())
    facts, _ = read("\n".join(lines))

    assert known is not None
    assert "amd-smi" == known.kind
    assert [(0, 99.0, 690.0, 52.0, 2100.0), (1, 99.0, 590.0, 52.0, 1800.0), (2, 99.0, 490.0, 52.0, 1500.0)] == [
        (use.gpu, use.util_mean, use.power_median, use.temperature_max, use.clock_median) for use in facts.rows(GpuUse)
    ]


def test_the_csv_of_monitor() -> None:
    text = "timestamp,gpu,power_usage,max_power,hotspot_temperature,gfx_clk,gfx,single_bit_ecc,double_bit_ecc,pcie_replay\n"
    text += "1700000000,0,700,750,70,2100,99,4,2,0\n1700000002,0,702,750,70,2100,99,4,3,0\n"

    facts, _ = read(text)

    assert [(701.0, 99.0)] == [(use.power_median, use.util_mean) for use in facts.rows(GpuUse)]
    assert [(4, 3)] == [(gpu.corrected, gpu.uncorrected) for gpu in facts.rows(AmdGpu)]


def test_the_record_of_the_gpu_is_shown_where_all_are_one_line(tmp_path: Path) -> None:
    cards = {
        f"card{gpu}": {
            "Temperature (Sensor junction) (C)": "106.0" if gpu == 3 else f"{60 + gpu}.0",
            "Current Socket Graphics Package Power (W)": "737.0",
            "GPU use (%)": "100",
        }
        for gpu in range(8)
    }
    path = tmp_path / "rocm.json"
    path.write_text(json.dumps(cards))
    report, _, _ = analyze.analyze([str(path)])
    (finding,) = report.findings
    assert "GPU 3" in finding.message
    assert all("106.0" in place.text for place in finding.evidence)


def test_violations_of_monitor_are_reasons_of_a_slow_clock() -> None:
    head = "GPU     PVIOL     TVIOL  PHOT_TVIOL  VR_TVIOL  HBM_TVIOL\n"
    rows = "  0      91 %       1 %         0 %       0 %        0 %\n  1       0 %      40 %         0 %     N/A        0 %\n"
    csv = "gpu,pviol,tviol,phot_tviol,vr_tviol,hbm_tviol\n0,91,1,0,0,0\n1,0,40,0,N/A,0\n"
    for text in (head + rows, csv):
        assert "amd-smi" == getattr(recognise(text.encode()), "kind", None)
        facts, _ = read(text)
        assert [(0, "power-cap"), (1, "hw-thermal")] == [(row.gpu, row.reason) for row in facts.rows(GpuThrottle)]
        assert [1, 1] == [use.samples for use in facts.rows(GpuUse)]


def test_limits_that_hold_nothing_back_are_a_sample() -> None:
    names = ("PROCHOT", "PPT", "SOCKET_THERMAL", "VR_THERMAL", "HBM_THERMAL")
    rows = "".join(f"        {name}_VIOLATION_STATUS: NOT ACTIVE\n" for name in names)
    text = f"GPU: 0\n    THROTTLE:\n        ACCUMULATION_COUNTER: 3808991\n        PPT_ACCUMULATED: 585613\n{rows}\n"
    facts, reading = read(
        text + text.replace("GPU: 0", "GPU: 1").replace("PPT_VIOLATION_STATUS: NOT ", "PPT_VIOLATION_STATUS: ")
    )
    assert [(0, 1), (1, 1)] == [(use.gpu, use.samples) for use in facts.rows(GpuUse)]
    assert [(1, "power-cap")] == [(row.gpu, row.reason) for row in facts.rows(GpuThrottle)]
    assert 10 == reading.understood
