"""CPU seconds of `analyze` on logs of many shapes: prefixes, versions of NCCL, frameworks, floods, training output.

    python bench/shapes.py [--size MIB] [--nodes N] [--only NAME]

One file at a time is written to the temporary folder (TMPDIR) and deleted. Starts of jobs come from `simulate`, so that their
size is that of the job; the others are cut at `--size`.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import logs
import strange
import subsystems
import wrapped

RANKS = 64
LOCAL = logs.LOCAL
NODES = 512  # of the starts
STARTS = {
    "torchrun": ("--prefix", "torchrun"),
    "rank": ("--prefix", "rank"),
    "kubectl": ("--prefix", "kubectl"),
    "iso": ("--prefix", "iso"),
    "cri": ("--prefix", "cri"),
    "ray": ("--prefix", "ray"),
    "mpirun": ("--prefix", "mpirun"),
    "srun": ("--prefix", "srun"),
    "horovodrun": ("--prefix", "horovodrun", "--framework", "horovod"),
    "nccl-time": ("--prefix", "nccl-time", "--nccl", "2.27.7"),
    "ansi": ("--prefix", "ansi"),
    "nccl-2.10": ("--nccl", "2.10.3"),
    "nccl-2.19": ("--nccl", "2.19.3"),
    "nccl-2.27": ("--nccl", "2.27.7"),
    "efa": ("--network", "efa"),
    "socket": ("--network", "socket"),
}

Texts = Iterator[str]


def _clock(step: int) -> str:
    return f"2026-05-07 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},{step * 37 % 1000:03d}"


def _head(rank: int, level: str = "INFO", place: str = "") -> str:
    return (
        f"node{rank // LOCAL:05d}:{40_000 + rank % LOCAL}:{40_900 + rank % LOCAL} [{rank % LOCAL}] {place}NCCL {level} "
    )


def crlf() -> Texts:
    """A start with the line ends of Windows."""
    return (text.replace("\n", "\r\n") for text in logs.channels(512))


def docker_json() -> Texts:
    """A start in the files of Docker's json-file driver."""
    for number, text in enumerate(logs.channels(512)):
        yield "".join(
            f'{{"log":"{line}\\n","stream":"stdout","time":"2026-05-07T12:00:00.{number:03d}{at % 1_000_000:06d}Z"}}\n'.replace(
                "->", "-\\u003e"
            )
            for at, line in enumerate(text.replace("<0>", "\\u003c0\\u003e").splitlines())
        )


def rccl() -> Texts:
    """A start of RCCL, with what only it says, as often as the lines of channels."""
    for text in logs.channels(512):
        yield (
            text.replace("P2P/CUMEM/read", "P2P/IPC")
            .replace(
                "Connected all trees",
                "RCCL version : 2.20.5-HEAD:5a9dd80 HIP version : 6.2.41133 ROCm version: 6.2.0.0-66",
            )
            .replace("Setting affinity for GPU", "GPU affinity of device")
        )


def collectives_stamped() -> Texts:
    """Collective calls behind rank labels and time stamps, no two equal."""
    stamps = itertools.count()
    for text in logs.calls():
        yield "".join(
            f"[rank{at}]: 2026-05-07T12:{n // 60_000_000 % 60:02d}:{n // 1_000_000 % 60:02d}.{n % 1_000_000:06d}Z {line}\n"
            for at, (line, n) in enumerate(zip(text.splitlines(), stamps, strict=False))
        )


def trace() -> Texts:
    """NCCL_DEBUG=TRACE: times, lines and texts that nothing knows."""
    chance = random.Random(1)
    for step in itertools.count():
        yield "".join(
            f"{_head(rank, 'TRACE').removesuffix('NCCL TRACE ')}{step * 3.271:.6f} proxyProgressAsync:{1400 + step % 9} NCCL TRACE"
            f" proxyProgressAsync opId=0x7f{chance.getrandbits(40):010x} op.type={step % 7} completed, peer {rank}\n"
            for rank in range(RANKS)
        )


def tuning() -> Texts:
    """NCCL_DEBUG_SUBSYS=TUNING: the choice for each collective, no two times equal."""
    chance = random.Random(1)
    while True:
        yield "".join(
            f"{_head(rank)}AllReduce: {1 << chance.randrange(30)} Bytes -> Algo {chance.randrange(6)} proto {chance.randrange(3)}"
            f" time {chance.random() * 1000:f}\n"
            for rank in range(RANKS)
        )


def plugin() -> Texts:
    """A plug-in that nobody knows, with numbers of its own a line."""
    chance = random.Random(1)
    while True:
        yield "".join(
            f"{_head(rank)}NET/FastNet : request 0x{chance.getrandbits(44):x} of {chance.randrange(1 << 24)} bytes done in"
            f" {chance.randrange(9000)} us on rail {rank % 4}\n"
            for rank in range(RANKS)
        )


def warnings() -> Texts:
    """A warning that differs in addresses, ports and numbers a line."""
    chance = random.Random(1)
    while True:
        yield "".join(
            _head(rank, "WARN", "misc/socket.cc:484 ")
            + f"socketStartConnect: Connect to 10.1.{chance.randrange(9)}.{chance.randrange(250)}<{chance.randrange(65_536)}>"
            " failed : Connection refused\n"
            for rank in range(RANKS)
        )


def tracebacks() -> Texts:
    """The same traceback of all ranks, torn over each other's lines, behind torchrun's labels."""
    said = """Traceback (most recent call last):
  File "/app/train.py", line 812, in <module>
    main()
  File "/app/train.py", line 640, in main
    loss = train_step(model, batch)
  File "/usr/local/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", line 1519, in forward
    inputs, kwargs = self._pre_forward(*inputs, **kwargs)
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 75, in wrapper
    return func(*args, **kwargs)
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, remote process exited
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgress: Connection closed by remote peer node00003<40123>""".splitlines()
    while True:
        yield "".join(f"[rank{rank}]: {line}\n" for line in said for rank in range(RANKS))


def watchdog() -> Texts:
    """PyTorch's watchdog, each rank with its own sequence number and time."""
    for step in itertools.count():
        yield "".join(
            f"[rank{rank}]:[E507 12:{step // 60 % 60:02d}:{step % 60:02d}.{rank:06d}000 ProcessGroupNCCL.cpp:616] [Rank {rank}]"
            f" Watchdog caught collective operation timeout: WorkNCCL(SeqNum={step}, OpType=ALLREDUCE, NumelIn={1 << step % 20},"
            f" NumelOut={1 << step % 20}, Timeout(ms)=600000) ran for {600_000 + rank * 7 + step} milliseconds before timing out.\n"
            for rank in range(RANKS)
        )


def c10d_info() -> Texts:
    """TORCH_CPP_LOG_LEVEL=INFO: what c10d says of each group and each collective."""
    for step in itertools.count():
        yield "".join(
            f"[rank{rank}]:[I507 12:{step // 60 % 60:02d}:{step % 60:02d}.{rank:06d}000 ProcessGroupNCCL.cpp:2265] [PG ID {step % 9} PG"
            f" GUID {step % 9} Rank {rank}] ProcessGroupNCCL broadcast unique ID through store took {step * 0.37 + rank:.4f} ms\n"
            for rank in range(RANKS)
        )


def deepspeed() -> Texts:
    """DeepSpeed and Megatron: a line a step, and a table of timers."""
    for step in itertools.count():
        yield (
            f"[{_clock(step)}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0,"
            f" lr=[{1e-4 / (step + 1):.6g}], mom=[(0.9, 0.95)]\n"
            f"[{_clock(step)}] [INFO] [timer.py:199:stop] epoch=0/micro_step={step}/global_step={step},"
            f" RunningAvgSamplesPerSec={41.2 + step % 7:.4f},"
            f" CurrSamplesPerSec={40.1 + step % 11:.4f}, MemAllocated=21.45GB, MaxMemAllocated=38.17GB\n"
            f" iteration {step:8d}/ 500000 | consumed samples: {step * 512:12d} |"
            f" elapsed time per iteration (ms): {1812.3 + step % 90:.1f} |"
            f" learning rate: 1.000E-04 | global batch size:   512 | lm loss: {2.3 + step % 100 / 100:.6E} | loss scale: 1.0 |"
            " grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            f"[{_clock(step)}] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) |"
            f" fwd: {612 + step % 9}.11 | bwd: {1101 + step % 13}.73 |"
            f" bwd_allreduce: {88 + step % 5}.31 | step: {12 + step % 3}.07\n"
        )


def hugging_face() -> Texts:
    """Dictionaries of a trainer, and bars that carriage returns redraw."""
    for step in itertools.count():
        bar = "".join(
            f"\r {done:3d}%|{'#' * (done // 10):10}| {step * 100 + done}/500000 [{step:02d}:{done % 60:02d}<42:17:03,  3.29it/s]"
            for done in range(0, 100, 5)
        )
        yield (
            f"{bar}{{'loss': {2.3 + step % 100 / 100:.4f}, 'grad_norm': 0.41{step % 97},"
            f" 'learning_rate': 1e-05, 'epoch': {step / 900:.2f}}}\n"
        )


def words_of_errors() -> Texts:
    """Training output with the words that errors are made of, and none of them."""
    for step in itertools.count():
        yield "".join(
            f"[rank{rank}]: {_clock(step)} INFO trainer.py:212 step {step} error_rate {0.31 + rank / 1000:.4f} failed=0 timeout=1800s"
            f" warning_count={step % 3} killed=0 nccl_time={12.3 + rank / 100:.2f}ms cuda_mem=40.1GB socket={rank % 2} exit_code=0\n"
            for rank in range(RANKS)
        )


def user_warnings() -> Texts:
    """Warnings of Python, two lines each, of all ranks."""
    for step in itertools.count():
        yield "".join(
            f"[rank{rank}]: /usr/local/lib/python3.11/site-packages/torch/utils/checkpoint.py:{429 + step % 3}: UserWarning:"
            " torch.utils.checkpoint:"
            " please pass in use_reentrant=True or use_reentrant=False explicitly.\n"
            f"[rank{rank}]:   warnings.warn(\n"
            for rank in range(RANKS)
        )


def json_lines() -> Texts:
    """Records of a structured logger."""
    for step in itertools.count():
        yield "".join(
            json.dumps({"ts": _clock(step), "level": "INFO", "rank": rank, "host": f"node{rank // LOCAL:05d}", "step": step,
                        "msg": f"step {step} loss {2.3 + rank / 100:.4f}", "tokens_per_s": 12345 + step % 97}) + "\n"
            for rank in range(RANKS)
        )  # fmt: skip


def kernel() -> Texts:
    """The journal of nodes: links, Xid, services."""
    for step in itertools.count():
        stamp = f"May  7 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
        yield "".join(
            f"{stamp} node{node:05d} kernel: [{step + node / 100:12.6f}] NVRM: Xid"
            f" (PCI:0000:{node % 8 + 1:02x}:00): 94, pid={4000 + step % 7},"
            f" name=python3, Contained: SM (0x1). RST: No, D-RST: No\n"
            f"{stamp} node{node:05d} slurmd[1811]: debug:  _rpc_ping: node {node} answered {step}\n"
            f"{stamp} node{node:05d} kernel: [{step + node / 100:12.6f}] mlx5_core 0000:{node % 8 + 1:02x}:00.0:"
            f" Port module event: module {node % 4},"
            " Cable unplugged\n"
            for node in range(64)
        )


def ucx() -> Texts:
    """UCX and libfabric at their chattiest."""
    for step in itertools.count():
        yield "".join(
            f"[{1778155200 + step}.{rank:06d}] [node{rank // LOCAL:05d}:{40_000 + rank % LOCAL}:{rank % 3}]      "
            " ucp_worker.c:1855 UCX  INFO"
            f"    ep_cfg[{step % 9}]: tag(rc_mlx5/mlx5_{rank % 4}:1) seq {step}\n"
            f"libfabric:{40_000 + rank}:{1778155200 + step}::efa:cq:efa_rdm_cq_poll_ibv_cq():{530 + step % 3}<info>"
            f" polled {step} completions\n"
            for rank in range(RANKS)
        )


def retries() -> Texts:
    """Connections that PyTorch's store and Gloo try again and again, each with its own port and time."""
    for step in itertools.count():
        yield "".join(
            f"[rank{rank}]:[W507 12:{step // 60 % 60:02d}:{step % 60:02d}.{rank:06d}000 socket.cpp:697] [c10d] The client"
            " socket has failed to connect to"
            f" [node00000.cluster]:{20_000 + step % 30_000} (errno: 111 - Connection refused).\n"
            for rank in range(RANKS)
        )


def flood_stamped() -> Texts:
    """One warning of 64 ranks behind time stamps, no two equal."""
    count = itertools.count()
    for text in logs.flood():
        yield "".join(
            f"2026-05-07T12:{n // 60_000_000 % 60:02d}:{n // 1_000_000 % 60:02d}.{n % 1_000_000:06d}Z {line}\n"
            for line, n in zip(text.splitlines(), count, strict=False)
        )


SHAPES: dict[str, Callable[[], Texts]] = {
    "flood": logs.flood,
    "flood-stamped": flood_stamped,
    "calls": logs.calls,
    "calls-stamped": collectives_stamped,
    "training": logs.training,
    "mixed": logs.mixed,
    "chatter": logs.chatter,
    "crlf": crlf,
    "docker-json": docker_json,
    "rccl": rccl,
    "trace": trace,
    "tuning": tuning,
    "plugin": plugin,
    "warnings": warnings,
    "tracebacks": tracebacks,
    "watchdog": watchdog,
    "c10d-info": c10d_info,
    "deepspeed": deepspeed,
    "hugging-face": hugging_face,
    "words-of-errors": words_of_errors,
    "user-warnings": user_warnings,
    "json-lines": json_lines,
    "kernel": kernel,
    "ucx": ucx,
    "retries": retries,
    **wrapped.SHAPES,
    **strange.SHAPES,
    **subsystems.SHAPES,
}


def write(path: Path, name: str, size: int, nodes: int) -> None:
    """Write the log of this shape."""
    if name in STARTS:
        simulate = [sys.executable, "-m", "nccl_doctor", "simulate", "--nodes", str(nodes), *STARTS[name]]
        subprocess.run([*simulate, "--output", str(path)], check=True, stdout=subprocess.DEVNULL)
    else:
        logs.write(path, SHAPES[name], size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20, help="MiB a log")
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of a start, 8 ranks each")
    parser.add_argument(
        "--only", choices=[*STARTS, *SHAPES], action="append", help="this shape; may be given several times"
    )
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.0f}")
    print(f"{'shape':16} {'MB':>6} {'CPU s':>7} {'MB/CPU s':>9} {'peak MB':>8}")
    for name in args.only or (*STARTS, *SHAPES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.log"
            write(path, name, args.size << 20, args.nodes)
            megabytes = path.stat().st_size / 1e6
            command = [sys.executable, "-m", "nccl_doctor", "analyze", str(path), "--fail-on", "never"]
            _, processor, peak = logs.run(command)
        print(f"{name:16} {megabytes:6.1f} {processor:7.2f} {megabytes / processor:9.1f} {peak:8.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
