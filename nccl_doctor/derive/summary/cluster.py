"""What lists of nodes, jobs and pods show, one clause each."""

import re
from collections import defaultdict
from collections.abc import Iterator
from math import prod

from nccl_doctor.common.plurals import counted
from nccl_doctor.derive.summary import Clause, amount
from nccl_doctor.facts.store import Facts

_MOST_STATES = 5
_BRACKETS = re.compile(r"\[([\d,-]{1,4000})\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def nodes_in(names: str) -> int:
    """How many nodes a list of Slurm names: 4 in `node[01-03],login1`; 1 where it is none."""
    parts: list[list[str]] = []
    inside = False  # of brackets, where a comma separates numbers
    for piece in names.split(","):
        if inside:
            parts[-1].append(piece)
        else:
            parts.append([piece])
        bracket = max(piece.rfind("["), piece.rfind("]"))
        inside = piece[bracket] == "[" if bracket >= 0 else inside
    return sum(
        prod(
            sum(max(int(last) - int(first) + 1, 1) if last else 1 for first, last in _RANGE.findall(ranges))
            for ranges in _BRACKETS.findall(",".join(part))
        )
        for part in parts
    )


def scheduler(facts: Facts) -> Iterator[Clause]:
    """Nodes by their state and jobs in the queue; parts of a state that say little, such as `*` of a node that is silent, are left out."""
    for name, table in (("node", "scheduler_node"), ("job", "queued_job")):
        by_state: dict[str, int] = defaultdict(int)
        first = None
        named = "host" if name == "node" else "NULL"
        for state, host, count, ref in facts.query(
            f"SELECT lower(rtrim(state, '*~#!%$@^-')), {named}, count(*), min(ref) FROM {table} GROUP BY 1, 2"
        ):
            by_state[state] += count if host is None else nodes_in(host)
            first = ref if first is None else min(first, ref)
        if by_state:
            shown = sorted(by_state.items(), key=lambda part: (-part[1], part[0]))
            kept = [part for at, part in enumerate(shown) if at < _MOST_STATES or part[0] in _BAD_STATES]
            others = sum(by_state.values()) - sum(count for _, count in kept)
            parts = ", ".join(f"{count:,} {_STATES.get(state, state)}" for state, count in kept)
            parts += f", {others:,} in other states" if others else ""
            yield f"{'queue' if name == 'job' else 'Slurm'}: {counted(sum(by_state.values()), name)} ({parts})", first


_STATES = {"pd": "waiting", "r": "running", "cg": "ending", "pending": "waiting", "completing": "ending"}  # of squeue
_BAD_STATES = {
    "failed", "f", "timeout", "to", "node_fail", "nf", "out_of_memory", "oom", "boot_fail", "bf", "deadline", "dl",
    "down", "fail", "failing", "drain", "drained", "drng", "draining", "not_responding",
}  # fmt: skip
"""That are shown however few they are."""


def pods(facts: Facts) -> Iterator[Clause]:
    """Pods by their state, and the GPUs that they ask for."""
    rows = facts.query("SELECT status, count(*), min(ref) FROM listed_pod GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5")
    if rows:
        parts = ", ".join(f"{count:,} {status}" for status, count, _ in rows)
        gpus = facts.query("SELECT sum(gpus) FROM kube_pod WHERE kind = 'Pod'")[0][0]
        asked = f" for {counted(gpus, 'GPU')}" if gpus else ""
        yield f"Kubernetes: {counted(sum(row[1] for row in rows), 'pod')}{asked} ({parts})", rows[0][2]


def nodes(facts: Facts) -> Iterator[Clause]:
    """Nodes of Kubernetes: how many are ready, and how many were cordoned."""
    for total, ready, cordoned, ref in facts.query(
        "SELECT count(*), sum(ready), sum(cordoned), min(ref) FROM (SELECT max(bad = 0 AND condition = 'Ready') AS ready,"
        " max(condition = 'SchedulingDisabled') AS cordoned, min(ref) AS ref FROM kube_node GROUP BY host) GROUP BY NULL HAVING count(*)"
    ):
        yield (
            f"Kubernetes: {counted(total, 'node')}, {ready} ready" + (f", {cordoned} cordoned" if cordoned else ""),
            ref,
        )


def accounting(facts: Facts) -> Iterator[Clause]:
    """The numbers of a single job of an accounting: how long it ran, the memory and the share of its CPUs that it used."""
    rows = facts.query(
        "SELECT job, elapsed_s, max_rss, cpu_efficiency, ref FROM accounted_job WHERE scheduler <> 'slurm' OR instr(job, '.') = 0 LIMIT 2"
    )
    if len(rows) != 1 or not rows[0][0]:
        yield from _waits(facts)
        return
    job, elapsed, memory, efficiency, ref = rows[0]
    parts = [f"ran {_clock(elapsed)}"] if elapsed is not None else []
    parts += [amount(memory * (1 << 20), "B") + " of memory used"] if memory is not None else []
    parts += [f"{100 * efficiency:.4g} % of its CPU time used"] if efficiency is not None else []
    if parts:
        yield f"job {job}: {', '.join(parts)}", ref


def _waits(facts: Facts) -> Iterator[Clause]:
    """Of many jobs the one that ran longest and the one that waited longest."""
    for jobs, ref in facts.query(
        "SELECT count(*), min(ref) FROM accounted_job WHERE waited_s IS NOT NULL GROUP BY NULL HAVING count(*)"
    ):
        longest = [
            f"{job} {did} longest ({_clock(seconds)})"
            for did, column in (("ran", "elapsed_s"), ("waited", "waited_s"))
            for job, seconds in _most(facts, column)
        ]
        yield ", ".join([counted(jobs, "job"), *longest]), ref


def _most(facts: Facts, column: str) -> list[tuple[str, float]]:
    """The job that has most of this, and how much; none where no job tells it."""
    return facts.query(f"SELECT job, {column} FROM accounted_job WHERE {column} > 0 ORDER BY 2 DESC LIMIT 1")


def _clock(seconds: float) -> str:
    """`2:33:20`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def host_values(facts: Facts) -> Iterator[Clause]:
    """What most hosts print where a command printed one value on each, and on how many it is another one."""
    for hosts, positions, ref in facts.query(
        "SELECT count(DISTINCT host), max(position), min(ref) FROM host_value GROUP BY NULL HAVING count(*)"
    ):
        value, same = facts.query("SELECT value, count(*) FROM host_value GROUP BY value ORDER BY 2 DESC, 1 LIMIT 1")[0]
        if positions == 1:
            yield f"{counted(hosts, 'host')}: {value} on {same}", ref


_FIRST_PACKAGES = "'torch', 'tensorflow', 'jax', 'mxnet', 'paddlepaddle-gpu', 'horovod', 'deepspeed', 'vllm'"


def packages(facts: Facts) -> Iterator[Clause]:
    """Frameworks and libraries for GPUs of a list of packages, where nothing else was read."""
    if any(facts.query(f"SELECT 1 FROM {table} LIMIT 1") for table in ("message", "process", "throughput_run")):
        return
    for source, ref in facts.query("SELECT source, min(ref) FROM package GROUP BY source"):
        rows = facts.query(
            f"SELECT name || ' ' || version FROM package WHERE source = ? ORDER BY name NOT IN ({_FIRST_PACKAGES}), name LIMIT 5",
            (source,),
        )
        yield f"{source}: {', '.join(text for (text,) in rows)}", ref
