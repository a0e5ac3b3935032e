"""The numbers of GPUs that a report shows: of samples, or of one look at a node."""

from pathlib import Path

from nccl_doctor.app import analyze

TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   41C    P0             98W /  700W |    1583MiB /  81559MiB |     12%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""


def _measures(tmp_path: Path, text: str) -> dict[tuple[str, str], tuple[float, str]]:
    file = tmp_path / "capture.txt"
    file.write_text(text)
    report, _, _ = analyze.analyze([str(file)])
    return {(row.name, row.of): (row.value, row.unit) for row in report.measures}


def test_one_table_of_nvidia_smi_has_its_numbers(tmp_path: Path) -> None:
    found = _measures(tmp_path, TABLE)
    assert {
        ("gpu_utilisation", "GPU 0"): (12.0, "%"), ("gpu_power", "GPU 0"): (98.0, "W"), ("gpu_temperature", "GPU 0"): (41.0, "C"),
        ("gpu_memory_used", "GPU 0"): (1583.0, "MiB"),
    } == found  # fmt: skip


def test_a_single_sample_is_no_share_of_time(tmp_path: Path) -> None:
    found = _measures(tmp_path, "index, utilization.gpu [%], memory.used [MiB]\n0, 7 %, 1474 MiB\n1, 93 %, 1474 MiB\n")
    assert {"gpu_utilisation", "gpu_memory_used"} == {name for name, _ in found}


def test_samples_of_heat_alone_have_a_number(tmp_path: Path) -> None:
    rows = "".join(f"2026/05/07 12:00:{n:02}.000, {g}, {50 + g}\n" for n in range(30) for g in range(2))
    found = _measures(tmp_path, "timestamp, index, temperature.gpu\n" + rows)
    assert {("gpu_temperature", "GPU 0"): (50.0, "C"), ("gpu_temperature", "GPU 1"): (51.0, "C")} == found
