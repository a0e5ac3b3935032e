"""How much of the job the inputs show, aspect by aspect. The verdict follows from it: health is earned, not assumed."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.summary import SOURCES
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    BenchRow,
    BenchRun,
    Collection,
    Collective,
    CommOp,
    Coverage,
    Env,
    GpuUse,
    InspectorColl,
    Job,
    JobFact,
    Library,
    Link,
    Message,
    MlperfRun,
    Network,
    NodeGpu,
    Progress,
    Rank,
    RecorderCall,
    RollCall,
    Scalar,
    ThroughputRun,
    Timeline,
    Trace,
    TraceOp,
)  # fmt: skip

ASPECTS = (
    "start-up", "transports", "network", "settings", "versions", "collectives", "progress", "end", "gpus", "nodes",
)  # fmt: skip
CAPTURE = {
    "start-up": "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP",
    "transports": "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,NET,GRAPH",
    "network": "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET",
    "settings": "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV",
    "versions": "NCCL_DEBUG=VERSION",
    "collectives": "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and a dump, or NCCL_DEBUG_SUBSYS=COLL for a short run",
    "progress": "the step lines of the training program",
    "end": "the whole output, with the launcher's last lines and the exit status (`nccl-doctor record -- CMD`)",
    "gpus": "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw --format=csv -l 1 > gpu.csv",
    "nodes": "nccl-doctor preflight --save node.tar on each node",
}


@derivation(
    fills=[Coverage],
    needs=SOURCES,
    reads=[
        Job, JobFact, Rank, Link, ThroughputRun, BenchRow, BenchRun, Timeline, Trace, TraceOp, InspectorColl, CommOp, Progress, Collective,
        Network, Env, Library, RecorderCall, GpuUse, NodeGpu, Collection, Message, RollCall, Scalar, MlperfRun,
    ],
)  # fmt: skip
def coverage(facts: Facts) -> Iterator[Coverage]:
    """One row an aspect."""
    shown = {row.aspect: row for row in _seen(facts)}
    for aspect in ASPECTS:
        yield shown.get(aspect) or Coverage(aspect, "not", None, CAPTURE[aspect], None)


def _seen(facts: Facts) -> Iterator[Coverage]:
    for aspect, rows in (
        ("start-up", _start_up(facts)),
        ("transports", _transports(facts)),
        ("progress", _progress(facts)),
        ("end", _end(facts)),
        *((aspect, _counted(facts, query)) for aspect, query in _COUNTED.items()),
    ):
        if rows is not None:
            seen, shows, ref = rows
            yield Coverage(aspect, seen, shows, CAPTURE[aspect], ref)


# Of runs that are as the others of their file, not all rows are kept.
_BENCH_ROWS = "max(count(*), coalesce((SELECT sum(rows) FROM bench_run), 0))"
Seen = tuple[str, str, int | None] | None  # seen or partly, what, evidence


def _start_up(facts: Facts) -> Seen:
    """Which ranks came up, by NCCL's own lines. Steps show that some did, not that all did."""
    ranks = facts.query("SELECT ranks FROM job")[0][0]
    up, known, ref = facts.query(
        "SELECT coalesce(sum(initialised = 1), 0), count(*), min(ref) FROM rank WHERE initialised IS NOT NULL"
    )[0]
    if known:
        total = max(ranks or 0, known)
        return ("seen" if up >= total else "partly"), f"{up} of {total} {_plural(total, 'rank')} came up", ref
    for size, ref in facts.query(
        "SELECT c.size, m.ref FROM roll_call c, message m WHERE c.source = 'announced' AND c.unit = 'process' AND c.came >= c.size"
        " AND m.kind = 'ranks-all-registered' LIMIT 1"
    ):
        return "seen", f"{size} of {size} {_plural(size, 'rank')} came up", ref
    if (moved := _progress(facts)) is not None:
        return "partly", "the job computed", moved[2]
    return None


def _transports(facts: Facts) -> Seen:
    inside, between, ref = facts.query(
        "SELECT sum(same_host = 1), sum(same_host = 0 OR transport = 'NET'), min(ref) FROM link"
    )[0]
    multi = facts.query("SELECT coalesce(max(multi_node), 0) FROM job")[0][0]
    if not inside and not between:
        return None
    parts = [text for n, text in ((inside, "inside nodes"), (between, "between nodes")) if n]
    return ("seen" if between or not multi else "partly"), " and ".join(parts), ref


def _progress(facts: Facts) -> Seen:
    """Work that went on after the start: steps, sizes of a benchmark, timelines, traces."""
    steps, ref = facts.query("SELECT sum(points), min(ref) FROM throughput_run")[0]
    if steps and (steps >= 3 or not facts.query("SELECT 1 FROM mlperf_run WHERE status = 'success' LIMIT 1")):
        return ("seen" if steps >= 3 else "partly"), f"{steps} {_plural(steps, 'step line')}", ref
    for query, noun in (
        ("SELECT count(*), min(ref) FROM mlperf_run WHERE status = 'success'", "successful MLPerf run"),
        (f"SELECT {_BENCH_ROWS}, min(ref) FROM bench_row", "nccl-tests row"),
        ("SELECT count(*), min(ref) FROM timeline WHERE negotiations > 0", "Horovod timeline"),
        ("SELECT sum(steps), min(ref) FROM trace", "profiler step"),
        ("SELECT sum(n), min(ref) FROM inspector_coll", "collective"),
        ("SELECT sum(n), min(ref) FROM comm_op", "collective"),
        (
            "SELECT max(n), min(ref) FROM scalar WHERE n > 2 AND (last_step > first_step OR last_step IS NULL)",
            "logged value",
        ),
    ):
        count, ref = facts.query(query)[0]
        if count:
            return "seen", f"{count} {_plural(count, noun)}", ref
    times, ref = facts.query("SELECT max(times), ref FROM progress")[0]
    if times and times >= 3:
        return "partly", f"{times} lines of one shape", ref
    calls, ref = facts.query("SELECT sum(n), min(ref) FROM collective")[0]
    return ("partly", f"{calls} collectives enqueued", ref) if calls else None


def _end(facts: Facts) -> Seen:
    rows = facts.query("SELECT value, ref FROM job_fact WHERE name = 'end'")
    return ("seen", rows[0][0], rows[0][1]) if rows else None


# A count of rows, a clause with `{}` for it, evidence.
_COUNTED = {
    "network": (
        "SELECT count(DISTINCT coalesce(host, '') || coalesce(rank, pid)), group_concat(DISTINCT name), min(ref) FROM network",
        "{names}",
    ),
    "settings": ("SELECT count(DISTINCT name), '', min(ref) FROM env", "{n} settings"),
    "versions": (
        "SELECT count(DISTINCT name || version), group_concat(DISTINCT name || ' ' || version), min(ref) FROM library",
        "{names}",
    ),
    "collectives": (
        "SELECT sum(n), '', min(ref) FROM (SELECT sum(n) AS n, min(ref) AS ref FROM collective"
        " UNION ALL SELECT count(*), NULL FROM recorder_call UNION ALL SELECT sum(n), min(ref) FROM trace_op"
        f" UNION ALL SELECT {_BENCH_ROWS}, min(ref) FROM bench_row UNION ALL SELECT sum(negotiations), min(ref) FROM timeline"
        " UNION ALL SELECT sum(n), min(ref) FROM inspector_coll UNION ALL SELECT sum(n), min(ref) FROM comm_op)",
        "{n} collectives",
    ),
    "gpus": (
        "SELECT sum(n), '', min(ref) FROM (SELECT count(*) AS n, min(ref) AS ref FROM gpu_use"
        " UNION ALL SELECT count(*), min(ref) FROM node_gpu)",
        "{n} GPUs",
    ),
    "nodes": ("SELECT count(DISTINCT host), '', min(ref) FROM collection", "{n} nodes"),
}


def _counted(facts: Facts, question: tuple[str, str]) -> Seen:
    query, clause = question
    n, names, ref = facts.query(query)[0]
    return ("seen", clause.format(n=n, names=(names or "").replace(",", ", ")[:120]), ref) if n else None


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"
