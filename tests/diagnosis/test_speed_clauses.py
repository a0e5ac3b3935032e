"""The clauses of the report on bus bandwidth and scaling."""

import pytest

from nccl_doctor.diagnosis.job_summary import lines
from nccl_doctor.diagnosis.report import MeasureRow


def _rows(name: str, unit: str, values: dict[str, float]) -> list[MeasureRow]:
    return [MeasureRow(name, value, unit, "run", of) for of, value in values.items()]


@pytest.mark.parametrize(
    ("speeds", "sizes", "clause"),
    [
        ({"all_reduce": 226.04}, {"all_reduce": 8 << 30}, "all_reduce 226 GB/s busbw at 8 GiB"),
        (
            {"all_reduce": 368.4, "all_gather": 351.5, "alltoall": 47.57, "sendrecv": 41.25},
            dict.fromkeys(("all_reduce", "all_gather", "alltoall", "sendrecv"), 8 << 30),
            "all_reduce 368.4, all_gather 351.5, alltoall 47.57, sendrecv 41.25 GB/s busbw at 8 GiB",
        ),
        (
            {"all_reduce": 368.4, "alltoall": 47.57},
            {"all_reduce": 8 << 30, "alltoall": 1 << 30},
            "all_reduce 368.4 GB/s busbw at 8 GiB · alltoall 47.57 GB/s busbw at 1 GiB",
        ),
        ({"": 12.5}, {}, "12.5 GB/s busbw"),
    ],
)
def test_bus_bandwidth(speeds: dict[str, float], sizes: dict[str, float], clause: str) -> None:
    assert [clause] == lines({}, _rows("busbw", "GB/s", speeds) + _rows("busbw_size", "B", sizes))


def test_more_operations_than_a_line_names() -> None:
    (line,) = lines({}, _rows("busbw", "GB/s", {f"op{number}": 10.0 + number for number in range(9)}))

    assert line.endswith("op7 17 GB/s busbw · 1 more operation")


def test_scaling_is_that_of_the_largest_run() -> None:
    rows = _rows("scaling_efficiency", "%", {"8 GPUs": 100.0, "16 GPUs": 97.34, "32 GPUs": 85.12})

    assert ["scaling 85.1 % at 32 GPUs"] == lines({}, rows)
    assert [] == lines({}, rows[:1])


@pytest.mark.parametrize(
    ("busy", "clause"),
    [
        ([99, 98, 3, 100], "3 (node01 GPU 2) to 100"),
        ([2, 1, 97, 3], "1 to 97 (node01 GPU 2)"),
        ([99, 60, 3, 100], "3 (node01 GPU 2) to 100"),
        ([0, 0, 99, 100], "0 to 100"),
        ([99, 3], "3 to 99"),
    ],
)
def test_a_gpu_that_stands_out_is_named(busy: list[float], clause: str) -> None:
    rows = [MeasureRow("gpu_busy", value, "%", "gpu", f"node01 GPU {gpu}") for gpu, value in enumerate(busy)]
    assert [f"GPUs busy {clause} % of the time"] == lines({}, rows)


@pytest.mark.parametrize(("used", "clauses"), [([64, 66], " · mean utilisation 64 to 66 %"), ([4, 9], ""), ([], "")])
def test_gpus_that_are_never_above_80_per_cent_are_not_idle(used: list[float], clauses: str) -> None:
    busy = _rows("gpu_busy", "%", {"GPU 0": 0.0, "GPU 1": 0.0})
    rows = _rows("gpu_utilisation", "%", {f"GPU {gpu}": value for gpu, value in enumerate(used)})
    assert [f"GPUs busy 0 % of the time{clauses}"] == lines({}, busy + rows)
