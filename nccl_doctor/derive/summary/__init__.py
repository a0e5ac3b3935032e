"""Derived tables that every report on a job shows: job facts, measures, coverage."""

from nccl_doctor.facts.tables import (
    BenchRun,
    Connection,
    GpuUse,
    Message,
    Process,
    RecordedRun,
    ThroughputRun,
    Timeline,
    Trace,
)

SOURCES = (Message, Process, Connection, ThroughputRun, BenchRun, Timeline, Trace, GpuUse, RecordedRun)
"""Without one of these there is no job to say anything of: a look at a node alone does not fill the tables."""
