"""Output of `nvidia-smi` that lacks a part: tables without a column `index`, error counters alone, one GPU without the head."""

import io
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuCounter, GpuUse
from nccl_doctor.formats import registry
from nccl_doctor.formats.gpu import samples

ERRORS = "ecc.errors.uncorrected.volatile.total, remapped_rows.pending, remapped_rows.failure, retired_pages.pending"


def read(text: str) -> Facts:
    facts = Facts()
    samples.read_format(io.BytesIO(text.encode()), "gpu.csv", facts)
    return facts


@pytest.mark.parametrize("key", ["pci.bus_id", "uuid"])
def test_gpus_without_an_index_are_numbered_as_they_are_listed(key: str) -> None:
    names = [f"00000000:{0x1A + 0x10 * gpu:02X}:00.0" if key == "pci.bus_id" else f"GPU-{9 - gpu}" for gpu in range(8)]
    rows = [
        f"NVIDIA H100 80GB HBM3, {name}, 99, {990 if gpu == 3 else 1755}, 71234, 2026/05/07 12:00:{second:02d}.{gpu:03d}"
        for second in range(30)
        for gpu, name in enumerate(names)
    ]
    head = f"name, {key}, utilization.gpu [%], clocks.current.graphics [MHz], memory.used [MiB], timestamp"

    uses = read("\n".join([head, *rows, ""])).rows(GpuUse)

    assert [(gpu, name) for gpu, name in enumerate(names)] == [(use.gpu, use.uuid) for use in uses]
    assert [3] == [use.gpu for use in uses if (use.clock_median or 0) < 1000]


def test_a_table_of_error_counters_alone_is_recognised(tmp_path: Path) -> None:
    rows = [f"{gpu}, {12 if gpu == 5 else 0}, {'Yes' if gpu == 5 else 'No'}, No, [N/A]" for gpu in range(8)]
    text = "\n".join([f"index, {ERRORS}", *rows, ""])
    known = registry.recognise(text.encode())
    assert known is not None
    assert "gpu-samples" == known.kind

    counters = {(row.gpu, row.name): row.last for row in read(text).rows(GpuCounter)}
    (tmp_path / "gpu.csv").write_text(text)
    report, _, _ = analyze.analyze([str(tmp_path / "gpu.csv")])

    assert (12, 1, 0) == (
        counters[5, "ecc-uncorrected"],
        counters[5, "remap-pending"],
        counters.get((4, "ecc-uncorrected"), 0),
    )
    assert {"gpu-memory-errors", "gpu-page-retirement-pending"} == {finding.name for finding in report.findings}
    assert all("GPU 5" in finding.message for finding in report.findings)


def test_the_part_of_one_gpu_without_the_head_is_read(tmp_path: Path) -> None:
    part = tmp_path / "ecc.txt"
    part.write_text(
        "nvidia-smi -q -d ROW_REMAPPER\n"
        "GPU 00000000:1B:00.0\n"
        "    Remapped Rows\n"
        "        Correctable Error                 : 0\n"
        "        Uncorrectable Error               : 2\n"
        "        Pending                           : Yes\n"
        "        Remapping Failure Occurred        : No\n"
    )
    report = analyze.analyze([str(part)])[0]
    assert ["gpu-row-remap-pending-now"] == [one.name for one in report.findings if one.severity == "error"]


PART = """\
    Fabric
        State                                          : Completed
        Status                                         : {status}
        CliqueId                                       : 0
        Health
            Summary                                    : {summary}
            Bandwidth                                  : {bandwidth}
--
"""


def fabric_of(tmp_path: Path, *parts: dict[str, str]) -> list[tuple[object, ...]]:
    path = tmp_path / "part.txt"
    path.write_text(
        "".join(
            PART.format(**{"status": "Success", "summary": "Healthy", "bandwidth": "Full", **part}) for part in parts
        )
    )
    facts, _ = analyze.read_facts([str(path)])
    return facts.query("SELECT gpu, fabric_state, fabric_status, fabric_health FROM node_gpu ORDER BY gpu")


def test_parts_that_grep_left_are_numbered_as_they_come(tmp_path: Path) -> None:
    rows = fabric_of(tmp_path, {}, {"summary": "Unhealthy"}, {"summary": "Unhealthy", "bandwidth": "Degraded"})
    health = ["", "unhealthy", "degraded bandwidth"]
    assert [(gpu, "completed", 0, text) for gpu, text in enumerate(health)] == rows


@pytest.mark.parametrize(
    ("status", "code"), [("Success", 0), ("Insufficient Resources", 23), ("Unheard Of", 999), ("N/A", None)]
)
def test_what_ended_the_registration_with_the_fabric(status: str, code: int | None, tmp_path: Path) -> None:
    assert [(0, "completed", code, "")] == fabric_of(tmp_path, {"status": status})


@pytest.mark.parametrize("width", [34, 55])  # of the titles: of drivers before 575, and of newer ones
def test_values_are_read_however_far_they_stand_from_their_titles(width: int, tmp_path: Path) -> None:
    rows = [
        ("Driver Version", "590.10", 0), ("GPU 00000000:1B:00.0", None, 0), ("Product Name", "NVIDIA H200", 4),
        ("ECC Errors", None, 4), ("Volatile", None, 8), ("DRAM Uncorrectable", "7", 12),
        ("Fabric", None, 4), ("State", "In Progress", 8),
    ]  # fmt: skip
    text = "".join(
        f"{' ' * deep + title:<{width + 8}}: {value}\n" if value else f"{' ' * deep}{title}\n"
        for title, value, deep in rows
    )
    (tmp_path / "q.txt").write_text(f"==============NVSMI LOG==============\n\n{text}")
    facts, _ = analyze.read_facts([str(tmp_path / "q.txt")])
    assert [("NVIDIA H200", "in-progress")] == facts.query("SELECT model, fabric_state FROM node_gpu")
    assert [(7,)] == facts.query("SELECT uncorrected FROM gpu_health")


QUERY = """\
==============NVSMI LOG==============

Timestamp                                              : Wed Nov 25 21:{minute}:00 2026
Driver Version                                         : 610.57.04 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]
CUDA Version                                           : 13.3 [Deprecated; will be removed in CUDA 14.0. Use CUDA UMD Version instead]
KMD Version                                            : 610.57.04
CUDA UMD Version                                       : 13.3

Attached GPUs                                          : 2
GPU 00000000:1B:00.0
    Product Name                                       : NVIDIA H200
    Utilization
        GPU                                            : {first} %
GPU 00000000:2A:00.0
    Product Name                                       : NVIDIA H200
    Utilization
        GPU                                            : {second} %

"""


@pytest.mark.parametrize("before", ["", "Starting the job\n"])
def test_of_several_outputs_the_gpus_count_once(before: str, tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    outputs = [QUERY.format(minute=53 + n, first=10 + n, second=20 + n) for n in range(3)]
    path.write_text(before + "".join(outputs) + outputs[0][: outputs[0].rindex("GPU 0000")])  # the last one is cut
    facts, _ = analyze.read_facts([str(path)])
    last = 2 if not before else 0  # a log is searched for the first one
    assert [("610.57.04", 13030, 2)] == facts.query("SELECT driver, cuda, gpus FROM node_driver")
    assert [(0, 10 + last), (1, 20 + last)] == facts.query("SELECT gpu, util FROM node_gpu ORDER BY gpu")


def test_what_follows_the_head_line_is_read_without_it(tmp_path: Path) -> None:
    part = tmp_path / "remap.txt"
    part.write_text(
        "Timestamp                                 : Wed Mar  4 12:00:00 2026\n"
        "Driver Version                            : 570.86.15\n"
        "Attached GPUs                             : 1\n"
        "GPU 00000000:1B:00.0\n"
        "    Product Name                          : NVIDIA H100 80GB HBM3\n"
        "    [...]\n"
        "    Remapped Rows\n"
        "        Pending                           : Yes\n"
    )
    report, _, _ = analyze.analyze([str(part)])
    assert ["gpu-row-remap-pending-now"] == [one.name for one in report.findings if one.severity == "error"]
    assert "570.86.15" == report.job["driver"]
