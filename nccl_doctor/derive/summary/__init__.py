"""Derived tables that every report on a job shows: job facts, measures, coverage."""

from nccl_doctor.common.plurals import counted
from nccl_doctor.facts.tables import (
    ActiveTest,
    BenchRun,
    C2cState,
    CommOp,
    Connection,
    CopyTest,
    FabricCheck,
    GpuMatrix,
    GpuUse,
    InspectorColl,
    LinkCounter,
    LinkQuality,
    ListedNumber,
    ListedState,
    Message,
    NvlinkState,
    NvlinkUse,
    OfiDomain,
    PrintedNumber,
    Process,
    ProfileShare,
    RasComm,
    RasGroup,
    RecordedRun,
    Recorder,
    Stack,
    ThroughputRun,
    Timeline,
    TopoFile,
    TopoGraph,
    Trace,
)

# A GPU of samples beside its number: several files of hosts without a name may each have a GPU 0, told apart by what nvidia-smi calls
# them. Where one source does not tell that name, the number has to do.
GPU_OF_USE = "iif(EXISTS (SELECT 1 FROM gpu_use WHERE uuid IS NULL), NULL, uuid)"
SOURCES = (
    Message, Process, Connection, ThroughputRun, BenchRun, CommOp, Timeline, Trace, GpuUse, RecordedRun, Recorder, Stack,
    TopoFile, TopoGraph, RasComm, InspectorColl, ProfileShare, GpuMatrix, NvlinkState, OfiDomain,
    LinkCounter, LinkQuality, RasGroup, NvlinkUse, CopyTest, C2cState, FabricCheck, ActiveTest, PrintedNumber, ListedNumber, ListedState,
)  # fmt: skip
"""Without one of these there is no job to say anything of: a look at a node alone does not fill the tables."""


Clause = tuple[str, int | None]  # words, evidence


def folded(numbers: list[int]) -> str:
    """`rank 3`, `ranks 0-7`, or `8 ranks` where they are not one stretch."""
    first, last = min(numbers), max(numbers)
    if len(numbers) == 1:
        return f"rank {first}"
    return f"ranks {first}-{last}" if last - first + 1 == len(numbers) else counted(len(numbers), "rank")


def amount(value: float, unit: str) -> str:
    """A number of `host_number` with its unit."""
    if value == -1:
        return "unlimited"
    if unit == "B/s":
        power = 9 if value >= 1e9 else 6 if value >= 1e6 else 3
        return f"{value / 10**power:.4g} {'kMG'[power // 3 - 1]}B/s"
    if unit != "B":
        return f"{value:,.{10 if value % 1 == 0 else 4}g}{' ' + unit if unit else ''}"
    step = next((power for power in (40, 30, 20, 10) if value >= 1 << power), 0)
    return f"{value / (1 << step):.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[step // 10]}"
