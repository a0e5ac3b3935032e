"""More shapes of logs for `shapes.py`: what launchers, collectors and terminals put around lines, and floods of other programs."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial

import logs

RANKS = 64
Texts = Iterator[str]
_NCCL = "node{host:05d}:{pid}:{tid} [{local}] NCCL INFO "
# A start: what is around its lines. {n}: number of the line, {r}: rank, {host}, {pid}, {day}: time without fraction, {us}: microseconds
STARTS = {
    "mpi-tags": "[1,{r}]<stdout>:{line}",
    "mpi-stamps": "Thu May  7 {clock} 2026[1,{r}]<stderr>:{line}",
    "srun-labels": "{r}: {line}",
    "journald": "May 07 {clock} node{host:05d} python[{pid}]: {line}",
    "cri-stamps": "{day}.{us}123Z stdout F {line}",
    "pods": "[pod/train-worker-{host}/pytorch] {day}.{us}Z {line}",
    "compose": "worker-{host}  | {line}",
    "colours": "\x1b[32m[rank{r}]\x1b[0m: {line}",
    "ray-workers": "\x1b[36m(RayTrainWorker pid={pid}, ip=10.0.0.{host})\x1b[0m {line}",
    "loguru": "2026-05-07 {clock}.123 | INFO     | train:log:42 - {line}",
}
# A line a rank and step of other output. {text}: what a step says, {n}: number of the line, {hex}: it in hexadecimal digits
LINES = {
    "steps-slog": 'time={day}.{us}Z level=INFO rank={r} msg="{text}"\n',
    "steps-bar": "\r[rank{r}]: Epoch 3: {percent:3d}%|{bar:10}| {step}/9999 [{text}]{end}",
    "steps-host": "node{host:05d}: {text}\n",
    "steps-unlabelled": "{day} {text}\n",
    "code": (
        '[rank{r}]:   File "/app/model_{local}.py", line {step}, in forward_{percent}\n'
        "[rank{r}]:     return self.layer{percent}(x)  # failed, error, timeout\n"
    ),
    "exceptions": "[rank{r}]: RuntimeError: shape '[{step}, {r}]' is invalid for input of size {n}\n",
    "cuda-errors": "[rank{r}]: RuntimeError: CUDA error: an illegal memory access was encountered at 0x7f{hex}\n",
    "errors-unknown": "[rank{r}]: ERROR loader {step}: shard s3://bucket/part-{hex}.tar cannot be read, retrying\n",
    "gloo-refused": (
        "[{day}.{us}] [rank{r}]: [{step}] Gloo connectFullMesh failed with"
        " [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error {step}\n"
    ),
    "slurm": (
        "srun: error: node{r:05d}: task {step}: Exited with exit code {code}\n"
        "slurmstepd: error: *** STEP {step}.0 ON node{r:05d} CANCELLED AT {day} ***\n"
    ),
    "syslog": "<30>1 {day}.{us}Z node{r:05d} systemd 1 - - Started Session {n} of User root.\n",
    "hex-dump": "{hex}  {hex} {hex} {hex} {hex}\n",
    "init-info": f"{_NCCL}comm 0x{{hex}} rank {{r}} nRanks 64 nNodes 8 localRanks 8 localRank {{local}} MNNVL 0\n",
    "trees": f"{_NCCL}Trees [0] {{percent}}/-1/-1->{{r}}->{{code}} [1] {{code}}/-1/-1->{{r}}->-1\n",
}


def _fields(n: int, rank: int) -> dict[str, object]:
    clock = f"12:{n // 60_000 % 60:02d}:{n // 1_000 % 60:02d}"
    return {
        "n": n, "r": rank, "host": rank // 8, "local": rank % 8, "pid": 40_000 + rank % 8, "tid": 40_900 + rank % 8, "clock": clock,
        "day": f"2026-05-07T{clock}", "us": f"{n * 1_000 % 1_000_000:06d}",
    }  # fmt: skip


def start(around: str) -> Texts:
    """A start with something around each line."""
    count = itertools.count()
    for text in logs.channels(512):
        lines = (
            (n, int(line[4:9]) * 8 + int(line.split("[", 1)[1][0]), line)
            for line, n in zip(text.splitlines(), count, strict=False)
        )
        yield "".join(f"{around.format(line=line, **_fields(n, rank))}\n" for n, rank, line in lines)


def lines(template: str) -> Texts:
    """A line of each rank for step after step."""
    for step in itertools.count():
        said = []
        for rank in range(RANKS):
            n = step * RANKS + rank
            text = f"step {step} loss {2.3 + n % 100 / 100:.4f} lr 3.0e-04 tokens/s {12_345 + n % 97} mem 61.2GB"
            bar, end = "#" * (step % 10), "\n" if step % 10 == 9 else ""
            said.append(
                template.format(
                    step=step,
                    text=text, bar=bar, end=end, percent=step % 100, code=step % 2 + 1, hex=f"{n * 2_654_435_761 % (1 << 32):08x}",
                    **_fields(n, rank),
                )
            )  # fmt: skip
        yield "".join(said)


def torn() -> Texts:
    """A start in which one line of five is torn by the next one."""
    chance = random.Random(1)
    for text in logs.channels(512):
        torn = []
        for first, second in itertools.pairwise(text.splitlines()):
            cut = chance.randrange(len(first)) if chance.random() < 0.2 else len(first)
            torn.append(f"{first[:cut]}{second[:20]}\n{first[cut:]}\n" if cut < len(first) else f"{first}\n")
        yield "".join(torn)


def journal_json() -> Texts:
    """A start in the JSON of journalctl."""
    for number, text in enumerate(logs.channels(512)):
        yield "".join(
            json.dumps({"_HOSTNAME": line[:9], "__REALTIME_TIMESTAMP": f"1778155{number:03d}{n:06d}", "MESSAGE": line}) + "\n"
            for n, line in enumerate(text.splitlines())
        )  # fmt: skip


def long_json() -> Texts:
    """Records of training with 60 numbers a line."""
    for step in itertools.count():
        numbers = {f"layer{n}/grad_norm": 0.1 * n for n in range(60)}
        yield "".join(json.dumps({"rank": rank, "step": step, "metrics": numbers}) + "\n" for rank in range(RANKS))


SHAPES: dict[str, Callable[[], Texts]] = {
    **{name: partial(start, around) for name, around in STARTS.items()},
    **{name: partial(lines, template) for name, template in LINES.items()},
    "torn": torn,
    "journal-json": journal_json,
    "long-json": long_json,
}
