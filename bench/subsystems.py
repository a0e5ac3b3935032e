"""Shapes of logs for `shapes.py`: old and new layouts of NCCL, its subsystems, dumps of stacks, and several programs in turn."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial

import logs

RANKS = 64
Texts = Iterator[str]
_OLD = "node{host:05d}:{pid}:{pid} [{local}] NCCL INFO "
# A line a rank and step of NCCL. {n}: number of the line, {r}: rank, {x10} {x12}: hexadecimal digits, {f}: a fraction, {small}: 0 to 96
LINES = {
    "subsys-alloc": (
        _OLD + "misc/utils.cc:{small} memory stack hunk malloc({n})\n"
        + _OLD + "Mem Realloc old size {n}, new size {port} pointer 0x7f{x10}\n"
        + _OLD + "Cuda Host Alloc Size {n} pointer 0x7f{x10}\n"
        + _OLD + "UDS: Sending fd {small} to UDS socket /tmp/nccl-socket-{small}-{x12}\n"
    ),
    "subsys-proxy": (
        _OLD + "New proxy {kind} connection {small} from local rank {local}, transport 2\n"
        + _OLD + "proxyProgressAsync opId=0x7f{x10} op.type={one} op.reqBuff=0x7f{x10} op.respSize=16 done\n"
        + _OLD + "Received and initiated operation=Init res=0 opId=0x7f{x10}\n"
        + _OLD + "[Service thread] Connection {n} closed by localRank {local}\n"
    ),
    "subsys-net": (
        _OLD + "NET/IB: {small} mlx5_{one}:1 QP {n} LID {port} mtu 5 GID {one} ({x12}/{x12}) fifoRkey=0x{x10} fifoLkey=0x{x10}\n"
        + _OLD + "NET/IB: NCCL Dev {one} IbDev 0 Port 1 qpn {n} se {f} retry {small}\n"
        + _OLD + "GPU Direct RDMA Enabled for GPU {x3}00 / HCA {one} (distance {one} <= 4), read {one} mode Default\n"
    ),
    "subsys-graph": (
        _OLD + "=== System : maxBw {f} totalBw {f} ===\n"
        + _OLD + "CPU/0-{one} (1/1/2)\n"
        + _OLD + "+ PCI[24.0] - NIC/0-{x3}000\n"
        + _OLD + "Pattern {one}, crossNic 0, nChannels {small}, bw {f}/{f}, type NVL/PIX, sameChannels 1\n"
        + _OLD + " {small} : NET/0-{one} GPU/0-{x3}000 GPU/0-{x3}000 NET/0-{one}\n"
    ),
    "subsys-tuning": (
        _OLD + "Broadcast: {n} Bytes -> Algo {one} proto 2 channel{{Lo..Hi}}={{0..{small}}} time {f}\n"
        + _OLD + "       Algorithm   |                            Tree                  |                            Ring      |\n"
        + _OLD + "AllReduce | {f}/ {f} | {f}/ {f} | {f}/ {f} |\n"
    ),
    "trace-times": (
        "node{host:05d}:{pid}:{tid} [{local}] {f}{port} ncclProxyService:{small} NCCL TRACE proxy got {n} of 0x{x12}\n"
        "node{host:05d}:{pid}:{tid} [{local}] {f}{port} TRACE transport/net_ib.cc:{small} wr_id {n} len {port}\n"
    ),
    "rccl-trace": (
        "node{host:05d}:{pid}:{tid} [{local}] NCCL INFO ## [{f}] [{small}] RCCL opCount {x12} coll {one} nwarps {small} n {n}\n"
        "node{host:05d}:{pid}:{tid} [{local}] NCCL INFO hipEventRecord 0x{x12} stream 0x{x12} took {f} us\n"
    ),
    "bars-of-ranks": "\rTraining {r}:  {small}%|{bar:20}| {n}/999999 [00:{small:02d}<01:{small:02d}, {f}it/s, loss={f}]",
    "megatron-deepspeed": (
        "[{day},{ms}] [INFO] [timer.py:264:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec={f}\n"
        " [{day}] iteration {n:8d}/  999999 | consumed samples: {n:12d} | elapsed time per iteration (ms): {f} | lm loss: {f} |\n"
        "node{host:05d}: [{day},{ms}] [WARNING] [stage3.py:{small}:step] {small} pytorch allocator cache flushes since last step.\n"
        "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: ({f}, {f})\n"
        "    optimizer ......................................: ({f}, {f})\n"
    ),
    "gdb-dumps": (
        "Thread {small} (Thread 0x7f{x10} (LWP {pid}) \"pt_nccl_watchdg\"):\n"
        "#0  0x00007f{x10} in pthread_cond_timedwait@@GLIBC_2.3.2 () from /lib64/libpthread.so.0\n"
        "#1  0x00007f{x10} in c10d::ProcessGroupNCCL::ncclCommWatchdogInternal (this=0x7f{x10}) at ProcessGroupNCCL.cpp:{small}\n"
        "#2  0x00007f{x10} in std::thread::_State_impl<std::_Bind<void ()>>::_M_run (this=0x{x12}) at thread:{small}\n"
        "#3  0x00007f{x10} in clone () from /lib64/libc.so.6\n\n"
    ),
    "py-spy-dumps": (
        "Process {pid}: python train.py --rank {r}\n"
        "Python v3.11.7 (/usr/bin/python3.11)\n\n"
        "Thread {pid} (active+gil): \"MainThread\"\n"
        "    _call_impl (torch/nn/modules/module.py:{port})\n"
        "    forward_{small} (/app/model.py:{small})\n"
        "    train (/app/train.py:{small})\n"
        "Thread {port} (idle): \"Thread-{small}\"\n"
        "    wait (threading.py:{small})\n\n"
    ),
}  # fmt: skip
# A start: what is around each line. {line}: as JSON writes it, without quotation marks
STARTS = {
    "json-cri": '{{"time":"{day}.{us}Z","stream":"stderr","log":"{line}","kubernetes":{{"pod":"train-{host}"}}}}\n',
    "srun-colours": "{r}: \x1b[1;32m{line}\x1b[0m\x1b[K\r\n",
    "stamped-brackets": "[{day}.{us}] [{r}/512] [stderr] {line}\n",
    "odd-prefix": "job-4711/{host}/{local} |> {line}\n",
}


def _fields(chance: random.Random, n: int, rank: int) -> dict[str, object]:
    bits = f"{chance.getrandbits(64):016x}"
    clock = f"12:{n // 60_000 % 60:02d}:{n // 1_000 % 60:02d}"
    return {
        "n": n, "r": rank, "host": rank // 8, "local": rank % 8, "pid": 40_000 + rank % 8, "tid": 40_900 + rank % 8, "one": n % 7,
        "small": n % 97, "port": 1_024 + n % 60_000, "f": f"{n * 0.37 % 1_000:.3f}", "x3": bits[:3], "x10": bits[:10], "x12": bits[:12],
        "day": f"2026-05-07T{clock}", "us": f"{n * 7 % 1_000_000:06d}", "ms": f"{n % 1_000:03d}", "bar": "#" * (n % 20),
        "kind": ("send", "recv", "coll")[n % 3],
    }  # fmt: skip


def lines(template: str) -> Texts:
    """Lines of each rank for step after step."""
    chance = random.Random(1)
    for start in itertools.count(step=RANKS):
        yield "".join(template.format(**_fields(chance, start + rank, rank)) for rank in range(RANKS))


def _ranked(text: str) -> Iterator[tuple[str, int]]:
    """Lines of a start, each with its rank."""
    for line in text.splitlines():
        yield line, int(line[4:9]) * 8 + int(line.split("[", 1)[1][0])


def start(around: str) -> Texts:
    """A start with something around each line."""
    chance = random.Random(1)
    count = itertools.count()
    for text in logs.channels(512):
        yield "".join(
            around.format(line=json.dumps(line)[1:-1], **_fields(chance, n, rank))
            for (line, rank), n in zip(_ranked(text), count, strict=False)
        )


def old_channels() -> Texts:
    """A start in the words of NCCL 2.8: channels without a part behind the slash, buses in place of devices."""
    for text in logs.channels(512):
        yield (
            text.replace("/0 : ", " : ")
            .replace("/1 : ", " : ")
            .replace("P2P/CUMEM/read", "P2P/IPC")
            .replace("[send] ", "")
        )


def new_channels() -> Texts:
    """A start in the words of NCCL 2.27: a time stamp behind the process, and ranks with the whole bus."""
    count = itertools.count()
    for text in logs.channels(512):
        yield "".join(
            f"[2026-05-07 12:{n // 60_000_000 % 60:02d}:{n // 1_000_000 % 60:02d}] {line}\n".replace(
                "P2P/CUMEM/read", "P2P/CUMEM"
            )
            for line, n in zip(text.splitlines(), count, strict=False)
        )


def long_lines() -> Texts:
    """Each line is 64 kB: the records of many ranks without an end of line between them."""
    for text in logs.channels(512):
        for at in range(0, len(text), 1 << 16):
            yield text[at : at + (1 << 16)].replace("\n", " ") + "\n"


def interleaved() -> Texts:
    """The lines of a start, of training, and of a traceback in turn."""
    said = [
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 812, in <module>',
        "    main()",
        "ValueError: bad shard",
    ]
    for first, second in zip(logs.channels(512), logs.training(), strict=False):
        pairs = itertools.zip_longest(first.splitlines(), second.splitlines(), fillvalue="")
        yield "".join(f"{a}\n{b}\n[rank{n % RANKS}]: {said[n % 4]}\n" for n, (a, b) in enumerate(pairs))


SHAPES: dict[str, Callable[[], Texts]] = {
    **{name: partial(lines, template) for name, template in LINES.items()},
    **{name: partial(start, around) for name, around in STARTS.items()},
    "channels-old": old_channels,
    "channels-new": new_channels,
    "long-lines": long_lines,
    "interleaved": interleaved,
}
