"""What the job is: its hosts, GPUs, launcher, framework and versions, and over what it talks. How it ended is in `ends`."""

from collections.abc import Iterator

from nccl_doctor.derive.declaration import derivation
from nccl_doctor.derive.summary import GPU_OF_USE, SOURCES
from nccl_doctor.derive.summary.ends import end_of
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    AccountedJob,
    BenchMember,
    BenchRun,
    Communicator,
    Connection,
    GpuUse,
    Job,
    JobFact,
    Library,
    Link,
    Message,
    MlperfRun,
    NetDevice,
    Network,
    NodeDriver,
    NodeGpu,
    ProcessEnd,
    Progress,
    Rank,
    RecordedRun,
    Recorder,
    Restart,
    Ring,
    ThroughputRun,
    Timeline,
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
# Programs by whose step lines a framework is known.
_PROGRAMS = {
    "PyTorch": (
        "megatron", "deepspeed", "deepspeed-timers", "deepspeed-chat", "hf-trainer", "fairseq", "torchtitan", "composer", "timm",
        "pytorch-example",
    ),
    "TensorFlow": ("tf-official", "tf-cnn-benchmarks"),
    "Horovod": ("horovod-synthetic",),
}  # fmt: skip


@derivation(
    fills=[JobFact],
    needs=SOURCES,
    reads=[
        Job, Rank, Link, GpuUse, NodeGpu, NodeDriver, BenchRun, BenchMember, Trace, Timeline, Recorder, Message, ProcessEnd, Progress,
        Library, ThroughputRun, Network, NetDevice, Connection, Ring, RecordedRun, Communicator, Restart, MlperfRun,
        AccountedJob,
    ],
)  # fmt: skip
def job_facts(facts: Facts) -> Iterator[JobFact]:
    """What is known of the job as a whole, each with the line that shows it."""
    yield from _size(facts)
    yield from _machines(facts)
    yield from _software(facts)
    yield from _paths(facts)
    for count, ref in facts.query("SELECT count(*), min(ref) FROM restart GROUP BY file ORDER BY 1 DESC LIMIT 1"):
        yield JobFact("restarts", str(count), ref)
    if (ended := end_of(facts)) is not None:
        yield JobFact("end", *ended)


def _size(facts: Facts) -> Iterator[JobFact]:
    """Hosts and ranks, where the log of NCCL does not count them."""
    hosts, ranks = facts.query("SELECT hosts, ranks FROM job")[0]
    if hosts is None:
        named = facts.query(  # each of several runs may have hosts of its own
            "SELECT max(n), ref FROM (SELECT max(hosts) AS n, ref FROM bench_run GROUP BY NULL"
            " UNION ALL SELECT count(DISTINCT host), min(ref) FROM bench_member) GROUP BY NULL HAVING max(n)"
        )
        yield from (JobFact("hosts", str(count), ref) for count, ref in named)
    if (ranks or 0) < 2:  # a launcher's prefix may name the one task that prints
        for query in (
            "SELECT max(ranks), ref FROM bench_run GROUP BY NULL HAVING max(ranks)",
            "SELECT max(world), ref FROM trace GROUP BY NULL HAVING max(world)",
            "SELECT max(ranks), ref FROM timeline GROUP BY NULL HAVING max(ranks)",
        ):
            if rows := facts.query(query):
                yield JobFact("ranks", str(rows[0][0]), rows[0][1])
                return


def _machines(facts: Facts) -> Iterator[JobFact]:
    models = facts.query(
        "SELECT model, min(ref) FROM ("
        " SELECT model, ref FROM gpu_use WHERE model <> '' UNION ALL SELECT model, ref FROM node_gpu WHERE model <> ''"
        " UNION ALL SELECT gpu, ref FROM bench_run WHERE gpu <> ''"
        " UNION ALL SELECT device, ref FROM trace WHERE device <> ''"
        ") GROUP BY model ORDER BY count(*) DESC"
    ) or facts.query(  # the head of nccl-tests without its table
        "SELECT field(fields, 'model'), min(ref) FROM message WHERE kind = 'nccl-tests-device' GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
    )
    if models:
        yield JobFact("gpu", ", ".join(model for model, _ in models[:3]), models[0][1])
    counts = [
        *facts.query(
            "SELECT count(*), min(ref) FROM (SELECT min(ref) AS ref FROM rank WHERE bus_id <> '' GROUP BY host, bus_id)"
        ),
        *facts.query(
            f"SELECT count(*), min(ref) FROM (SELECT min(ref) AS ref FROM gpu_use GROUP BY host, gpu, {GPU_OF_USE})"
        ),
        *facts.query("SELECT count(*), min(ref) FROM (SELECT min(ref) AS ref FROM node_gpu GROUP BY host, gpu)"),
        *facts.query("SELECT max(ranks), ref FROM bench_run WHERE shared_gpu = 0 GROUP BY NULL HAVING max(ranks)"),
        *facts.query(
            "SELECT count(*), min(ref) FROM (SELECT min(ref) AS ref FROM message WHERE kind = 'nccl-tests-device'"
            " GROUP BY field(fields, 'test_host'), field(fields, 'device'), field(fields, 'bus'))"
        ),
        *facts.query(
            "SELECT max(gpus), ref FROM throughput_run WHERE gpus_source <> 'file-name' GROUP BY NULL HAVING max(gpus)"
        ),
    ]
    count, ref = max(counts, key=lambda row: row[0])
    ranks, placed = facts.query(
        "SELECT ranks, (SELECT count(*) FROM rank WHERE bus_id <> '' AND host IS NOT NULL) FROM job"
    )[0]
    if count and (count >= (ranks or 0) or placed >= ranks):  # else the input names the GPUs of some ranks only
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
        tools = _PROGRAMS.get(name, ())
        seen = facts.query(
            f"SELECT min(ref) FROM (SELECT ref FROM message WHERE {where} UNION ALL SELECT ref FROM library WHERE lower(name) = ?"
            f" UNION ALL SELECT ref FROM throughput_run WHERE tool IN ({','.join('?' for _ in tools)}))",
            (*patterns, name.lower(), *tools),
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
        "cuda_driver": "SELECT DISTINCT version, min(ref) FROM library WHERE name = 'cuda-driver' GROUP BY 1",
        "driver": "SELECT DISTINCT version, min(ref) FROM (SELECT field(fields, 'driver') AS version, ref FROM message"
        " WHERE kind = 'smi-driver-version' UNION ALL SELECT driver, ref FROM node_driver) WHERE version <> '' GROUP BY 1",
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
    # The rings of the largest communicator: smaller ones, inside a node, have more channels.
    rings = facts.query(
        "SELECT channels, ref FROM ring WHERE channels ORDER BY length(order_) DESC, cut DESC, channels DESC LIMIT 1"
    )
    if rings:
        yield JobFact("channels", str(rings[0][0]), rings[0][1])
