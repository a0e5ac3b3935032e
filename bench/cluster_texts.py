"""Endless text of what is kept of nodes and jobs beside their logs, for `format_texts.py`."""

import json
from collections.abc import Callable, Iterator
from itertools import count

from varied import FIXTURES, looped, on_nodes, varied

_BUSY = r"(?<= )[1-9](?P<more>\d{1,2})(?= )"  # whole numbers of a table


def llama_factory() -> Iterator[str]:
    for step in count(1):
        seconds = 2 * step + step * 7919 % 40
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        row = {
            "current_steps": step,
            "total_steps": 9_000_000,
            "loss": 1.5 + step % 97 / 100,
            "lr": 2e-05,
            "epoch": step / 1000,
        }
        yield json.dumps({**row, "percentage": 1.2, "elapsed_time": clock, "remaining_time": "1:00:00"})


def gpustat() -> Iterator[str]:
    """`gpustat --show-power` in a loop."""
    for second in count():
        yield f"node01  Sun Sep  8 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d} 2024  550.54.15"
        for gpu in range(8):
            values = f"{50 + (second + gpu) % 9}'C,  {90 + second * (gpu + 3) % 10} %,  {600 + second * 7 % 90} / 700 W"
            yield f"[{gpu}] NVIDIA H100 80GB HBM3 | {values} | {60000 + second % 999} / 81559 MB | ada({60000 - gpu}M)"


def pods() -> Iterator[str]:
    """`kubectl get mpijobs -o yaml`, one document a job."""
    for number, printed in enumerate(varied((FIXTURES / "captures" / "mpijob.yaml").read_text())):
        yield printed.replace("name: resnet", f"name: resnet-{number}").rstrip("\n")
        yield "---"


CLUSTER: dict[str, Callable[[], Iterator[str]]] = {
    "gpustat text": gpustat,
    "LLaMA-Factory": llama_factory,
    # CPUs
    "sar": looped("captures/sar.txt"),
    "sar of nodes": on_nodes("captures/sar.txt"),
    "mpstat": looped("captures/mpstat.txt"),
    "iostat": looped("captures/iostat.txt"),
    "vmstat": looped("captures/vmstat.txt", _BUSY),
    "vmstat of nodes": on_nodes("captures/vmstat.txt", more=_BUSY),
    # networks and storage
    "iperf3": looped("bandwidth/iperf3_four.txt"),
    "iperf3 of nodes": on_nodes("bandwidth/iperf3_four.txt"),
    "fio": looped("bandwidth/fio_mixed.txt", sizes=True),
    "fio of nodes": on_nodes("bandwidth/fio_mixed.txt", sizes=True),
    # jobs and nodes
    "qstat -f": looped("batch/qstat_f.txt", names="Job Id: "),
    "LSF report": looped("batch/lsf.out", names="Subject: Job "),
    "accelerate env": on_nodes("captures/accelerate_env.txt"),
    "collect_env": on_nodes("captures/collect_env.txt"),
    "kubectl describe node": looped("captures/describe_node.txt", names="gpu-node-"),
    "kubectl get -o yaml": pods,
}
