"""The real pynvml against a library of ours: values, failures, old drivers, lost GPUs, hangs."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.nvml import SOURCE, NvmlStub

from nccl_doctor.node.gpu import nvml, nvml_inventory

STATE: dict[str, object] = {
    "count": 2, "driver": "550.54.15", "nvml": "12.550.54.15", "cuda": 12040, "confidential": 0,
    "model": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "1.uuid": "GPU-2", "vbios": "96.00.74.00.01", "1.minor": 1, "minor": 0,
    "util": 97, "util_memory": 41, "memory_total": 85520809984, "memory_used": 1073741824, "memory_reserved": 573571072,
    "bar1_total": 137438953472, "power_mw": 412345, "power_limit_mw": 700000, "power_default_mw": 650000,
    "clock_sm": 1755, "clock_memory": 2619, "clock_sm_max": 1980, "clock_memory_max": 2620, "clock_app": 1590,
    "clock_app_default": 1600, "reasons": 0x4, "pstate": 0, "temperature": 61, "slowdown": 89, "margin": 26,
    "pcie_width": 8, "pcie_width_max": 16, "pcie_generation": 4, "pcie_generation_max": 5, "mig": 0, "mig_pending": 1,
    "compute_mode": 3, "persistence": 1, "ecc": 1, "ecc_pending": 0, "corrected": 11, "uncorrected": 12,
    "corrected_total": 13, "uncorrected_total": 14, "sram_uncorrected": 15, "sram_uncorrected_total": 16,
    "sram_threshold": 1, "remapped_corrected": 17, "remapped_uncorrected": 18, "remap_pending": 1, "remap_failed": 0,
    "remap_banks_none": 2, "inforom": 1, "pcie_replay": 19, "links": 18, "nvlink5": 0, "fabric_state": 3,
    "fabric_status": 0, "fabric_health": 0x2A9, "cluster": 7, "clique": 3, "level": 50, "0.p2p0.1": 1, "0.p2p2.1": 5,
    "field.91": 18, "field.90": 26562, "field.164": 26562, "field.164.4": 20000, "field.161": 2, "field.162": 1, "field.163": 0,
    "field.82": 55, "field.230": 1, "field.270": 4_000_000, "field.271": 0, "tasks": "4242:512", "graphics": "77:16",
    "shares": "4242:88,4242:90,77:4000000000",
}  # fmt: skip
EXPECTED = {
    "model": "NVIDIA H100 80GB HBM3", "vbios": "96.00.74.00.01", "util": 97, "util_memory": 41, "memory_total": 81559.0,
    "memory_used": 1024.0, "memory_reserved": 547.0, "bar1_total": 131072.0, "power": 412.345, "power_limit": 700.0,
    "power_default": 650.0, "clock_sm": 1755, "clock_memory": 2619, "clock_sm_max": 1980, "clock_memory_max": 2620,
    "clock_app": 1590, "clock_app_default": 1600, "reasons": 4, "pstate": 0, "temperature": 61, "temperature_memory": 55,
    "slowdown": 89, "margin": 26, "pcie_width": 8, "pcie_width_max": 16, "pcie_generation": 4, "pcie_generation_max": 5,
    "mig": 0, "mig_pending": 1, "compute_mode": 3, "persistence": 1, "ecc": 1, "ecc_pending": 0, "corrected": 11,
    "uncorrected": 12, "corrected_total": 13, "uncorrected_total": 14, "sram_uncorrected": 15,
    "sram_uncorrected_total": 16, "sram_threshold": 1, "remapped_corrected": 17, "remapped_uncorrected": 18,
    "remap_pending": 1, "remap_failed": 0, "remap_banks_none": 2, "inforom": 1, "recovery": 1, "links": 18,
    "links_active": 17, "fabric_state": "completed", "fabric_status": 0, "clique": 3,
    "fabric_health": "degraded bandwidth, wrong system GUID",
}  # fmt: skip
ASK = "from nccl_doctor.node.gpu import nvml_inventory as nvml_ask; answer = nvml_ask.ask()"


def run(stub: NvmlStub, state: Mapping[str, object], code: str, folder: Path) -> Any:
    """What a program says in `answer`, run with the library on its path."""
    program = f"import json\n{code}\nprint(json.dumps(answer))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=stub.environ(state, folder / "state"), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def ask(stub: NvmlStub, folder: Path, **changes: object) -> dict[str, Any]:
    answer: dict[str, Any] = run(stub, {**STATE, **changes}, ASK, folder)
    return answer


def test_every_value_arrives(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    found = ask(nvml_stub, tmp_path)
    assert [] == found["errors"]
    assert {"driver": "550.54.15", "nvml": "12.550.54.15", "cuda": 12040, "confidential": 0, "ready": None} == found[
        "system"
    ]
    first, second = found["gpus"]
    assert EXPECTED == {name: first.get(name) for name in EXPECTED}
    assert ("0000:18:00.0", "GPU-1", 0) == (first["pci"], first["uuid"], first["minor"])
    assert ("0000:28:00.0", "GPU-2", 1) == (second["pci"], second["uuid"], second["minor"])
    assert "07" + "00" * 15 == first["cluster"]
    assert {"link": 4, "active": 1, "speed": 20.0} == first["nvlinks"][4]
    assert {"link": 5, "active": 0, "speed": None} == first["nvlinks"][5]
    assert [(4242, "C", 512 << 20), (77, "G", 16 << 20)] == [
        (one["pid"], one["kind"], one["memory"]) for one in first["tasks"]
    ]
    assert {
        "clock-thermal-us": 4_000_000, "clock-brake-us": 0, "pcie-replay": 19, "ecc-corrected": 11,
        "nvlink-replay": 36, "nvlink-recovery": 18, "nvlink-crc": 0,
    } == first["counters"]  # fmt: skip
    assert [[0, 1, 50, 1, 5]] == found["pairs"]
    assert found["calls"] < 80 * len(found["gpus"])


def test_an_older_structure_is_used_where_the_newest_is_refused(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    assert "completed" == ask(nvml_stub, tmp_path, fabric_v2_only=1)["gpus"][0]["fabric_state"]


def test_an_old_driver_lacks_functions_and_that_is_no_error(old_nvml_stub: NvmlStub, tmp_path: Path) -> None:
    state = {
        **STATE,
        "fields": 200,
        "model": "Tesla V100-SXM2-32GB",
        "cuda": 11040,
        "field.29": 3,
        "field.30": 1,
        "field.31": 1,
        "links": 6,
    }
    state = {key: value for key, value in state.items() if key not in ("remapped_uncorrected", "field.91")}
    found = run(old_nvml_stub, state, ASK, tmp_path)
    assert [] == found["errors"]
    gpu = found["gpus"][0]
    assert (61, 4, 11040) == (gpu["temperature"], gpu["reasons"], found["system"]["cuda"])
    assert (81559.0, None) == (gpu["memory_total"], gpu.get("memory_used"))
    assert (3, 1, 1) == (gpu["retired_single"], gpu["retired_double"], gpu["retired_pending"])
    assert (6, 5) == (gpu["links"], gpu["links_active"])
    assert [4242, 77] == [task["pid"] for task in gpu["tasks"]]
    for name in ("margin", "remap_pending", "fabric_state", "sram_threshold", "recovery", "mig_now"):
        assert gpu.get(name) is None, name
    assert (15, 16) == (gpu["sram_uncorrected"], gpu["sram_uncorrected_total"])


def test_what_a_gpu_does_not_support_is_none(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    found = run(nvml_stub, {"count": 1, "model": "NVIDIA T4"}, ASK, tmp_path)
    assert [] == found["errors"]
    given = {name for name, value in found["gpus"][0].items() if value not in (None, [], {})}
    assert {"gpu", "pci", "model", "memory_total", "memory_used", "memory_reserved", "inforom"} - {"gpu"} <= given
    assert not given & {"ecc", "power", "fabric_state", "links", "remap_pending", "temperature"}


@pytest.mark.parametrize(
    ("code", "name"),
    [(4, "no-permission"), (9, "driver-not-loaded"), (18, "library-driver-mismatch"), (999, "unknown")],
)
def test_a_library_that_does_not_start_says_why(nvml_stub: NvmlStub, tmp_path: Path, code: int, name: str) -> None:
    found = ask(nvml_stub, tmp_path, **{"nvmlInit.rc": code})
    assert [(None, "nvmlInit", code)] == [(e["gpu"], e["call"], e["code"]) for e in found["errors"]]
    assert ([], name) == (found["gpus"], nvml.CODES[code])


def test_one_lost_gpu_leaves_the_others(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    found = ask(nvml_stub, tmp_path, count=4, **{"2.all.rc": 15})
    assert [(2, 15)] == [(error["gpu"], error["code"]) for error in found["errors"]]
    assert [81559.0, 81559.0, None, 81559.0] == [gpu.get("memory_total") for gpu in found["gpus"]]
    assert [[0, 1], [0, 3], [1, 3]] == [pair[:2] for pair in found["pairs"]]


def test_a_gpu_lost_half_way_keeps_what_was_heard(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    found = ask(nvml_stub, tmp_path, **{"1.nvmlDeviceGetPowerUsage.rc": 15})
    assert "NVIDIA H100 80GB HBM3" == found["gpus"][1]["model"]
    assert [(1, "nvmlDeviceGetPowerUsage", "0000:28:00.0")] == [
        (e["gpu"], e["call"], e["pci"]) for e in found["errors"]
    ]


def test_a_corrupt_inforom_is_seen(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    assert [0, 1] == [gpu["inforom"] for gpu in ask(nvml_stub, tmp_path, **{"0.inforom": 0})["gpus"]]


def test_no_library_and_a_library_of_size_zero(tmp_path: Path) -> None:
    nothing = ask(NvmlStub(tmp_path), tmp_path)
    (tmp_path / nvml.LIBRARY).touch()
    empty = ask(NvmlStub(tmp_path), tmp_path)
    assert [12, 12] == [found["errors"][0]["code"] for found in (nothing, empty)]
    assert "No such file" in nothing["errors"][0]["text"]
    assert "file too short" in empty["errors"][0]["text"]


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetUtilizationRates"])
def test_a_driver_that_hangs_is_given_up(nvml_stub: NvmlStub, tmp_path: Path, function: str) -> None:
    code = """
from nccl_doctor.app import preflight
from nccl_doctor.node.runtime import expectations
from nccl_doctor.node.runtime.root import Root
facts = preflight.look(Root(), ["gpu", "pci"], 1.0)
expectations.add(facts, {})
report = preflight.report_of(facts)
answer = [report.fitness, [f.name for f in report.findings], facts.query("SELECT outcome FROM collection WHERE source = 'gpu'")[0][0]]
"""
    fitness, findings, outcome = run(nvml_stub, {**STATE, f"{function}.hang": 1}, code, tmp_path)
    assert ("unknown", "hung") == (fitness, outcome)
    assert "gpu-driver-hung" in findings


def test_the_command_gives_up_in_time(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    environ = nvml_stub.environ({**STATE, "nvmlInit.hang": 1}, tmp_path / "state")
    done = subprocess.run(
        [sys.executable, "-m", "nccl_doctor", "preflight", "--timeout=1", "--only=gpu", "--state=-"], env=environ,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 3 == done.returncode, done.stdout + done.stderr
    assert "unknown" in done.stdout.lower()


SAMPLE = """
from nccl_doctor.node.gpu.nvml import Nvml
nvml = Nvml()
sample = nvml.sample()
calls = nvml.calls
again = nvml.sample()
fewer = nvml.calls - calls
nvml.close()
answer = [[one._asdict() for one in sample], calls, fewer, [[one.power_limit, [task.pid for task in one.tasks]] for one in again]]
"""


def test_samples_are_cheap(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    sample, calls, fewer, again = run(nvml_stub, STATE, SAMPLE, tmp_path)
    assert calls <= 2 * 17 + 2
    assert fewer <= calls - 2 * 2  # power limit and graphics processes are kept for a while, and still shown
    assert [[one["power_limit"], [task[0] for task in one["tasks"]]] for one in sample] == again
    gpu = sample[0]
    assert (97, 41, 1 << 30, 85520809984, 412.345, 700.0, 61, 1755, 2619, 4) == tuple(
        gpu[name] for name in ("util", "util_memory", "memory_used", "memory_total", "power", "power_limit", "temperature",
                               "clock_sm", "clock_memory", "reasons")
    )  # fmt: skip
    assert [[4242, "C", 512 << 20, 90], [77, "G", 16 << 20, None]] == gpu["tasks"]  # no share can be above 100 %
    assert gpu["nvlink_tx"] is None  # a rate needs two samples
    assert [None, None] == [one["error"] for one in sample]


KEEP = """
import pathlib, tempfile
from nccl_doctor.node.gpu import devices as gpu
from nccl_doctor.node.runtime.recording import Recorder
from nccl_doctor.node.runtime.root import Root
with tempfile.TemporaryDirectory() as folder:
    live = list(gpu.collect(Recorder(pathlib.Path(folder))))
    kept = list(gpu.collect(Root(folder)))
answer = [len(live), [type(row).__name__ for row in live] == [type(row).__name__ for row in kept],
          [row for row, other in zip(live, kept) if row[:-1] != other[:-1]]]
"""


def test_what_was_asked_can_be_kept_and_read_again(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    count, same, different = run(nvml_stub, STATE, KEEP, tmp_path)
    assert count > 40
    assert (True, []) == (same, different)


def test_eight_gpus_are_one_quick_session(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    found = ask(nvml_stub, tmp_path, count=8)
    assert (8, 28) == (len(found["gpus"]), len(found["pairs"]))
    assert found["calls"] < 8 * 80 + 28 * 3


RATES = """
import os, pathlib, time
from nccl_doctor.node.gpu.nvml import Nvml
file = pathlib.Path(os.environ["NVML_STUB_FILE"])
base = file.read_text()
def put(n):
    file.write_text(f"field.197={n}\\nfield.198={2 * n}\\nfield.138={3 * n}\\nfield.139={4 * n}\\n" + base)
nvml = Nvml()
put(1000)
one = nvml.sample()[0]
time.sleep(0.5)
put(11000)
two = nvml.sample()[0]
passed = two.moment - one.moment
answer = [round(rate * passed) for rate in (two.pcie_tx, two.pcie_rx, two.nvlink_tx, two.nvlink_rx)]
"""


def test_rates_come_from_counters(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    assert [10_000, 20_000, 30_000 * 1024, 40_000 * 1024] == run(nvml_stub, STATE, RATES, tmp_path)


def test_a_lost_gpu_does_not_end_the_samples(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    code = "from nccl_doctor.node.gpu.nvml import Nvml\nanswer = [one._asdict() for one in Nvml().sample()]"
    found = run(nvml_stub, {**STATE, "0.nvmlDeviceGetPowerUsage.rc": 15}, code, tmp_path)
    assert ["gpu-lost", None] == [one["error"] for one in found]
    assert [None, 97] == [one["util"] for one in found]


def test_the_stub_has_every_function_that_we_call() -> None:
    text = SOURCE.read_text()
    used = {name for path in (nvml.__file__, nvml_inventory.__file__) for name in _names(Path(path).read_text())}
    renamed = {"nvmlInit": "nvmlInitWithFlags", "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2"}
    missing = [name for name in used if renamed.get(name, name) not in text]
    assert [] == missing
    assert len(used) > 40


def _names(text: str) -> set[str]:
    return set(re.findall(r'"(nvml[A-Z]\w+)"', text)) - {"nvmlMemory_v2"}


def test_health_mask_of_the_fabric() -> None:
    assert [] == nvml_inventory.complaints(0)
    assert [] == nvml_inventory.complaints(0b10_10_10_10 | 1 << 8)
    assert ["route unhealthy", "no partition"] == nvml_inventory.complaints(0b01 << 4 | 4 << 8)
