"""Shapes of logs for `shapes.py` that nobody wrote patterns for: servers, schedulers, containers, dumps, and lines of kilobytes."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial

RANKS = 64
Texts = Iterator[str]
# {n}: number of the line, {r}: rank, {h}: node, {x8} {x12} {x16} {x32}: hexadecimal digits, {day}, {us}: microseconds, {f}: a fraction
LINES = {
    "vllm": (
        "(EngineCore_DP{r} pid={pid}) INFO 05-07 {clock} [loggers.py:127] Engine {r:03d}: Avg prompt throughput: {f} tokens/s,"
        " Running: {small} reqs, Waiting: 0 reqs, GPU KV cache usage: {f}%, Prefix cache hit rate: {f}%\n"
        'INFO:     10.0.{h}.{small}:{port} - "POST /v1/completions HTTP/1.1" 200 OK\n'
        "INFO 05-07 {clock} [async_llm.py:269] Added request cmpl-{x32}-0.\n"
        "ERROR 05-07 {clock} [serving.py:88] request cmpl-{x32}-0 timed out after {f} s\n"
    ),
    "ray-logs": (
        "\x1b[36m(ServeReplica:llm:{r} pid={pid}, ip=10.0.0.{h})\x1b[0m INFO {day},{ms} llm replica.py:{small} - {x8}-{x4}-{x4}-{x4}-{x12}"
        " POST /v1 200 {f}ms\n"
        "[{day},{ms} E {pid} {port}] (raylet) node_manager.cc:3065: {small} Workers (tasks / actors) killed due to memory pressure"
        " (OOM), node ID: {x32}{x16}{x8}, worker {x32}\n"
    ),
    "xla": (
        "{day}.{us}: E external/xla/xla/stream_executor/cuda/cuda_driver.cc:{small}] failed to allocate {n} bytes on device {r}:"
        " CUDA_ERROR_OUT_OF_MEMORY: 0x{x12}\n"
        "I0507 {clock}.{us} {pid} pjrt_client.cc:{small}] module_{n:04d}.jit_train_step.{x16} compiled in {f}s\n"
    ),
    "c10d-stack": (
        "[rank{r}]:[E507 {clock}.{us}000 ProcessGroupNCCL.cpp:{small}] Exception (either an error or timeout) detected by watchdog"
        " at work: {n}, last enqueued: {n}\n"
        "[rank{r}]: frame #{small}: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long,"
        " std::ratio<1l, 1000l> > >) + 0x{x3} (0x7f{x10} in /usr/lib/libtorch_cuda.so)\n"
        "[rank{r}]: frame #{small}: <unknown function> + 0x{x5} (0x7f{x10} in /lib/x86_64-linux-gnu/libc.so.6)\n"
    ),
    "gdb-stack": (
        "Thread {small} (Thread 0x7f{x10} (LWP {pid})):\n"
        "#0  0x00007f{x10} in epoll_wait () from /lib64/libc.so.6\n"
        "#{small}  0x00007f{x10} in ncclProxyService(void*) () from /usr/lib/libnccl.so.2\n"
    ),
    "pyxis": (
        "{r}: pyxis: imported docker image: nvcr.io#nvidia/pytorch:24.{small}-py3\n"
        "{r}: slurmstepd: error: pyxis: container start failed with error code: {small}, layer sha256:{x32}{x32}\n"
        "{r}: enroot-mount: failed to mount: /run/enroot/{x8} at /raid/{x12}: No such device\n"
    ),
    "dmesg-hex": (
        "[{n}.{us}] mlx5_core 0000:{x2}:00.0: mlx5_cmd_out_err:{small}:(pid {pid}): ACCESS_REG(0x{x3}) op_mod(0x1) failed, status bad"
        " parameter(0x3), syndrome (0x{x6}), err(-22)\n"
        "[{n}.{us}] RIP: 0010:nv_ioctl+0x{x3}/0x{x3} [nvidia] RSP: 0018:ffff{x12} EFLAGS: {x8}\n"
        "[{n}.{us}] pcieport 0000:{x2}:01.0: AER: Corrected error received: 0000:{x2}:00.0 error status/mask={x8}/{x8}\n"
    ),
    "kubectl-errors": (
        "[pod/train-{pod}/pytorch] {day}.{us}Z [rank{r}]: ERROR: liveness probe failed: HTTP probe failed with statuscode: 50{one}\n"
        "[pod/train-{pod}/istio-proxy] {day}.{us}Z warning envoy upstream reset: {x16} connection failure {f}\n"
    ),
    "logger-errors": (
        '{{"asctime": "{day},{ms}", "levelname": "ERROR", "name": "train", "rank": {r}, "trace_id": "{x32}",'
        ' "message": "request {x8} failed after {f} s: connection reset by peer"}}\n'
    ),
    "logfmt": (
        'time="{day}Z" level=error msg="Failed to pull image" error="rpc error: code = Unknown" id={x32}{x32} attempt={small}\n'
    ),
    "klog": (
        "E0507 {clock}.{us} {pid:7d} kubelet.go:{port}] \"Error syncing pod, skipping\" err=\"failed to start container {x32}{x32}\""
        ' pod="train/worker-{r}" podUID="{x8}-{x4}-{x4}-{x4}-{x12}"\n'
    ),
    "aws-efa": (
        "node{h:05d}:{pid}:{pid} [{local}] nccl_net_ofi_rdma_progress:{small} NCCL WARN NET/OFI Request 0x{x12} completed with error. RC:"
        " {small}. Error: {port} (unreachable). Completed length: {n}\n"
    ),
    "nccl-odd": (
        "node{h:05d}:{pid}:{pid} [{local}] NCCL WARN custom plug-in: queue {x8} stalled at {f} after {n} entries\n"
    ),
    "megatron-warn": (
        "WARNING:megatron.core.utils:[rank {r}] async save {x8} took {f} s, fallback to sync (error budget {small}/{n})\n"
        "/opt/venv/lib/python3.12/site-packages/megatron/core/optimizer.py:{small}: FutureWarning: torch.load failed check {n}\n"
    ),
    "tf-warn": (
        "WARNING:tensorflow:From /app/x_{r}.py:{small}: The name tf.{x8} is deprecated, error {n}.\n"
        "{day}.{us}: W tensorflow/core/framework/op_kernel.cc:{small}] UNAVAILABLE: failed to connect to all addresses; {n}\n"
    ),
    "dask": (
        "{day},{ms} - distributed.nanny - WARNING - Worker process {pid} exited with status 1{one}, tcp://10.0.{h}.{small}:{port}\n"
        "{day},{ms} - distributed.core - ERROR - Exception while handling op heartbeat_worker {x8}-{x4}-{x4}-{x4}-{x12}\n"
    ),
    "dcgm-errors": (
        "{day}.{us} ERROR [{pid}:{port}] [[NvSwitch]] unable to read nvlink_{local} of switch 0x{x8}: -{small} [/src/x.cpp:{small}]\n"
    ),
    "lustre": (
        "{day} node{h:05d} kernel: LustreError: {small}-0: lfs0-OST00{x2}-osc-ffff{x12}: operation ost_read to node 10.1.{h}.{small}@o2ib"
        " failed: rc = -{small}\n"
    ),
    "aim-steps": "Rank {r} | step {n} | loss {f} | grad {f} | lr 3e-05 | {f} TFLOP/s | mem {f} GiB | hash {x8}\n",
}  # fmt: skip
_SMALL, _WIDE = (2, 3, 4, 5, 6, 8, 10, 12), (16, 32)


def _fields(chance: random.Random, n: int) -> dict[str, object]:
    rank, clock = n % RANKS, f"12:{n // 60_000 % 60:02d}:{n // 1_000 % 60:02d}"
    bits = f"{chance.getrandbits(128):032x}"
    return {
        "n": n, "r": rank, "h": rank // 8, "local": rank % 8, "pid": 40_000 + rank, "port": 1_024 + n % 60_000, "one": n % 7,
        "small": n % 97, "f": f"{n * 0.37 % 1_000:.3f}", "clock": clock, "day": f"2026-05-07T{clock}", "us": f"{n * 7 % 1_000_000:06d}",
        "pod": f"{rank * 2_654_435_761 % (1 << 32):08x}-x{rank:04d}", "ms": f"{n % 1_000:03d}",
        **{f"x{size}": bits[:size] for size in (*_SMALL, *_WIDE)},
    }  # fmt: skip


def lines(template: str) -> Texts:
    """The lines of a template, each with numbers of its own."""
    chance = random.Random(1)
    for start in itertools.count(step=RANKS):
        yield "".join(template.format(**_fields(chance, start + at)) for at in range(RANKS))


def long_errors() -> Texts:
    """Lines of 2 to 20 kB: a configuration printed with each error."""
    chance = random.Random(1)
    for n in itertools.count():
        layers = ", ".join(f"layer.{at}.weight: {chance.random():.6f}" for at in range(80 + n % 640))
        yield f"[rank{n % RANKS}]: RuntimeError: Error(s) in loading state_dict for Model {n}: size mismatch for {layers}\n"


def long_json() -> Texts:
    """Records of 4 kB with an error in the middle."""
    chance = random.Random(1)
    for n in itertools.count():
        tensors = {f"t{at}": chance.random() for at in range(100)}
        yield json.dumps({"rank": n % RANKS, "a": tensors, "error": f"timeout {n}", "b": tensors}) + "\n"


def mixed() -> Texts:
    """All of them, each line of another one."""
    every = [lines(template) for template in LINES.values()]
    for texts in zip(*every, strict=True):
        rows = [text.splitlines(keepends=True) for text in texts]
        yield "".join(itertools.chain(*itertools.zip_longest(*rows, fillvalue="")))


SHAPES: dict[str, Callable[[], Texts]] = {
    **{name: partial(lines, template) for name, template in LINES.items()},
    "long-errors": long_errors,
    "long-records": long_json,
    "all-strange": mixed,
}
