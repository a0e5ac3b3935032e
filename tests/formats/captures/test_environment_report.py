"""Reports of an environment: three that were printed here on a machine without GPUs, and others in their form."""

import io
import json
import re

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, Package, SoftwareVersion
from nccl_doctor.formats.captures import environment_report

COLLECT_ENV = """Collecting environment information...
PyTorch version: {torch}
Is debug build: False
CUDA used to build PyTorch: {cuda}
ROCM used to build PyTorch: {rocm}

GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Is CUDA available: {available}
CUDA runtime version: 12.4.131
GPU models and configuration: {gpus}
Nvidia driver version: {driver}

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.21.5
[conda] torch                     2.5.1+cu124              pypi_0    pypi
"""
WELL = {
    "torch": "2.5.1+cu124", "cuda": "12.4", "rocm": "N/A", "available": "True", "driver": "550.90.07",
    "gpus": "\nGPU 0: NVIDIA H100 80GB HBM3\nGPU 1: NVIDIA H100 80GB HBM3",
}  # fmt: skip
DS_REPORT = """DeepSpeed general environment info:
torch version .................... 2.3.0+cu121
deepspeed info ................... 0.14.2, unknown, unknown
torch cuda version ............... 12.1
torch hip version ................ None
nvcc version ..................... 12.1
shared memory (/dev/shm) size .... {shm}
"""
SGLANG = """Python: 3.12.3 (main, Jan 22 2026, 20:57:42) [GCC 13.3.0]
CUDA available: True
GPU 0,1,2,3: NVIDIA H800
GPU 0,1,2,3 Compute Capability: 9.0
NVCC: Cuda compilation tools, release 12.9, V12.9.86
CUDA Driver Version: 580.105.08
PyTorch: 2.9.1+cu129
numpy: 1.26.4
flash_attn: 2.7.0
ulimit soft: 1048576
"""


def read(text: str) -> Facts:
    facts = Facts()
    environment_report.read_format(io.BytesIO(text.encode()), "report.txt", facts)
    return facts


def versions(facts: Facts) -> dict[str, tuple[str | None, str | None]]:
    return {row.name: (row.version, row.cuda) for row in facts.rows(SoftwareVersion)}


def gpus(facts: Facts) -> list[dict[str, int]]:
    return [json.loads(row.fields) for row in facts.rows(Message)]


def found(text: str, tmp_path) -> list[tuple[str, str]]:  # type: ignore[no-untyped-def]
    path = tmp_path / "report.txt"
    path.write_text(text)
    report, _, _ = analyze.analyze([str(path)])
    assert {"environment-report"} == {one.kind for one in report.inputs}
    return [(finding.name, finding.severity) for finding in report.findings]


@pytest.mark.parametrize("name", ["collect_env.txt", "accelerate_env.txt", "transformers_env.txt"])
def test_recorded_reports_agree_with_their_text(name: str) -> None:
    text = (FIXTURES / "captures" / name).read_text()
    facts = read(text)
    (torch,) = re.findall(r"(?m)^(?:- )?PyTorch version(?: \(accelerator\?\))?: (\S+)", text)
    assert (torch, "none") == versions(facts)["torch"]
    assert [{"available": 0, "gpus": 0, "built": 0}] == gpus(facts)
    kept = {row.name: row.version for row in facts.rows(Package)}
    assert torch == kept["torch"]
    assert dict(re.findall(r"\[pip3\] (pytorch-lightning)==(\S+)", text)).items() <= kept.items()


def test_versions_of_collect_env() -> None:
    facts = read(COLLECT_ENV.format(**WELL))
    wanted = {
        "torch": ("2.5.1+cu124", "12.4"), "nvidia-driver": ("550.90.07", None), "nvcc": ("12.4.131", None), "gcc": ("11.4.0", None),
    }  # fmt: skip
    assert wanted == versions(facts)
    assert {("nvidia-nccl-cu12", "2.21.5"), ("torch", "2.5.1+cu124")} == {
        (row.name, row.version) for row in facts.rows(Package)
    }
    assert [{"available": 1, "gpus": 2, "built": 1}] == gpus(facts)


def test_titles_that_stand_in_a_column() -> None:
    text = re.sub(r"(?m)^([A-Z][\w ()/]+): ", lambda title: f"{title[1]:<29}: ", COLLECT_ENV.format(**WELL))
    assert "Is CUDA available            : True" in text
    assert versions(read(COLLECT_ENV.format(**WELL))) == versions(read(text))


def test_a_healthy_report_has_no_finding(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert [] == found(COLLECT_ENV.format(**WELL), tmp_path)
    assert [] == found(SGLANG, tmp_path)
    assert [] == found(DS_REPORT.format(shm="503.61 GB"), tmp_path)


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"driver": "470.82.01", "available": "False"}, ("driver-older-than-cuda", "error")),
        ({"available": "False"}, ("no-gpu-visible", "error")),
    ],
)
def test_what_is_wrong_comes_first(changed, finding, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert finding == found(COLLECT_ENV.format(**WELL | changed), tmp_path)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"driver": "470.82.01"},  # PyTorch can use the GPUs: a compatibility package is there
        {"available": "False", "gpus": "Could not collect", "driver": "Could not collect"},  # a login node
        {"torch": "2.5.1+rocm6.2", "cuda": "N/A", "rocm": "6.2.41133", "available": "False"},
    ],
)
def test_what_is_no_fault(changed, tmp_path) -> None:  # type: ignore[no-untyped-def]
    names = [name for name, severity in found(COLLECT_ENV.format(**WELL | changed), tmp_path) if severity != "note"]
    assert [] == names


def test_reports_of_other_programs(tmp_path) -> None:  # type: ignore[no-untyped-def]
    facts = read(SGLANG)
    assert (("2.9.1+cu129", "12.9"), ("580.105.08", None)) == tuple(
        versions(facts)[name] for name in ("torch", "nvidia-driver")
    )
    assert "2.7.0" == {row.name: row.version for row in facts.rows(Package)}["flash-attn"]
    assert [{"available": 1, "gpus": 4, "built": 1}] == gpus(facts)
    facts = read(DS_REPORT.format(shm="503.61 GB"))
    assert {"torch": ("2.3.0+cu121", "12.1"), "deepspeed": ("0.14.2", None), "nvcc": ("12.1", None)} == versions(facts)
    assert [("dev-shm-default-size", "warning")] == found(DS_REPORT.format(shm="64.00 MB"), tmp_path)


def test_hosts_are_kept_apart() -> None:
    old = COLLECT_ENV.format(**WELL | {"driver": "470.82.01"})
    lines = [
        f"node0{host}: {line}"
        for host, text in ((1, COLLECT_ENV.format(**WELL)), (2, old))
        for line in text.splitlines()
    ]
    drivers = {
        row.host: row.version
        for row in read("\n".join(lines) + "\n").rows(SoftwareVersion)
        if row.name == "nvidia-driver"
    }
    assert {"node01": "550.90.07", "node02": "470.82.01"} == drivers


def test_the_last_of_several_reports_counts() -> None:
    facts = read(COLLECT_ENV.format(**WELL | {"driver": "470.82.01"}) + COLLECT_ENV.format(**WELL))
    assert ("550.90.07", None) == versions(facts)["nvidia-driver"]
    assert 2 == gpus(facts)[0]["gpus"]


def test_a_line_of_a_program_is_no_report() -> None:
    facts = read("PyTorch version: 2.5.1\nthe tokenizer of this version is new\n")
    assert not facts.rows(SoftwareVersion)
    assert not facts.rows(Message)


def test_the_number_that_cuda_has_for_itself_is_no_driver() -> None:
    """nvbandwidth prints `CUDA Driver Version: 12040`."""
    assert "nvidia-driver" not in versions(read(SGLANG.replace("580.105.08", "12040")))
