"""What the job is: its GPUs, launcher, framework and versions, over what it talks, and how it ended."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.summary import SOURCES
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    BenchRun,
    Communicator,
    Connection,
    GpuUse,
    Job,
    JobFact,
    Library,
    Link,
    Message,
    NetDevice,
    Network,
    NodeGpu,
    ProcessEnd,
    Progress,
    Rank,
    RecordedRun,
    Ring,
    ThroughputRun,
    Trace,
)  # fmt: skip

# Who started the ranks, by what only that launcher prints: kinds of messages, reporters of ends, labels of lines.
_LAUNCHERS = (
    ("torchrun", "torchelastic%", "torchelastic", None),
    ("mpirun", "mpirun%", "mpirun", "[1,%]<%"),
    ("horovodrun", "horovodrun%", "horovodrun", None),
    ("srun", "srun%", "srun", None),
    ("Ray", "ray-%", "ray", "(%pid=%"),
    ("DeepSpeed", "deepspeed-exit", "deepspeed", None),
    ("Hydra (MPICH)", "hydra%", "hydra", None),
)
_FRAMEWORKS = (
    ("PyTorch", ("torch-%", "torchelastic%", "tcpstore%", "ddp-%")),
    ("Horovod", ("horovod%",)),
    ("TensorFlow", ("tf-%",)),
    ("JAX", ("jax-%", "xla-%")),
)
_GOOD_ENDS = ("training-end",)  # kinds of messages in which a program says that it is done


@derivation(
    fills=[JobFact],
    needs=SOURCES,
    reads=[
        Job, Rank, Link, GpuUse, NodeGpu, BenchRun, Trace, Message, ProcessEnd, Progress, Library, ThroughputRun, Network,
        NetDevice, Connection, Ring, RecordedRun, Communicator,
    ],
)  # fmt: skip
def job_facts(facts: Facts) -> Iterator[JobFact]:
    """What is known of the job as a whole, each with the line that shows it."""
    yield from _machines(facts)
    yield from _software(facts)
    yield from _paths(facts)
    yield from _end(facts)


def _machines(facts: Facts) -> Iterator[JobFact]:
    models = facts.query(
        "SELECT model, min(ref) FROM ("
        " SELECT model, ref FROM gpu_use WHERE model <> '' UNION ALL SELECT model, ref FROM node_gpu WHERE model <> ''"
        " UNION ALL SELECT gpu, ref FROM bench_run WHERE gpu <> '' UNION ALL SELECT device, ref FROM trace WHERE device <> ''"
        ") GROUP BY model ORDER BY count(*) DESC"
    )
    if models:
        yield JobFact("gpu", ", ".join(model for model, _ in models[:3]), models[0][1])
    buses = facts.query(
        "SELECT count(*), min(ref) FROM (SELECT min(ref) AS ref FROM rank WHERE bus_id <> '' GROUP BY host, bus_id)"
    )
    sampled = facts.query("SELECT count(*), min(ref) FROM (SELECT min(ref) AS ref FROM gpu_use GROUP BY host, gpu)")
    count, ref = max((*buses, *sampled), key=lambda row: row[0])
    if count:
        yield JobFact("gpus", str(count), ref)


def _software(facts: Facts) -> Iterator[JobFact]:
    for name, kinds, reporter, label in _LAUNCHERS:
        seen = facts.query(
            "SELECT min(ref) FROM (SELECT ref FROM message WHERE kind LIKE ? UNION ALL"
            " SELECT ref FROM process_end WHERE reporter = ? UNION ALL SELECT ref FROM progress WHERE label LIKE ?)",
            (kinds, reporter, label),
        )[0][0]
        if seen is not None:
            yield JobFact("launcher", name, seen)
            break
    versions = dict(facts.query("SELECT lower(name), min(version) FROM library GROUP BY 1"))
    for name, patterns in _FRAMEWORKS:
        version = versions.get(name.lower())
        where = " OR ".join("kind LIKE ?" for _ in patterns)
        seen = facts.query(
            f"SELECT min(ref) FROM (SELECT ref FROM message WHERE {where} UNION ALL SELECT ref FROM library WHERE lower(name) = ?)",
            (*patterns, name.lower()),
        )[0][0]
        if seen is not None:
            yield JobFact("framework", f"{name} {version}" if version else name, seen)
    program = facts.query(
        "SELECT tool, min(ref) FROM throughput_run WHERE tool NOT IN ('tqdm') GROUP BY tool ORDER BY sum(points) DESC LIMIT 1"
    )
    for tool, ref in program:
        yield JobFact("program", tool, ref)
    for name, query in {
        "cuda": "SELECT DISTINCT built_for, min(ref) FROM library WHERE name IN ('nccl') AND built_for <> '' GROUP BY 1",
        "driver": "SELECT DISTINCT version, min(ref) FROM library WHERE name = 'cuda-driver' GROUP BY 1",
        "plugin": "SELECT DISTINCT name || ' ' || version, min(ref) FROM library WHERE name = 'aws-ofi-nccl' GROUP BY 1",
    }.items():
        rows = facts.query(query)
        if rows:
            yield JobFact(name, ", ".join(value for value, _ in rows[:3]), rows[0][1])


def _paths(facts: Facts) -> Iterator[JobFact]:
    inside = facts.query(
        "SELECT transport || coalesce('/' || nullif(method, ''), ''), min(ref) FROM link WHERE same_host = 1"
        " GROUP BY 1 ORDER BY sum(connections) DESC"
    )
    if inside:
        yield JobFact("inside", ", ".join(name for name, _ in inside[:3]), inside[0][1])
    between = facts.query(
        "SELECT coalesce(nullif(network, ''), transport), max(gdr), min(gdr), max(devices), min(ref) FROM link"
        " WHERE same_host = 0 OR same_host IS NULL AND transport = 'NET' GROUP BY 1 ORDER BY sum(connections) DESC"
    )
    if between:
        yield JobFact("between", ", ".join(name for name, *_ in between[:3]), between[0][-1])
        with_gdr, all_gdr = max(row[1] or 0 for row in between), min(row[2] or 0 for row in between)
        if between[0][0] not in ("Socket",):
            yield JobFact("gpudirect", "yes" if all_gdr else "partly" if with_gdr else "no", between[0][-1])
    else:
        chosen = facts.query("SELECT name, min(ref) FROM network GROUP BY name ORDER BY count(*) DESC")
        multi = facts.query("SELECT coalesce(max(multi_node), 0) FROM job")[0][0]
        if chosen and multi:
            yield JobFact("between", ", ".join(name for name, _ in chosen[:3]), chosen[0][1])
    used = facts.query(
        "SELECT max(n) FROM (SELECT count(DISTINCT device) AS n FROM connection WHERE transport = 'NET' GROUP BY host)"
    )[0][0]
    listed = facts.query(
        "SELECT max(n), min(ref) FROM (SELECT count(DISTINCT name) AS n, min(ref) AS ref FROM net_device GROUP BY host)"
    )[0]
    if listed[0]:
        yield JobFact("nics", f"{used or 0} of {listed[0]}" if used else str(listed[0]), listed[1])
    rings = facts.query("SELECT max(channels), min(ref) FROM ring")[0]
    if rings[0]:
        yield JobFact("channels", str(rings[0]), rings[1])


def _end(facts: Facts) -> Iterator[JobFact]:
    """How the job ended, the surest source first: an exit status, what a launcher reports, what the program says."""
    for command, status, signal, ref in facts.query("SELECT command, status, signal, ref FROM recorded_run"):
        if status is not None and command:
            yield JobFact(
                "end",
                "exit status 0" if status == 0 else f"exit status {status}{f' ({signal})' if signal else ''}",
                ref,
            )
            return
    bad = facts.query(
        "SELECT rank, exitcode, signal, ref FROM process_end WHERE coalesce(exitcode, 1) <> 0 OR signal <> ''"
        " ORDER BY coalesce(first, 0) DESC, ref LIMIT 1"
    )
    if bad:
        rank, exitcode, signal, ref = bad[0]
        who = f"rank {rank}" if rank is not None else "a process"
        yield JobFact("end", f"{who} ended with {signal or f'status {exitcode}'}", ref)
        return
    tests = facts.query("SELECT min(finished), min(coalesce(verdict, 'OK') = 'OK'), count(*), min(ref) FROM bench_run")[
        0
    ]
    if tests[2]:
        unfinished = "nccl-tests did not finish"
        finished = "ended in order" if tests[1] else "nccl-tests finished, and did not pass its own check"
        yield JobFact("end", finished if tests[0] else unfinished, tests[3])
        return
    marks = ",".join("?" for _ in _GOOD_ENDS)
    said = facts.query(f"SELECT max(last_line), ref FROM message WHERE kind IN ({marks}) HAVING count(*)", _GOOD_ENDS)
    if said:
        yield JobFact("end", "ended in order", said[0][1])
        return
    ranks, ended, ref = facts.query(
        "SELECT (SELECT ranks FROM job), count(DISTINCT rank), max(ref) FROM communicator"
        " WHERE phase IN ('destroy', 'finalize') AND nranks IS (SELECT max(nranks) FROM communicator)"
    )[0]
    if ranks and ended and ended >= ranks:
        yield JobFact("end", "ended in order", ref)
