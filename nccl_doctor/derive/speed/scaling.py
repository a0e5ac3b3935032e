"""Runs against runs: how the rate grows with the GPUs, and what real input data costs against generated data."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import InputShare, Scaling, Steady, ThroughputRun

# Where one log shows several series the first of these speaks for it. DeepSpeed's own count of samples is off by the
# gradient accumulation in some versions; a progress bar shows no batch.
_TRUSTED = (
    "megatron", "torchtitan", "fairseq", "composer", "tf-cnn-benchmarks", "horovod-synthetic", "tf-official", "timm",
    "detection", "pytorch-example", "tqdm", "hf-trainer", "deepspeed", "deepspeed-timers",
)  # fmt: skip


class _Run(NamedTuple):
    run: ThroughputRun
    rate: float  # of the job
    ref: int


@derivation(fills=[Scaling, InputShare], needs=[ThroughputRun], reads=[Steady])
def scaling(facts: Facts) -> Iterator[Scaling | InputShare]:
    """How the rate grows with the number of GPUs, and what reading real data costs."""
    steady = {row.run: row for row in facts.rows(Steady)}
    chosen = list(_speakers(facts.rows(ThroughputRun), steady))
    yield from _scaling(chosen)
    yield from _input(chosen)


def _speakers(runs: list[ThroughputRun], steady: dict[int, Steady]) -> Iterator[_Run]:
    """One run for each file and GPU count, with a rate of the whole job."""
    groups: dict[tuple[str, int], list[ThroughputRun]] = defaultdict(list)
    for run in runs:
        known = steady.get(run.run)
        if run.gpus and known is not None and known.job_rate:
            groups[run.file, run.gpus].append(run)
    for group in groups.values():
        best = min(group, key=lambda run: (_trust(run.tool), -run.points, run.rank or 0, run.run))
        known = steady[best.run]
        if known.job_rate:
            yield _Run(best, known.job_rate, known.ref)


def _trust(tool: str) -> int:
    return _TRUSTED.index(tool) if tool in _TRUSTED else len(_TRUSTED)


def work(run: ThroughputRun) -> float | None:
    """Floating point operations of one sample of a transformer, forward and backward with recomputation.

    96 s l h² (1 + s / 6h + V / 16 l h), Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (2021),
    equation 3. Only ratios of it are used, so it does not matter whether activations were recomputed.
    """
    if not run.layers or not run.hidden:
        return None
    sequence, vocabulary = run.sequence or 0, run.vocabulary or 0
    more = sequence / (6 * run.hidden) + vocabulary / (16 * run.layers * run.hidden)
    return 96.0 * (run.sequence or 1) * run.layers * run.hidden**2 * (1 + more)


def _model(run: ThroughputRun) -> str | None:
    return f"{run.layers} layers of {run.hidden}" if run.layers and run.hidden else None


def _scaling(runs: list[_Run]) -> Iterator[Scaling]:
    series: dict[tuple[str, str, int], dict[int, _Run]] = defaultdict(dict)
    for item in runs:
        run = item.run
        same = series[run.tool, run.unit, run.synthetic or 0]
        old = same.get(run.gpus or 0)
        if old is None or run.points > old.run.points:
            same[run.gpus or 0] = item
    for (tool, unit, synthetic), by_gpus in series.items():
        if len(by_gpus) > 1 and (unit != "steps/s" or _same_batch(by_gpus)):
            yield from _table(f"{tool} {unit}" + (" with synthetic data" if synthetic else ""), by_gpus)


def _same_batch(by_gpus: dict[int, _Run]) -> bool:
    """Whether the steps of all runs are known to be of one size: with the batch a GPU kept, more GPUs do more in a step."""
    batches = {item.run.batch for item in by_gpus.values()}
    return len(batches) == 1 and None not in batches


def _table(name: str, by_gpus: dict[int, _Run]) -> Iterator[Scaling]:
    counts = sorted(by_gpus)
    works = [work(by_gpus[count].run) for count in counts]
    known = [value for value in works if value is not None]
    differs = len(known) == len(works) and max(known) > 1.01 * min(known)
    if not differs:
        works = [1.0 for _ in counts]
    done = [by_gpus[count].rate * (value or 1.0) for count, value in zip(counts, works, strict=True)]
    ideals = [count / counts[0] for count in counts]
    speedups = [value / done[0] for value in done]
    serial = None if differs or len(counts) < 3 else amdahl(ideals, speedups)
    for count, ideal, speedup in zip(counts, ideals, speedups, strict=True):
        item = by_gpus[count]
        yield Scaling(
            series=name, run=item.run.run, gpus=count, gpus_source=item.run.gpus_source or "", rate=item.rate,
            per_gpu=item.rate / count, speedup=speedup, ideal=ideal, efficiency=speedup / ideal,
            basis="work" if differs else "rate", serial=serial, model=_model(item.run), ref=item.ref,
        )  # fmt: skip


def amdahl(ideals: list[float], speedups: list[float]) -> float:
    """The share s of the time of the smallest run that does not shrink: 1/speedup = s + (1 - s)/ideal, least squares."""
    x = [1 - 1 / ideal for ideal in ideals]
    y = [1 / speedup - 1 / ideal for speedup, ideal in zip(speedups, ideals, strict=True)]
    share = sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
    return min(max(share, 0.0), 1.0)


def _input(runs: list[_Run]) -> Iterator[InputShare]:
    generated = {(r.run.tool, r.run.unit, r.run.gpus, r.run.batch): r for r in runs if r.run.synthetic}
    for item in runs:
        if item.run.synthetic:
            continue
        pair = generated.get((item.run.tool, item.run.unit, item.run.gpus, item.run.batch))
        if pair is not None:
            share = max(1 - item.rate / pair.rate, 0.0)
            yield InputShare(item.run.run, pair.run.run, item.run.gpus or 0, item.rate, pair.rate, share, item.ref)
