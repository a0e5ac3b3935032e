"""Throughput and memory of `analyze` on files of each format that is read line by line.

    python bench/formats.py [--size MIB] [--only NAME]

Every file repeats what one program prints, with numbers that change. The time of an empty run is taken off.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from logs import run

ANALYZE = (sys.executable, "-m", "nccl_doctor", "analyze", "--fail-on", "never")
LEAST = 40  # MB/s, what each format has to reach


def nccl_tests() -> Iterator[str]:
    """Runs on eight nodes, one after the other, each beside the lines of NCCL that such a log mostly holds."""
    while True:
        yield from _nccl_test()


def _nccl_test() -> Iterator[str]:
    yield "# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1"
    yield "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    for rank in range(64):
        for channel in range(32):
            peers = f"{rank}[{rank % 8}] -> {(rank + 1) % 64}[{(rank + 1) % 8}]"
            yield f"node{rank // 8:02d}:410{rank}:420{rank} [{rank % 8}] NCCL INFO Channel {channel:02d}/0 : {peers} via P2P/CUMEM"
    size = 8
    while size <= 1 << 33:
        time = 30 + size / 200_000
        cells = f"{time:8.1f} {size / time / 1e3:7.2f} {size / time / 1e3 * 1.75:7.2f}      0  "
        yield f"{size:12d}  {size // 4:12d}     float     sum      -1 {cells}{cells}"
        size *= 2
    yield "# Out of bounds values : 0 OK"
    yield "# Avg bus bandwidth    : 120.5"


def steps(line: str) -> Callable[[], Iterator[str]]:
    """Lines of a program with the number of the step for <N> and a time that changes for <T>."""

    def text() -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield line.replace("<N>", str(number)).replace("<T>", str(200 + number * 7919 % 40))

    return text


def csv() -> Iterator[str]:
    yield "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]"
    second = 0
    while True:
        for gpu in range(8):
            time = f"2026/05/{1 + second // 86_400 % 28:02d} {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}.00{gpu}"
            yield f"{time}, {gpu}, {90 + (second + gpu) % 10} %, 61234 MiB, {600 + second % 50}.12 W"
        second += 1


def dllogger() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        data = {"loss": 2.5, "throughput": 4000.0 + number * 7919 % 40}
        yield "DLLL " + json.dumps({"timestamp": str(1.7e9 + number), "type": "LOG", "step": number, "data": data})


def mllog() -> Iterator[str]:
    yield ':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "INTERVAL_START", "key": "run_start", "value": null}'
    number = 0
    while True:
        number += 1
        event = {
            "namespace": "",
            "time_ms": 1_700_000_000_000 + 100 * number,
            "event_type": "POINT_IN_TIME",
            "key": "tracked_stats",
        }
        yield ":::MLLOG " + json.dumps(
            {**event, "value": {"throughput": 4000.0 + number % 40}, "metadata": {"step": number}}
        )


def ethtool() -> Iterator[str]:
    """Counters of an mlx5 card: nine of ten lines are of single queues."""
    number = 0
    while True:
        number += 1
        yield f"# ethtool -S eth{number % 8}"
        yield "NIC statistics:"
        for queue in range(64):
            for counter in ("packets", "bytes", "csum_complete", "xdp_drop", "wqe_err"):
                yield f"     rx{queue}_{counter}: {number * queue * 7919}"
        for counter in ("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_discards_phy", "rx_packets_phy"):
            yield f"     {counter}: {number % 3}"


def perfquery() -> Iterator[str]:
    """Counters of many ports: nearly every line is a fact."""
    number = 0
    titles = (
        "SymbolErrorCounter",
        "LinkDownedCounter",
        "PortRcvErrors",
        "PortXmitDiscards",
        "PortXmitData",
        "PortXmitWait",
    )
    while True:
        number += 1
        yield f"# Port counters: Lid {number} port 1 (CapMask: 0x5A00)"
        for title in titles:
            yield f"{title}:{'.' * (34 - len(title))}{number % 50 // 49 if title != 'PortXmitData' else number * 7919}"


def node_exporter() -> Iterator[str]:
    second = 0
    while True:
        second += 1
        yield "# TYPE node_cpu_seconds_total counter"
        for cpu in range(128):
            for mode in ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"):
                yield f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {second * 1.37 + cpu:.2f}'
        for card in range(8):
            for name in ("port_data_received_bytes_total", "link_downed_total", "symbol_error_total"):
                yield f'node_infiniband_{name}{{device="mlx5_{card}",port="1"}} {second}'


def inspector() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        header = {"id": "0x7f3a", "rank": number % 8, "n_ranks": 8, "nnodes": 1}
        perf = {
            "coll": "AllReduce",
            "coll_sn": number,
            "coll_msg_size_bytes": 1 << 20 + number % 4,
            "coll_exec_time_us": 400 + number % 90,
        }
        rates = {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 80.2, "coll_busbw_gbs": 140.4}
        yield json.dumps(
            {"header": header, "metadata": {"hostname": "node01", "pid": 4242}, "coll_perf": {**perf, **rates}}
        )


def profiler() -> Iterator[str]:
    """The example plug-in of NCCL: a collective with its channels and transfers."""
    yield "["
    number = 0
    while True:
        number += 1
        head = '"id": 0, "pid": 4242, "tid": 1, "ts": '
        args = f'"SeqNum": {number}, "CommHash": 1493613951195738943, "Rank": 0, "Count": 262144, "Datatype": "ncclFloat32"'
        yield f'{{"name": "AllReduce", "cat": "COLL", "ph": "b", {head}{number}.5, "args": {{{args}}}}},'
        for channel in range(4):
            clocks = (
                f'"Channel": {channel}, "StartGpuClk": {number}000000, "StopGpuClk": {number}{400 + number % 90:03d}000'
            )
            yield f'{{"name": "KernelCh", "cat": "GPU", "ph": "b", {head}{number}.5, "args": {{{clocks}}}}},'
            for step in range(4):
                yield f'{{"name": "SendWait", "cat": "NET", "ph": "b", {head}{number}.6, "args": {{"Step": {step}}}}},'
                yield f'{{"name": "SendWait", "cat": "NET", "ph": "e", {head}{number}.7}},'
        yield f'{{"name": "AllReduce", "cat": "COLL", "ph": "e", {head}{number}.9}},'


def kineto() -> Iterator[str]:
    """A trace of torch.profiler: operators, launches and kernels, every tenth one of NCCL."""
    yield '{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}, "traceEvents": ['
    at = 0
    while True:
        at += 100
        base = f'"ph": "X", "pid": 0, "ts": {at}.25, "dur": 80.5'
        yield f'{{{base}, "cat": "cpu_op", "name": "aten::mm", "tid": 77, "args": {{"External id": {at}, "Sequence number": {at}}}}},'
        yield f'{{{base}, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 77, "args": {{"correlation": {at}}}}},'
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if at % 1000 == 0 else "sm90_xmma_gemm_bf16bf16_tn_n"
        yield f'{{{base}, "cat": "kernel", "name": "{name}", "tid": 7, "args": {{"device": 0, "stream": 7, "correlation": {at}}}}},'


_TIMER = "[2026-05-07 12:00:20,101] [INFO] [timer.py:199:stop]"
FORMATS: dict[str, Callable[[], Iterator[str]]] = {
    "nccl-tests": nccl_tests,
    "nvidia-smi CSV": csv,
    "Megatron-LM": steps(" iteration <N>/ 900000 | elapsed time per iteration (ms): <T>.1 | global batch size: 64 | lm loss: 2.1E+00 |"),
    "DeepSpeed": steps(_TIMER + " epoch=0/micro_step=<N>/global_step=<N>, RunningAvgSamplesPerSec=<T>.1, CurrSamplesPerSec=<T>.3"),
    "TorchTitan": steps("[titan] step: <N>  loss: 7.9  memory: 30.12GiB(31.7%)  tps: 7,<T>  tflops: 380.1  mfu: 38.4%"),
    "NeMo": steps("Training epoch 0, iteration <N>/900000 | global_step: <N> | train_step_timing in s: 2.<T>"),
    "MaxText": steps("completed step: <N>, seconds: 1.<T>, TFLOP/s/device: 470.000, Tokens/s/device: 57<T>.000, loss: 2.1"),
    "torchtune": steps("Step <N> | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1<T>.5 peak_memory_active:9.1"),
    "nanoGPT": steps("iter <N>: loss 3.2000, time <T>.00ms, mfu 12.30%"),
    "DLLogger": dllogger,
    "MLPerf": mllog,
    "ethtool -S": ethtool,
    "perfquery": perfquery,
    "node_exporter": node_exporter,
    "NCCL Inspector": inspector,
    "NCCL profiler": profiler,
    "Kineto": kineto,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, metavar="MIB")
    parser.add_argument("--only", choices=FORMATS)
    options = parser.parse_args()
    slow = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        path.write_text("nothing\n")
        run([*ANALYZE, str(path)])  # once, to fill the caches
        empty = run([*ANALYZE, str(path)])
        print("| format | MB | MB/s | MB a CPU second | peak MB |\n|---|---|---|---|---|")
        for name, text in FORMATS.items():
            if options.only not in (None, name):
                continue
            size = 0
            with path.open("w") as file:
                for line in text():
                    size += file.write(line + "\n")
                    if size >= options.size << 20:
                        break
            seconds, processor, peak = run([*ANALYZE, str(path)])
            speeds = [
                size / 1e6 / max(took - base, 0.01) for took, base in ((seconds, empty[0]), (processor, empty[1]))
            ]
            slow += [name] if max(speeds) < LEAST else []
            print(f"| {name} | {size / 1e6:.0f} | {speeds[0]:.0f} | {speeds[1]:.0f} | {peak:.0f} |", flush=True)
    if slow:
        print(f"slower than {LEAST} MB/s: {', '.join(slow)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
