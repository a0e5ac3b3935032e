"""Endless text of each format that is read as a stream, for `formats.py`: what one program prints, with numbers that change.

Left out are captures that are small by nature and read whole: topology and graphs of NCCL, RAS, `nvidia-smi -q -x`, results of DCGM in
JSON, manifests of Kubernetes, lists of packages, JSON of one answer (`qstat`, iperf3, fio), flight recorders, databases of Nsight Systems.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import count

from cluster_texts import CLUSTER
from loop_texts import LOOPS
from sample_texts import SAMPLES
from varied import FIXTURES, looped, on_nodes, varied

sys.path.insert(0, str(FIXTURES / "make"))

import timeline  # the script beside the fixtures


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


def nccl_tests_of_pairs() -> Iterator[str]:
    """A run of each two of many nodes, as a script prints that looks for a slow one."""
    table = (FIXTURES / "nccl_tests" / "a100_8.out").read_text()
    for number, printed in enumerate(varied(table, sizes=True), 1):
        first, second = number % 997, number % 991 + 997
        yield f"+ srun --nodelist=node[{first:04d},{second:04d}] all_reduce_perf -b 8 -e 1G -f 2 -g 8"
        yield printed.replace("gpunode01", f"node{first:04d}")


def steps(line: str) -> Callable[[], Iterator[str]]:
    """Lines of a program with the number of the step for <N> and a time that changes for <T>; what else has a fraction changes too."""

    def text() -> Iterator[str]:
        for number, printed in enumerate(varied(line, sizes=True), 1):
            yield printed.replace("<N>", str(number)).replace("<T>", str(200 + number * 7919 % 40))

    return text


CELLS = r"(?<=  )[1-9](?P<more>\d{1,2})(?= )"  # of a table: two or three digits


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
    """A trace of torch.profiler as output_json.cpp prints it: operators, launches, flows and kernels, every tenth one of NCCL."""
    yield '{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}, "traceEvents": ['
    at = 0
    shapes = '"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]'
    grid = '"grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19'
    while True:
        at += 100
        kernel = "sm90_xmma_gemm_bf16bf16_tn_n"
        if at % 1000 == 0:
            kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        launch = f'"External id": {at}, "cbid": 211, "correlation": {at}'
        on_device = f'"External id": {at}, "queued": 0, "device": 0, "context": 1, "stream": 7, {grid}'
        for category, name, pid, tid, args in (
            ("cpu_op", "aten::mm", 4242, 4242, f'"External id": {at}, {shapes}, "Ev Idx": {at}'),
            ("cuda_runtime", "cudaLaunchKernel", 4242, 4242, launch),
            ("kernel", kernel, 0, 7, on_device),
        ):
            yield f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},'
            yield f'    "ts": {at}.250, "dur": 80.500,\n    "args": {{\n      {args}\n    }}\n  }},'
        yield f'  {{\n    "ph": "s", "id": {at}, "pid": 4242, "tid": 4242, "ts": {at}.250,\n    "cat": "ac2g", "name": "ac2g"\n  }},'


def horovod_timeline() -> Iterator[str]:
    yield "["
    while True:
        yield from (
            f"{event},"
            for event in timeline.events(timeline.Job(steps=40, ranks=16, tensors=64, together=16, cache=False))
        )


def sacct() -> Iterator[str]:
    yield "JobID|JobName|State|ExitCode|Elapsed|MaxRSS|NodeList|End"
    for job in count(4711):
        yield f"{job}|train-llm|COMPLETED|0:0|01:0{job % 10}:00||node[001-016]|2026-05-07T12:00:00"
        yield f"{job}.batch|batch|COMPLETED|0:0|01:00:00|{job}K|node001|2026-05-07T12:00:00"
        yield f"{job}.0|python3.11|COMPLETED|0:0|01:00:00|{job}K|node[001-016]|2026-05-07T12:00:00"


def trainer_state() -> Iterator[str]:
    yield '{"best_metric": null, "epoch": 3.0, "global_step": 180, "log_history": ['
    for step in count(1):
        yield f'    {{"epoch": {step / 1000}, "grad_norm": 1.1, "learning_rate": 4e-05, "loss": {2 + 1 / step:.3f}, "step": {step}}},'


def wandb_history() -> Iterator[str]:
    for step in count(1):
        time = 1.7e9 + 2 * step
        yield json.dumps(
            {
                "loss": 2.35,
                "train/tokens_per_second": 4e5 + step % 40,
                "_step": step,
                "_runtime": 2 * step,
                "_timestamp": time,
            }
        )


def rdma_statistic() -> Iterator[str]:
    names = (
        "rx_write_requests",
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "roce_slow_restart",
    )
    for node in count(1):
        for card in range(8):
            yield f"node{node:05d}: link mlx5_{card}/1 " + " ".join(
                f"{name} {node % 7 if name[0] == 'r' else 0}" for name in names
            )


def nvlink_errors() -> Iterator[str]:
    for node in count(1):
        for gpu in range(8):
            yield f"node{node:05d}: GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{node:08d}-{gpu})"
            for link in range(18):
                yield from (
                    f"node{node:05d}: \t Link {link}: {name} Errors: 0" for name in ("Replay", "Recovery", "CRC")
                )


def tensorboard() -> Iterator[bytes]:
    """An event file: records of a length, its checksum, an event of protobuf, and the checksum of that."""
    import io

    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import RecordWriter

    def record(event: Event) -> bytes:
        out = io.BytesIO()
        writer = RecordWriter.__new__(RecordWriter)
        writer._writer = out
        writer.write(event.SerializeToString())
        return out.getvalue()

    yield record(Event(wall_time=1.7e9, file_version="brain.Event:2"))
    for step in count(1):
        values = [
            Summary.Value(tag="train/loss", simple_value=2 + 1 / step),
            Summary.Value(tag="perf/step_time", simple_value=0.4),
        ]
        yield record(Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=values)))


_TIMER = "[2026-05-07 12:00:20,101] [INFO] [timer.py:199:stop]"
_FAIRSEQ = '2024-05-01 12:01:30 | INFO | train_inner | {"epoch": 1, "update": 0.025, "loss": "8.950", "wps": "160<T>.8", "ups": "2.47", '
FORMATS: dict[str, Callable[[], Iterator[str]]] = {
    # training
    "Megatron-LM": steps(" iteration <N>/ 900000 | elapsed time per iteration (ms): <T>.1 | global batch size: 64 | lm loss: 2.1E+00 |"),
    "DeepSpeed": steps(_TIMER + " epoch=0/micro_step=<N>/global_step=<N>, RunningAvgSamplesPerSec=<T>.1, CurrSamplesPerSec=<T>.3"),
    "DeepSpeed comm": steps("[2026-05-07 12:00:20,101] [INFO] [logging.py:96:log_dist] rank=0 | comm op: all_reduce | time (ms): 0.<T>"
                            " | msg size: 32.0 MB | algbw (Gbps): 1<T>.1 | busbw (Gbps): 2<T>.2"),
    "TorchTitan": steps("[titan] step: <N>  loss: 7.9  memory: 30.12GiB(31.7%)  tps: 7,<T>  tflops: 380.1  mfu: 38.4%"),
    "NeMo": steps("Training epoch 0, iteration <N>/900000 | global_step: <N> | train_step_timing in s: 2.<T>"),
    "MaxText": steps("completed step: <N>, seconds: 1.<T>, TFLOP/s/device: 470.000, Tokens/s/device: 57<T>.000, loss: 2.1"),
    "torchtune": steps("Step <N> | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1<T>.5 peak_memory_active:9.1"),
    "axolotl": steps("{'loss': 1.2, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'tokens_per_second_per_gpu': 1<T>.5}"),
    "nanoGPT": steps("iter <N>: loss 3.2000, time <T>.00ms, mfu 12.30%"),
    "fairseq JSON": steps(_FAIRSEQ + '"wpb": "65000", "bsz": "512", "num_updates": "<N>", "loss_scale": "128", "wall": "40"}'),
    "fairseq text": steps("epoch 001: <N> / 90000 loss=8.9, wps=160<T>.8, ups=2.47, wpb=65000, num_updates=<N>, lr=0.0005, wall=40"),
    "tqdm": steps("Epoch 1:   4%|###       | <N>/900000 [03:20<01:37, 10.<T>it/s, v_num=10]"),
    "HF Trainer": steps("{'loss': 1.<T>, 'grad_norm': 0.9<T>, 'learning_rate': 2e-05, 'epoch': 0.<N>}"),
    "Composer": steps("[batch=<N>/900000]: throughput/batches_per_sec: 2.<T>\n throughput/samples_per_sec: <T>.5\n loss/train/total: 2.1"),
    "PyTorch examples": steps("Epoch: [0][<N>/900000]\tTime  0.<T> ( 0.400)\tData  0.004 ( 0.100)\tLoss 6.9012e+00 (6.9100e+00)"),
    "timm": steps("Train: 0 [ <N>/900000 (  4%)]  Time: 0.<T>s,  4<T>.55/s  (0.4s,  457.55/s)  LR: 1.0e-05  Data: 0.004 (0.1)"),
    "MMDetection": steps("Epoch(train) [1][<N>/900000]  lr: 2.0e-02  eta: 1:02:03  time: 0.<T>  data_time: 0.0102  loss: 1.2"),
    "detectron2": steps("[05/07 12:00:20 d2.utils.events]:  iter: <N>  total_loss: 1.2  time: 0.<T>  data_time: 0.0102"),
    "GNMT": steps("0: TRAIN [0][<N>/900000]\tTime 0.<T> (0.400)\tData 1.2e-04 (1.3e-04)\tTok/s 1<T>.5 (10000)\tLoss/tok 8.9 (9.1)"),
    "tf_cnn_benchmarks": steps("<N>\timages/sec: 2<T>.3 +/- 1.2 (jitter = 3.1)\t7.821"),
    "Horovod synthetic": steps("Iter #<N>: <T>.3 img/sec per GPU"),
    "TensorFlow models": steps("I0507 keras.py:145] TimeHistory: 12.<T> seconds, 2<T>.5 examples/second between steps <N> and <N>1"),
    "TensorFlow Estimator": steps("INFO:tensorflow:global_step/sec: 1<T>.2\nINFO:tensorflow:loss = 2.<T>, step = <N> (8.<T> sec)"),
    "Keras": steps("57/57 [==============================] - 12s <T>ms/step - loss: 1.2 - accuracy: 0.2"),
    "TensorFlow tutorial": steps("2026-05-07 12:00:20.101: step <N>, loss = 4.68 (1<T>.5 examples/sec; 0.<T> sec/batch)"),
    "DLLogger": dllogger,
    "MLPerf": mllog,
    "trainer_state.json": trainer_state,
    "wandb history": wandb_history,
    "TensorBoard": tensorboard,  # type: ignore[dict-item]  # bytes
    # GPUs
    "nvidia-smi CSV": csv,
    "nvidia-smi dmon": looped("gpu/dmon.txt", CELLS),
    "nvidia-smi pmon": looped("gpu/pmon_all_on_0.txt", CELLS),
    "nvidia-smi -q": on_nodes("captures/smi_q.txt", more=r"(?<=: )[1-9](?P<more>\d+)(?= [%WC]$)"),
    "dcgmi dmon": looped("gpu/dcgmi_dmon.txt", CELLS),
    "dcgmi diag": on_nodes("gpu/dcgmi_diag.txt"),
    "gpustat": looped("gpu/gpustat.json", r'(?:gpu|draw)": [1-9](?P<more>\d+)'),
    "SuperBench": looped("gpu/superbench.jsonl"),
    "amd-smi metric": looped("gpu/amd_smi_metric.txt", r"(?<=: )[1-9](?P<more>\d+)(?= [%WC]$)"),
    "DCGM exporter": looped("gpu/dcgm_exporter.txt"),
    "nvbandwidth": on_nodes("bandwidth/nvbandwidth.txt"),
    # links and nodes
    "ethtool -S": ethtool,
    "perfquery": perfquery,
    "ibqueryerrors": on_nodes("network/ibqueryerrors.txt"),
    "ip -s link": on_nodes("network/ip_s_link.txt"),
    "rdma statistic": rdma_statistic,
    "nvidia-smi nvlink": nvlink_errors,
    "mlxlink": on_nodes("network/mlxlink.txt", more=r"(?<=: )(?P<more>\d)E-"),
    "iblinkinfo": on_nodes("network/iblinkinfo.txt"),
    "nstat": on_nodes("network/nstat.txt"),
    "ibdiagnet": on_nodes("network/ibdiagnet.log"),
    "node_exporter": node_exporter,
    "ib_write_bw": looped("bandwidth/ib_write_bw.txt", names="mlx5_", sizes=True),
    "ibstat": on_nodes("captures/ibstat_up.txt"),
    "topo -m": on_nodes("captures/topo_nv18.txt"),
    # schedulers
    "sacct -P": sacct,
    "scontrol show node": looped("slurm/scontrol_node.txt", names="Name=n"),
    "scontrol show job": looped("captures/scontrol_jobs.txt", names="JobId="),
    "qacct": looped("gridengine/qacct.txt", names="jobnumber    "),
    **CLUSTER,
    **SAMPLES,
    **LOOPS,
    # NCCL
    "nccl-tests": nccl_tests,
    "nccl-tests of pairs": nccl_tests_of_pairs,
    "NCCL Inspector": inspector,
    "NCCL Inspector for Prometheus": looped("topology/inspector.prom", r'coll_sn="(?P<more>\d+)'),
    "py-spy": looped("stacks/loader_w2_rank1_subprocesses.txt", r"(?:Process|Thread) \d(?P<more>\d+)"),
}  # fmt: skip
TRACES: dict[str, Callable[[], Iterator[str]]] = {
    "Kineto": kineto,
    "Horovod timeline": horovod_timeline,
    "NCCL profiler": profiler,
}
