"""Tables of monitors of people's own: a time, what each row calls its GPU, and any columns."""

import io
import json

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.gpu import samples
from nccl_doctor.formats.registry import recognise


def _read(text: str) -> Facts:
    facts = Facts()
    samples.read_format(io.BytesIO(text.encode()), "gpu.csv", facts)
    return facts


def _is_samples(text: str) -> bool:
    found = recognise(text.encode())
    return found is not None and found.kind == "gpu-samples"


USE = (
    "SELECT gpu, samples, util_mean, power_median, temperature_max, memory_max, memory_total FROM gpu_use ORDER BY gpu"
)


@pytest.mark.parametrize("device", ["card{}", "cuda:{}", "GPU {}", "nvidia{}"])
def test_devices_by_name(device: str) -> None:
    rows = "".join(
        f"{1754586662 + 5 * n},{device.format(gpu)},{40 + gpu},5811{n},206158430208,{(4 + gpu) << 30}\n"
        for n in range(20)
        for gpu in range(2)
    )
    text = "timestamp,device,gpu_use_percent,gfx_activity,vram_total_bytes,vram_used_bytes\n" + rows
    assert _is_samples(text)
    assert [(0, 20, 40.0, None, None, 4096.0, 196608.0), (1, 20, 41.0, None, None, 5120.0, 196608.0)] == _read(
        text
    ).query(USE)


def test_rows_without_the_last_column_and_rows_of_no_device() -> None:
    rows = "".join(
        f"{1754586662 + 5 * n},card{gpu},{140 + gpu}.0\n" if gpu < 2 else f"{1754586662 + 5 * n},\n"
        for n in range(20)
        for gpu in range(3)
    )
    text = "timestamp,device,power_watts,power_cap_watts\n" + rows
    assert _is_samples(text)
    assert [(0, 20, None, 140.0, None, None, None), (1, 20, None, 141.0, None, None, None)] == _read(text).query(USE)


def test_columns_that_nothing_knows_beside_those_of_a_gpu() -> None:
    rows = "".join(f"2026-05-07 12:00:{n:02},0,step-{n},61.5,{90 + n % 2},hot\n" for n in range(20))
    text = "timestamp,gpu_id,phase,temp_edge_celsius,util_percent,note\n" + rows
    assert _is_samples(text)
    assert [(0, 20, 90.5)] == [row[:3] for row in _read(text).query(USE)]


def test_devices_that_are_no_gpus() -> None:
    assert not _is_samples("timestamp,device,temperature,power\n1754586662,fridge,4,120\n1754586667,fridge,4,121\n")


def test_events_of_weights_and_biases() -> None:
    lines = [
        {
            "system.gpu.0.gpu": 4.0 + n % 4, "system.gpu.0.temp": 66.1, "system.gpu.0.powerWatts": 30.9, "system.gpu.1.gpu": 0.0,
            "system.gpu.1.powerWatts": 9.0, "system.cpu": 70.5, "_wandb": True, "_timestamp": 1582070941 + 30 * n, "_runtime": 28 + 30 * n,
        }
        for n in range(24)
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert _is_samples(text)
    (row,) = _read(text).query("SELECT gpu, samples, power_median, temperature_max FROM gpu_use")
    assert (0, 23, 31.0, 66.1) == row  # the job begins with the first sample of 5 % or more


def test_tables_of_processes_are_not_of_samples() -> None:
    text = (
        "timestamp, gpu_name, gpu_bus_id, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "2026/05/07 12:00:00.000, NVIDIA H100, 00000000:18:00.0, GPU-1b6e2d1c-1111-2222-3333-444455556666, 4711, python, 61234 MiB\n"
    )
    facts = _read(text)
    assert [(4711, 61234.0)] == facts.query("SELECT pid, memory FROM gpu_process")
    assert not _is_samples("timestamp,gpu,note\n1754586662,0,hot\n")
