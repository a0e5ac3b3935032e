"""What step lines tell of the use of GPUs beside times and rates becomes measures and a part of the job's line."""

from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.derive.speed.step_numbers import numbers_of

LINES = {  # tool, line -> mfu, tflops, memory
    ("torchtitan", "step: 10  memory: 55.42GiB(69.97%)  tps: 6,812  tflops: 398.20  mfu: 40.11%"): (40.11, 398.2, 55.42),
    ("megatron", "iteration  20/ 500 | throughput per GPU (TFLOP/s/GPU): 420.1 |"): (None, 420.1, None),
    ("nanogpt", "iter 9: loss 3.2100, time 251.31ms, mfu 37.12%"): (37.12, None, None),
    ("nanogpt", "iter 2: loss 3.2100, time 251.31ms, mfu -100.00%"): (None, None, None),
    ("maxtext", "completed step: 9, seconds: 4.210, TFLOP/s/device: 188.201, Tokens/s/device: 1945.2"): (None, 188.201, None),
    ("llm.c", "step   20/18865 | loss 5.1 | 3321.50 ms | 48.3% bf16 MFU | 157850 tok/s"): (48.3, None, None),
    ("own-loop", "step=9 loss=2.31 step_time=0.61s mfu=0.412 max_mem=71.2GB cpu_mem=300.1GB"): (41.2, None, 71.2),
    ("nemo", "global_step: 9 | train_step_timing in s: 2.310 | TFLOPS_per_GPU: 387.2 |"): (None, 387.2, None),
    ("torchtune", "Step 9 | loss:1.2 peak_memory_active:18.4 peak_memory_reserved:21.7"): (None, None, 21.7),
    ("detection", "iter: 19  time: 0.4331  data_time: 0.0123  max_mem: 7168M"): (None, None, 7.0),
    ("deepspeed", "global_step=9, CurrSamplesPerSec=150.1, MemAllocated=11.2GB, MaxMemAllocated=38.46GB"): (None, None, 38.46),
    ("own-loop", "step 9 host memory: 310.2GB 352.1 TFLOPs 0.51 s/it"): (None, 352.1, None),
}  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), LINES.items())
def test_numbers_of_a_line(given: tuple[str, str], expected: tuple[float | None, ...]) -> None:
    found = {name: pytest.approx(value) for name, _, value in numbers_of(given[1], given[0])}
    assert {n: v for n, v in zip(("mfu", "tflops", "gpu_memory"), expected, strict=True) if v is not None} == found


def test_the_report_shows_them_beside_the_throughput(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "[Rank 0] (after 10 iterations) memory (MB) | allocated: 14322.5 | max allocated: 51234.7 | reserved: 61000.0 |"
        " max reserved: 61440.0\n"
        + "".join(
            f" iteration {s:8d}/     100 | consumed samples: {s * 256:12d} | elapsed time per iteration (ms): {812.4 + s % 3} |"
            f" throughput per GPU (TFLOP/s/GPU): {420.1 + s % 3:.1f} | learning rate: 1.0E-04 | global batch size:   256 |\n"
            for s in range(1, 40)
        )
    )
    report, facts, _ = analyze.analyze([str(path)])
    shown = {(name, unit): value for name, unit, value in facts.query("SELECT name, unit, value FROM measure")}
    assert 421.1 == shown["tflops", "TFLOP/s a GPU"]
    assert 60.0 == shown["gpu_memory", "GiB"]
    assert not report.findings
