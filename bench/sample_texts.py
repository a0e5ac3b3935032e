"""Endless text of samples, benchmarks and listings that people keep beside a job, for `format_texts.py`."""

from collections.abc import Callable, Iterator
from itertools import count

from varied import looped, on_nodes


def panel_csv() -> Iterator[str]:
    """What Grafana gives of a panel of 64 GPUs, a row each 15 s."""
    yield ",".join(['"Time"', *(f'"node{gpu // 8 + 1:02d} gpu {gpu % 8}"' for gpu in range(64))])
    for row in count():
        seconds = 15 * row
        clock = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        values = (f"{90 + (row * 7919 + gpu * 31) % 100 / 10:.1f}" for gpu in range(64))
        yield f"2026-05-{1 + seconds // 86_400 % 28:02d} {clock},{','.join(values)}"


def metrics_csv() -> Iterator[str]:
    """`metrics.csv` of Lightning's CSVLogger."""
    yield "epoch,step,train_loss,lr-AdamW,iter_time"
    for step in count(1):
        yield f"{step // 1000},{step},{2 + 1 / step + step * 7919 % 97 / 1000:.6f},2e-05,0.{400 + step * 31 % 40}"


def own_loop() -> Iterator[str]:
    """A loop of anybody's own that prints a step, a loss and a rate."""
    for step in count(1):
        yield f"step {step} finished, loss was {2 + 1 / step:.4f}, took {400 + step * 7919 % 40} ms, {4000 + step * 31 % 97} samples/s"


SAMPLES: dict[str, Callable[[], Iterator[str]]] = {
    "Grafana CSV": panel_csv,
    "CSVLogger": metrics_csv,
    "own loop": own_loop,
    # GPUs and their hosts
    "nvidia-smi": on_nodes("gpu/smi_table.txt"),
    "nvidia-smi -L": on_nodes("gpu/nvidia_smi_L.txt"),
    "dcgmi stats": on_nodes("gpu/dcgmi_stats.txt"),
    "npu-smi": on_nodes("gpu/npu_smi.txt"),
    "host commands": on_nodes("captures/host_commands.txt"),
    # benchmarks
    "gpu_burn": looped("benchmarks/gpu_burn.txt"),
    "HPL": looped("benchmarks/hpl.txt", sizes=True),
    "OSU": looped("benchmarks/osu_bw.txt", sizes=True),
    "IMB": looped("benchmarks/imb.txt", sizes=True),
    "IOR": looped("benchmarks/ior.txt", sizes=True),
    "ds_bench": looped("benchmarks/ds_bench.txt", sizes=True),
    "vLLM serving": looped("benchmarks/serving.txt", sizes=True),
    # schedulers
    "sinfo": looped("slurm/sinfo_Nl.txt", names="node"),
    "squeue": looped("slurm/squeue.txt"),
}
