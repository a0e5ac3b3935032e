"""The rows of a series of steps, once its log or file has been read."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.lines.line_numbers import Floats
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps import epoch_lines
from nccl_doctor.formats.training.steps.step_folds import Rows, known, whole
from nccl_doctor.formats.training.steps.step_series import Series, stamp_of
from nccl_doctor.inputs import prefixes


def text_of(line: bytes) -> str:
    """A line without prefix and control characters, as evidence shows it."""
    return prefixes.clean(line[:600].decode("utf-8", "replace"))


def run_rows(facts: Facts, file: str, run: int, series: Series, settings: Settings) -> Iterator[Any]:
    """The run of a series, its steps, and what became of its loss scale."""
    gpus, source = settings.gpus(file)
    batch = series.batch or settings.batch
    seconds, rate = _speeds(series, batch)
    unit = series.tool.unit
    if np.isnan(rate).all():
        unit = series.tool.unit if series.tool.name == epoch_lines.NAME else "steps/s"
        with np.errstate(divide="ignore", over="ignore"):
            rate = np.where(seconds != 0, 1 / seconds, np.nan)
    steps = list(_steps(facts, file, run, series.rows(), seconds, rate))
    if not steps:  # all of them repeat one step
        return
    yield ThroughputRun(
        run=run, file=file, host=series.host, rank=series.rank, tool=series.tool.name, unit=unit,
        scope="job" if unit in ("steps/s", epoch_lines.UNIT) else series.scope(gpus), points=series.points,
        first_step=series.first_step, last_step=series.last_step, gpus=gpus, gpus_source=source, batch=batch,
        layers=settings.layers, hidden=settings.hidden, sequence=settings.sequence, vocabulary=settings.vocabulary,
        pipeline=settings.pipeline, microbatches=settings.microbatches(batch), synthetic=settings.synthetic,
        total=series.total, local_rank=series.local_rank, task=series.task, ref=steps[0].ref,
    )  # fmt: skip
    yield from steps
    row = series.losses.row(facts, file, run)
    if row is not None:
        yield row


def _speeds(series: Series, batch: int | None) -> tuple[Floats, Floats]:
    """Seconds and rate of the rows; they complete each other where the batch is known."""
    rows = series.rows()
    seconds, rate = rows.seconds, rows.rate
    if batch and series.tool.scope == "job" and series.tool.unit == "samples/s":
        with np.errstate(divide="ignore"):
            if series.tool.name not in ("deepspeed", "tf-cnn-benchmarks"):
                seconds = np.where(np.isnan(seconds) & (rate != 0), batch / rate, seconds)
            rate = np.where(np.isnan(rate) & (rows.seconds != 0), batch / rows.seconds, rate)
    return seconds, rate


def _steps(facts: Facts, file: str, run: int, rows: Rows, seconds: Floats, rate: Floats) -> Iterator[Step]:
    texts = [text_of(line) for line in rows.line.tolist()]
    lines = rows.number.astype(np.int64).tolist()
    stamps = (stamp_of(text) if when is None else when for when, text in zip(known(rows.when), texts, strict=True))
    tells = rows.spent != 0  # what waited for data
    spent, waited = (known(np.where(tells, column, np.nan)) for column in (rows.spent, rows.waited))
    yield from map(
        Step, repeat(run), whole(rows.step), whole(rows.last_step), rows.n.astype(np.int64).tolist(), known(seconds),
        known(rate), rows.slowest.tolist(), whole(rows.slowest_step), known(rows.data), spent, waited, lines, stamps,
        facts.evidence_of(file, lines, texts),
    )  # fmt: skip
