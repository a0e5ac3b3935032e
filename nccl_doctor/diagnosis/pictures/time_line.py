"""What happened when: steps, findings, errors of GPUs, throttling and restarts on one axis, by the clock of each input."""

from collections.abc import Iterable, Iterator, Sequence

from nccl_doctor.common.timestamps import moment
from nccl_doctor.derive.prejob_kernel_events import job_year
from nccl_doctor.diagnosis.picture import Span, TimeLine
from nccl_doctor.diagnosis.report import Finding
from nccl_doctor.facts.store import Facts

LANES = 40  # of GPUs that were throttled, and of runs
MARKS = 400  # in one lane
APART = 3_600.0  # seconds; what is further from the job than this, or than the job is long, is not of the job
_STEPS = """
SELECT r.run, r.tool, min(s.stamp), max(s.stamp) FROM step s JOIN throughput_run r USING (run) WHERE s.stamp IS NOT NULL
GROUP BY r.run ORDER BY count(*) DESC LIMIT ?
"""
_STALLS = """
SELECT a.stamp - s.seconds, a.stamp, s.step FROM stall s JOIN step a ON a.run = s.run AND a.step = s.step
WHERE a.stamp IS NOT NULL LIMIT ?
"""
_XIDS = "SELECT stamp, kind, code, coalesce(host, '') FROM xid WHERE stamp IS NOT NULL ORDER BY stamp LIMIT ?"
_THROTTLED = """
SELECT coalesce(host, ''), gpu, reason, start, end FROM throttle_span WHERE start IS NOT NULL ORDER BY 1, 2, start
"""
_PROCESSES = "SELECT min(stamp), max(stamp) FROM process WHERE stamp IS NOT NULL"
TABLES = ("lead", "throttled_steps", "xid")


def pictures(facts: Facts, findings: Sequence[Finding]) -> Iterator[TimeLine]:
    """The lanes, where at least two things have a time."""
    job = list(_job(facts))
    happened = list(_happened(facts, findings))
    spans = [span for _, spans in job for span in spans] or [span for _, spans in happened for span in spans]
    if not spans:
        return
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    apart = max(APART, last - first)
    lanes = [
        (name, tuple(span for span in spans if first - apart <= span.start <= last + apart)[:MARKS])
        for name, spans in job + happened
    ]
    lanes = [(name, spans) for name, spans in lanes if spans]
    marks = sum(len(spans) for _, spans in lanes)
    if marks < 2 or len({when for _, spans in lanes for span in spans for when in (span.start, span.end)}) < 2:
        return
    yield TimeLine(
        name="time-line",
        title="What happened when",
        summary="Times are those of each input's own clock; inputs from different time zones are not aligned.",
        lanes=tuple(lanes),
        tables=TABLES,
    )


def _job(facts: Facts) -> Iterator[tuple[str, list[Span]]]:
    """When the job itself wrote."""
    for first, last in facts.query(_PROCESSES):
        if first is not None:
            yield "last NCCL lines of ranks", [Span(first, last, "the first rank to fall silent, to the last")]
    for run, tool, first, last in facts.query(_STEPS, (LANES,)):
        yield f"steps ({tool})", [Span(first, last, f"run {run}")]


def _happened(facts: Facts, findings: Sequence[Finding]) -> Iterator[tuple[str, list[Span]]]:
    """What befell it."""
    stalls = [
        Span(start, end, f"step {step} stalled", "warning") for start, end, step in facts.query(_STALLS, (MARKS,))
    ]
    yield "stalled steps", stalls
    yield (
        "errors of GPUs",
        [
            Span(at, at, f"{kind.capitalize()} {code} {host}".strip(), "error")
            for at, kind, code, host in facts.query(_XIDS, (MARKS,))
        ],
    )
    lanes: dict[str, list[Span]] = {}
    for host, gpu, reason, start, end in facts.query(_THROTTLED):
        lanes.setdefault(f"GPU {host} {gpu} held back".replace("  ", " "), []).append(
            Span(start, end, reason, "warning")
        )
    yield from list(lanes.items())[:LANES]
    yield "findings", list(_findings(findings, job_year(facts)))


def _findings(findings: Iterable[Finding], year: int | None) -> Iterator[Span]:
    """The first line of each finding that carries a date."""
    for at, finding in enumerate(findings, 1):
        known = [when.seconds for place in finding.evidence if (when := moment(place.text, year)) is not None]
        if known:
            yield Span(min(known), min(known), f"{at}. {finding.title}", finding.severity)
