"""Texts shared by the reporters of many runs."""

from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.comparison import Measure, Measured, RunRow, RunsTable
from nccl_doctor.reporters.comparison.pair_words import HEADS
from nccl_doctor.reporters.words import clean

FIRST = "(the others are compared with this one)"


def headline(table: RunsTable) -> str:
    """`SAME: …`: the verdict and which run is best."""
    return f"{HEADS[table.verdict]}: {clean(table.headline)}"


def name(measure: Measure) -> str:
    """`speed of megatron, samples/s`."""
    return clean(f"{measure.what}, {measure.unit}" if measure.unit else measure.what)


def share(measured: Measured | None) -> str:
    """`+12%` where it differs from the first run; else nothing."""
    if measured is None or not measured.effect or measured.ratio is None:
        return ""
    return f"{(measured.ratio - 1) * 100:+.0f}%" if measured.ratio < 3 else f"{measured.ratio:.0f} times"


def changed(row: RunRow) -> str:
    """What was chosen otherwise than in the first run."""
    if row.number == 1:
        return FIRST
    return clean(", ".join(row.changed)) or "nothing that the inputs show"


def found(row: RunRow) -> list[str]:
    """The causes that the first run does not show: `warning NET003 libibverbs-missing  …`."""
    return [clean(f"{one.severity} {one.rule} {one.name}  {one.title}") for one in row.findings]


def varied(table: RunsTable) -> list[str]:
    """`NCCL_ALGO: not set, Ring, Tree`: what differs, with each value once."""
    return [
        clean(f"{one.what}: {', '.join(dict.fromkeys(value for value in one.values if value is not None))}")
        for one in table.varied
    ]


def size(table: RunsTable) -> str:
    """`5 runs, 7 measures, 2 settings that differ`."""
    chosen = sum(one.chosen for one in table.varied)
    return f"{counted(len(table.runs), 'run')}, {counted(len(table.measures), 'measure')}, {counted(chosen, 'choice')} that differ"
