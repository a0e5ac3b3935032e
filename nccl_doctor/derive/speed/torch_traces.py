"""Compares the traces of several ranks: who comes last to the collectives, and what the others pay for it."""

from collections import defaultdict
from collections.abc import Iterator

from nccl_doctor.common.robust import median
from nccl_doctor.derive.declaration import derivation
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Trace, TraceArrival, TraceCall

_CLEAR = 1.5  # times the shortest, from which the others have waited …
_LEAST = 0.5  # … and ms
_NOT_COMPARED = ("send", "recv", "send_recv", "wait", "coalesced")


@derivation(fills=[TraceArrival], needs=[TraceCall], reads=[Trace])
def trace_arrivals(facts: Facts) -> Iterator[TraceArrival]:
    """How long each traced rank waited in the collectives that it shared with others."""
    traces = facts.query("SELECT rank, host, span_s, ref, file FROM trace WHERE rank IS NOT NULL ORDER BY rank, file")
    first: dict[int, tuple[str | None, float, int, str]] = {}
    for rank, host, span, ref, file in traces:
        first.setdefault(rank, (host, span, ref, file))
    calls: dict[tuple[str, str, int], dict[int, TraceCall]] = defaultdict(dict)
    for call in facts.rows(TraceCall):
        if (
            call.rank is not None
            and call.rank in first
            and call.file == first[call.rank][3]
            and call.op not in _NOT_COMPARED
        ):
            calls[call.pg, call.op, call.seq].setdefault(call.rank, call)
    took: dict[int, list[float]] = defaultdict(list)
    shortest: dict[int, int] = defaultdict(int)
    waited: dict[int, float] = defaultdict(float)
    caused: dict[int, float] = defaultdict(float)
    shared: dict[int, int] = defaultdict(int)
    for ranks in calls.values():
        if len(ranks) < 2 or len({call.elements for call in ranks.values()}) > 1:
            continue
        least = min(ranks.values(), key=lambda call: call.took_ms)
        others = [call.took_ms for call in ranks.values() if call is not least]
        for rank, call in ranks.items():
            shared[rank] += 1
            took[rank].append(call.took_ms)
            waited[rank] += (call.took_ms - least.took_ms) / 1000
        middle = median(others)
        if middle >= _CLEAR * least.took_ms and middle - least.took_ms >= _LEAST and least.rank is not None:
            shortest[least.rank] += 1
            caused[least.rank] += sum(other - least.took_ms for other in others) / len(others) / 1000
    for rank, count in sorted(shared.items()):
        host, span, ref, _ = first[rank]
        yield TraceArrival(
            rank=rank, host=host, calls=count, shortest=shortest[rank], took_ms=median(took[rank]),
            waited_s=waited[rank], caused_s=caused[rank], span_s=span, ref=ref,
        )  # fmt: skip
