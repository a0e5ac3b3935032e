"""A job that was watched while it ran: its log, samples of the GPUs of each node, and the kernel log of one.

Some steps take four times as long as the others. What the files show happens in just these steps, or, as a counterexample, in
others: then the clocks say that it does not explain them.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nccl_doctor.simulate.cluster import Cluster
from nccl_doctor.simulate.scenario import write_log
from nccl_doctor.simulate.spec import Spec

FAULTS = {
    "throttled-steps": "One GPU is slowed down by heat in the slow steps.",
    "input-waits": "The slow steps wait for data, and the GPUs do nothing meanwhile.",
    "checkpoint-dips": "The slow steps write checkpoints, and the GPUs do nothing meanwhile.",
    "storage-stalls": "A file server does not answer in the slow steps.",
    "link-retries": "A network port loses its link in the slow steps and finds it again.",
}
STEPS = 120
SLOW = (17, 40, 58, 83, 101)
_USUAL, _LONG = 2, 8  # seconds of a step
_APART = 14  # steps by which a counterexample is late
_HEAD = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], clocks.current.sm [MHz], clocks_event_reasons.active"
_DOWN = {  # of the kernel: while a step is slow, and when it is over
    "storage-stalls": ("nfs: server fs01 not responding, still trying", "nfs: server fs01 OK"),
    "link-retries": ("mlx5_core 0000:5d:00.0 ib0: Link down", "mlx5_core 0000:5d:00.0 ib0: Link up"),
}


def write_monitored(spec: Spec, *, apart: bool = False) -> dict[str, list[str]]:
    """File name -> lines. `apart` moves what the fault does to other steps; the slow steps stay.

    Raises ValueError for an impossible spec and for a fault that does not concern such a job.
    """
    spec.check()
    if spec.fault is not None and spec.fault not in FAULTS:
        raise ValueError(f"a watched job shows {', '.join(FAULTS)}, not {spec.fault}")
    cluster = Cluster(spec)
    ends = list(_ends(datetime.fromtimestamp(cluster.epoch, UTC), SLOW if spec.fault is not None else ()))
    slow = [step + (_APART if apart else 0) for step in SLOW] if spec.fault is not None else []
    starts = [ends[step - 1] + timedelta(seconds=1) for step in slow]
    files = {"job.log": list(_log(spec, ends))}
    for host in cluster.hosts:
        victim = cluster.victim.local if host is cluster.victim.host else None
        files[f"gpu_{host.name}.csv"] = list(_samples(spec, ends, starts, victim))
    if spec.fault in _DOWN:
        down, up = _DOWN[spec.fault]
        spoken = [(at, down) for at in starts] + [(at + timedelta(seconds=5), up) for at in starts]
        name = cluster.victim.host.name
        files[f"kernel-{name}.log"] = [f"{at:%b %d %H:%M:%S} {name} kernel: {text}" for at, text in sorted(spoken)]
    return files


def _ends(start: datetime, slow: tuple[int, ...]) -> Iterator[datetime]:
    """When each step ends."""
    for step in range(STEPS):
        start += timedelta(seconds=_LONG if step in slow else _USUAL)
        yield start


def _log(spec: Spec, ends: list[datetime]) -> Iterator[str]:
    """The log of a healthy job, with these steps and a time stamp before each line."""
    healthy = write_log(replace(spec, fault=None, framework="pytorch", prefix="none", steps=1))
    begin = ends[0] - timedelta(seconds=60)
    told = [line for line in healthy if "datetime:" not in line]
    at = next(number for number, line in enumerate(told) if "] iteration " in line)
    yield from (f"{begin:%Y-%m-%d %H:%M:%S},000 {line}" for line in told[:at])
    for step, end in enumerate(ends):
        seconds = (end - ends[step - 1]).total_seconds() if step else _USUAL
        if spec.fault == "checkpoint-dips" and step in SLOW:
            yield f"{ends[step - 1]:%Y-%m-%d %H:%M:%S},000 INFO saving checkpoint at step {step} to /scratch/run"
        data = _LONG - 2.0 if spec.fault == "input-waits" and step in SLOW else 0.01
        yield (
            f"{end:%Y-%m-%d %H:%M:%S},000 INFO Epoch: [0][{step:3d}/{STEPS}] Time {seconds:.3f} ( 2.250)  "
            f"Data {data:.3f} ( 0.100)  Loss {2 + 8 / (step + 1.2):.4f} (2.6000)"
        )
    yield from (f"{ends[-1]:%Y-%m-%d %H:%M:%S},000 {line}" for line in told[at:] if "] iteration " not in line)


def _samples(spec: Spec, ends: list[datetime], starts: list[datetime], victim: int | None) -> Iterator[str]:
    """One row a GPU and second; `victim` is the GPU of this node that the fault concerns."""
    yield _HEAD
    first = ends[0] - timedelta(seconds=_USUAL)
    bad = {int((start - first).total_seconds()) + late for start in starts for late in range(_LONG - 3)}
    idle = spec.fault in ("input-waits", "checkpoint-dips")
    for second in range(int((ends[-1] - first).total_seconds())):
        when = f"{first + timedelta(seconds=second):%Y/%m/%d %H:%M:%S}.500"
        for gpu in range(spec.gpus):
            hot = second in bad and gpu == victim and spec.fault == "throttled-steps"
            cold = second in bad and idle
            clock = 1200 if hot else 1755
            yield (
                f"{when}, {gpu}, {0 if cold else 96 + (second + gpu) % 4} %, 61000 MiB, {120 if cold else 640}.00 W, "
                f"{clock} MHz, {0x20 if hot else 0:#018x}"
            )
