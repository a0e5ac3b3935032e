"""The rows of a series of steps, once its log or file has been read."""

from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.step_series import Series, stamp_of
from nccl_doctor.inputs import prefixes


def text_of(line: bytes) -> str:
    """A line without prefix and control characters, as evidence shows it."""
    return prefixes.clean(line[:600].decode("utf-8", "replace"))


def run_rows(facts: Facts, file: str, run: int, series: Series, settings: Settings) -> Iterator[Any]:
    """The run of a series, its steps, and what became of its loss scale."""
    gpus, source = settings.gpus(file)
    batch = series.batch or settings.batch
    steps = list(_steps(facts, file, run, series, batch))
    shown = series.tool.unit
    unit = shown if any(step.rate is not None for step in steps) else "steps/s"
    if unit == "steps/s":
        steps = [s._replace(rate=1 / s.seconds) if s.seconds else s for s in steps]
    yield ThroughputRun(
        run=run, file=file, host=series.host, rank=series.rank, tool=series.tool.name, unit=unit,
        scope="job" if unit == "steps/s" else series.scope(gpus), points=series.points,
        first_step=series.first_step, last_step=series.last_step, gpus=gpus, gpus_source=source, batch=batch,
        layers=settings.layers, hidden=settings.hidden, sequence=settings.sequence, vocabulary=settings.vocabulary,
        pipeline=settings.pipeline, microbatches=settings.microbatches(batch), synthetic=settings.synthetic,
        total=series.total, ref=steps[0].ref,
    )  # fmt: skip
    yield from steps
    row = series.losses.row(facts, file, run)
    if row is not None:
        yield row


def _steps(facts: Facts, file: str, run: int, series: Series, batch: int | None) -> Iterator[Step]:
    """Rows of the series; seconds and rate complete each other where the batch is known."""
    job = series.tool.scope == "job"
    for one in series.rows():
        seconds, rate = one.seconds, one.rate
        if batch and job and series.tool.unit == "samples/s":
            if rate is None and seconds:
                rate = batch / seconds
            elif seconds is None and rate and series.tool.name not in ("deepspeed", "tf-cnn-benchmarks"):
                seconds = batch / rate
        text = text_of(one.line)
        ref = facts.evidence(file, one.number, text)
        stamp = one.when if one.when is not None else stamp_of(text)
        yield Step(
            run=run, step=one.step, last_step=one.last_step, n=one.n, seconds=seconds, rate=rate,
            slowest=one.slowest, slowest_step=one.slowest_step, data=one.data, spent=one.spent, waited=one.waited,
            line=one.number, stamp=stamp, ref=ref,
        )  # fmt: skip
