"""Horovod timelines (HOROVOD_TIMELINE, `horovodrun --timeline-filename`, `horovod.start_timeline`), of all versions.

The coordinator alone writes the file: who is late shows in the ticks of the ranks, which the response cache leaves out after
the first step. The evidence line is the number of the event in the file, since most files have one line.
"""

import re
from collections.abc import Iterator

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    Timeline,
    TimelineActivity,
    TimelineGap,
    TimelineRank,
    TimelineTensor,
    TimelineWindow,
)
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.horovod import trace_events
from nccl_doctor.formats.horovod.statistics import WINDOWS, Activity, Run, tensors
from nccl_doctor.inputs.streams import Readable

_SECOND = 1_000_000  # µs
_EPOCH = re.compile(rb'"start_time_since_epoch_in_micros":\s*(\d{1,18})')
_BOUNDARIES = (b'"start_time_since_epoch_in_micros"', b"\n[\n", b"\n[\r\n")
_OPERATIONS = {"ALLREDUCE", "ALLGATHER", "BROADCAST", "JOIN", "ADASUM", "ALLTOALL", "BARRIER", "REDUCESCATTER"}
_ON_DEVICE = ("NCCL_", "WAIT_FOR_DATA", "MEMCPY_IN_HOST_BUFFER", "MEMCPY_OUT_HOST_BUFFER", "INIT_NCCL")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read a file as far as it is whole; the note names a cut last event.

    Source: horovod/common/timeline.cc of Horovod 0.15 to 0.28, whose events are one JSON array without an end::

        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "DistributedGradientTape.grads_3"}},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1204981, "pid": 1},
    """
    facts.mark_covered(
        "timeline", "timeline_activity", "timeline_tensor", "timeline_rank", "timeline_window", "timeline_gap"
    )
    segment = _Segment(name, 0, 0)
    tail = b""
    torn, damaged = 0, list[int]()
    for text in trace_events.texts(stream):
        at = 0
        for boundary in _boundaries(text):
            segment.add(text[at:boundary])
            at = boundary
            if segment.run.events:
                facts.add(segment.rows(facts))
                torn += segment.parser.torn
                damaged += segment.parser.damaged
                segment = _Segment(name, segment.index + 1, segment.parser.number)
        segment.add(text[at:])
        tail = text[-400:]
    if segment.run.events:
        facts.add(segment.rows(facts))
    events = segment.parser.number
    torn += segment.parser.torn
    damaged += segment.parser.damaged
    return Reading(events, events, _note(events, torn, damaged, tail))


def _note(events: int, torn: int, damaged: list[int], tail: bytes) -> str | None:
    """What the user should know of a file with these events, torn places, and this end."""
    rest = tail.rstrip(b" \r\n\t,]")
    cut = bool(rest) and not rest.endswith(b"}")
    if torn > cut:
        return f"has torn events or other text in {torn - cut:,} places, first behind event {damaged[0]:,}; all other events were read"
    if cut:
        return f"ends in the middle of an event, behind event {events:,}: a full disk, a quota or the copy of a growing file"
    return None if events else "holds no event of Horovod"


def _boundaries(text: bytes) -> list[int]:
    """Where a run of Horovod begins: its start time, or the bracket that opens its array."""
    found = []
    for literal in _BOUNDARIES:
        at = text.find(literal)
        while at >= 0:
            found.append(at)
            at = text.find(literal, at + 1)
    return sorted(found)


class _Segment:
    """One run of Horovod in a file."""

    def __init__(self, file: str, index: int, number: int) -> None:
        self.file = file
        self.index = index
        self.started: float | None = None
        self.parser = trace_events.Parser(number)
        self.run = Run(self.parser.names, self.parser.bytes)

    def add(self, text: bytes) -> None:
        epoch = _EPOCH.match(text)
        if epoch:
            self.started = int(epoch[1]) / _SECOND
        self.run.add(self.parser.parse(text))

    def rows(self, facts: Facts) -> Iterator[object]:
        """The rows of this run."""
        run = self.run
        first = run.first if run.first is not None else run.last
        ranks = list(self._ranks(facts))
        whole = facts.evidence(self.file, self.parser.number, self._summary())
        names = {number: self.parser.names[number] for number in run.activities}
        yield self._timeline(first, names, whole)
        for number, activity in run.activities.items():
            yield self._activity(facts, names[number], activity)
        yield from ranks
        sizes = self.parser.bytes
        for tensor, number, n, total in tensors(run):
            label = self._tensor(tensor)
            yield TimelineTensor(
                self.file, self.index, label, sizes.get(tensor), names[number], n, total / 1000, whole
            )  # fmt: skip
        yield from self._windows(first, whole)
        for length, begin, at in run.longest_gaps:
            text = f"nothing pending from {begin / _SECOND:.3f} s on, for {length / _SECOND:.3f} s"
            ref = facts.evidence(self.file, at, text)
            yield TimelineGap(self.file, self.index, begin / _SECOND, length / 1000, ref)

    def _timeline(self, first: int, names: dict[int, str], ref: int) -> Timeline:
        """The row of the whole run; `first` is the time of its first collective in µs."""
        run = self.run
        asked = next((number for number, text in names.items() if text == "NEGOTIATE_ALLREDUCE"), -1)
        negotiate = run.activities.get(asked, Activity())
        return Timeline(
            file=self.file,
            segment=self.index,
            started=self.started,
            start_s=first / _SECOND,
            length_s=max(run.last - first, 0) / _SECOND,
            events=run.events,
            tensors=run.highest,
            ranks=len(run.arrivals) or None,
            ticked=run.ticked,
            negotiations=run.negotiations,
            cycles=run.cycles or None,
            cycle_ms=_ms(run.cycle.quantile()),
            negotiate_s=run.union["negotiate"] / _SECOND,
            negotiate_ms=_ms(negotiate.sample.quantile()),
            collective_s=run.union["collective"] / _SECOND,
            idle_s=run.idle / _SECOND,
            gaps=run.gaps.n,
            gap_ms=_ms(run.gaps.quantile()),
            batches=run.batches,
            batch_tensors=run.batch_tensors.quantile(),
            batch_bytes=run.batch_bytes.quantile(),
            split_batches=run.split,
            open=int((run.open.phase == trace_events.BEGIN).sum()),
            pending=len(run.pending()),
            ready=", ".join(str(rank) for rank in run.ready()) or None,
            device=int(any(text.startswith(_ON_DEVICE) for text in names.values())) or None,
            ref=ref,
        )

    def _summary(self) -> str:
        run = self.run
        work = run.union
        first = run.first if run.first is not None else run.last
        return (
            f"{run.events:,} events; {(run.last - first) / _SECOND:.1f} s from the first collective on, of which negotiation"
            f" {work['negotiate'] / _SECOND:.1f} s, collectives {work['collective'] / _SECOND:.1f} s,"
            f" nothing pending {run.idle / _SECOND:.1f} s"
        )

    def _activity(self, facts: Facts, text: str, activity: Activity) -> TimelineActivity:
        took, begin, pid, number = activity.longest
        shown = (
            f'{{"ph": "B", "name": "{text}", "ts": {begin}, "pid": {pid}}}: {self._tensor(pid)}, {took / 1000:.1f} ms'
        )
        return TimelineActivity(
            file=self.file, segment=self.index, activity=text, kind=_kind(text), n=activity.n,
            total_ms=activity.total / 1000, busy_ms=activity.busy / 1000,
            median_ms=(activity.sample.quantile() or 0.0) / 1000, max_ms=took / 1000,
            ref=facts.evidence(self.file, number, shown),
        )  # fmt: skip

    def _ranks(self, facts: Facts) -> Iterator[TimelineRank]:
        for rank, arrival in sorted(self.run.arrivals.items()):
            late, ts, pid, number = arrival.latest
            shown = f'{{"ph": "X", "name": "{rank}", "ts": {ts}, "pid": {pid}, "dur": 0}}: rank {rank} ready for'
            shown += f" {self._tensor(pid)}, {late / 1000:.1f} ms after the first rank"
            ref = facts.evidence(self.file, number, shown)
            middle = (arrival.sample.quantile() or 0.0) / 1000
            yield TimelineRank(self.file, self.index, rank, arrival.n, arrival.last, middle, ref)

    def _windows(self, first: int, ref: int) -> Iterator[TimelineWindow]:
        windows = self.run.windows
        width = windows.width
        length = self.run.last - first
        for window in range(min(WINDOWS, -(-length // width))):
            at = window * width
            negotiate, allreduce = (
                float(windows.busy[key][window]) / _SECOND if key in windows.busy else 0.0
                for key in ("negotiate", "allreduce")
            )
            piece = min(width, length - at) / _SECOND
            yield TimelineWindow(
                self.file, self.index, window, (first + at) / _SECOND, piece, negotiate, allreduce, ref
            )  # fmt: skip

    def _tensor(self, pid: int) -> str:
        text = self.parser.tensors.get(pid)
        if text is not None:
            return text
        return "all further tensors" if pid >= trace_events.MOST - 1 else f"tensor {pid}"


def _kind(activity: str) -> str:
    if activity.startswith("NEGOTIATE_"):
        return "negotiate"
    if activity in _OPERATIONS:
        return "collective"
    if activity == "QUEUE" or activity.startswith("WAIT_FOR_"):
        return "wait"
    if activity.startswith(("MEMCPY_", "ALLOCATE_", "COPY_", "INIT_FUSION")):
        return "memory"
    return "transfer" if activity.startswith(("NCCL_", "MPI_", "GLOO_", "CCL_")) else "other"


def _ms(value: float | None) -> float | None:
    return None if value is None else value / 1000
