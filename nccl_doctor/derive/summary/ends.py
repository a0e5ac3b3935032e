"""How the job ended, the surest source first: an exit status, what a launcher reports, a scheduler, what the program says."""

from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.knowledge import codes

IN_ORDER = "ended in order"
_SCHEDULERS = {  # kinds of messages of schedulers -> clause
    "slurm-time-limit": "ended by Slurm at the time limit",
    "slurm-cancelled": "cancelled through Slurm",
    "slurm-preempted": "preempted by Slurm",
    "slurm-node-failure": "ended by Slurm after a node failed",
    "pbs-killed": "ended by PBS",
    "lsf-killed": "ended by LSF",
    "k8s-evicted": "evicted by Kubernetes",
    "k8s-deadline": "ended by Kubernetes at its deadline",
}
_GOOD_ENDS = ("training-end",)  # kinds of messages in which a program says that it is done

End = tuple[str, int | None]  # clause, evidence


def end_of(facts: Facts) -> End | None:
    """How the job ended; None where nothing says it."""
    for source in (_recorded, _accounted, _reported, _flux, _benchmark, _mlperf, _said, _destroyed):
        if (ended := source(facts)) is not None:
            return ended
    return None


def _recorded(facts: Facts) -> End | None:
    """The end that `record` wrote; one that only watched jobs (its command is empty) does not know theirs."""
    rows = facts.query(
        "SELECT e.status, e.signal, e.sent, e.ref FROM recorded_run e LEFT JOIN recorded_run r"
        " ON r.command IS NOT NULL AND r.file = replace(e.file, 'end.json', 'run.json')"
        " WHERE e.status IS NOT NULL AND coalesce(r.command, '?') <> '' ORDER BY e.status = 0, e.ref LIMIT 1"
    )
    for status, signal, sent, ref in rows:
        if not status:
            return IN_ORDER, ref
        if signal and sent and signal in sent:
            return f"ended by {signal}, sent to the recorder", ref
        return signal or f"exit status {status}", ref
    return None


def _accounted(facts: Facts) -> End | None:
    """What an accounting says of its jobs, where nothing else shows one: `3 jobs: 1 timeout, 2 completed`, `job 4711 is pending`.

    How a single job failed, `_reported` says better.
    """
    rows = facts.query(
        "SELECT replace(lower(coalesce(state, 'unknown')), '_', ' '), count(*), min(job), min(ref) FROM accounted_job"
        " WHERE (scheduler <> 'slurm' OR instr(job, '.') = 0) AND (state IS NOT NULL OR waited_s IS NULL)"
        " GROUP BY 1 ORDER BY 1 IN ('completed', 'running', 'pending'), 2 DESC, 1"
    )
    number = sum(count for _, count, *_ in rows)
    if not rows or facts.query("SELECT 1 FROM job WHERE has_nccl = 1 UNION ALL SELECT 1 FROM throughput_run LIMIT 1"):
        return None
    state, _, job, ref = rows[0]
    if number == 1:
        if state == "completed":
            return IN_ORDER, ref
        return (f"job {job} is {state}", ref) if state in ("running", "pending") else None
    return f"{number:,} jobs: {', '.join(f'{count:,} {state}' for state, count, *_ in rows)}", ref


def _reported(facts: Facts) -> End | None:
    """A process that ended badly, or a scheduler that ended the job before that; a run of MLPerf that succeeds behind it did without."""
    # A launcher ends the others with SIGTERM; torchelastic may call one of those the first failure that it observed.
    rows = facts.query(
        "SELECT rank, host, exitcode, signal, reporter, ref FROM process_end WHERE (coalesce(exitcode, 1) <> 0 OR signal <> '')"
        " AND NOT EXISTS (SELECT 1 FROM target_reached g JOIN evidence p ON p.id = process_end.ref"
        " WHERE g.file = p.file AND g.line > p.line)"
        " ORDER BY exitcode IS NULL AND signal IS NULL, coalesce(exitcode IN (-15, 143) OR signal IN ('SIGTERM', '15', 'Terminated'), 0),"
        " coalesce(first, 0) DESC, rank IS NULL, signal IS NULL, ref LIMIT 1"
    )
    marks = ",".join("?" for _ in _SCHEDULERS)
    ended = facts.query(f"SELECT kind, ref FROM message WHERE kind IN ({marks}) ORDER BY ref", tuple(_SCHEDULERS))
    ended.sort(key=lambda row: list(_SCHEDULERS).index(row[0]))
    if ended and (not rows or ended[0][1] < rows[0][-1]):
        return _SCHEDULERS[ended[0][0]], ended[0][1]
    for rank, host, exitcode, signal, reporter, ref in rows:
        who = f"rank {rank}" if rank is not None else f"a process on {host}" if host else "a process"
        how = _how(exitcode, signal, killed=reporter == "hydra" and _by_signal(facts))
        return (f"{who} ended with {how}" if how else f"{who} did not end in order"), ref
    return None


def _flux(facts: Facts) -> End | None:
    """The wait status of the last job that an eventlog of Flux shows the end of."""
    rows = facts.query(
        "SELECT CAST(field(fields, 'status') AS INTEGER), ref FROM message WHERE kind = 'flux-job-finish' ORDER BY last_line DESC LIMIT 1"
    )
    for status, ref in rows:
        if not status:
            return IN_ORDER, ref
        return f"the job ended with {_signal(str(status & 127)) if status & 127 else f'status {status >> 8}'}", ref
    return None


def _by_signal(facts: Facts) -> bool:
    """Whether Hydra says that its exit code is the number of a signal."""
    return bool(
        facts.query("SELECT 1 FROM message WHERE kind = 'hydra-exit-string' AND text LIKE '%(signal %' LIMIT 1")
    )


def _how(exitcode: int | None, signal: str | None, *, killed: bool) -> str:
    """`status 3`, `SIGKILL`, `status 137 (SIGKILL)`; empty where neither is known."""
    name = _signal(signal)
    if name:
        return name
    if exitcode is None:
        return ""
    if killed or exitcode < 0:
        return _signal(str(abs(exitcode)))
    return f"status {exitcode}" + (f" ({_signal(str(exitcode - 128))})" if 128 < exitcode < 160 else "")


def _signal(text: str | None) -> str:
    """`SIGKILL` for `9`, `Killed` or `SIGKILL`; the text itself where no signal is called so."""
    if not text:
        return ""
    entry: dict[str, Any] | None = (
        codes.by_code("signal", int(text)) if text.isdecimal() else codes.by_name("signal", text)
    )
    if entry is not None:
        return str(entry["name"])
    return f"signal {text}" if text.isdecimal() else _PRINTED.get(text.lower().split(" (")[0], text)


_PRINTED = {  # strsignal(3) in the C locale
    "killed": "SIGKILL", "segmentation fault": "SIGSEGV", "aborted": "SIGABRT", "terminated": "SIGTERM", "bus error": "SIGBUS",
    "floating point exception": "SIGFPE", "illegal instruction": "SIGILL", "hangup": "SIGHUP", "interrupt": "SIGINT",
}  # fmt: skip


def _mlperf(facts: Facts) -> End | None:
    """What `run_stop` of the last run says; None where a run has not stopped."""
    rows = facts.query("SELECT status, ref FROM mlperf_run ORDER BY ref DESC LIMIT 1")
    for status, ref in rows:
        return (IN_ORDER if status == "success" else f"run {status}", ref) if status else None
    return None


def _benchmark(facts: Facts) -> End | None:
    """nccl-tests; where several ran one after the other in a file, the last may be cut and the others not."""
    runs, finished, passed, ref = facts.query(
        "SELECT count(*), sum(finished), min(coalesce(verdict, 'OK') = 'OK'), max(ref) FROM bench_run"
    )[0]
    if not runs:
        return None
    for copies, ended, alone, shown in facts.query(
        "SELECT max(copies), sum(finished), max(ranks) = 1, min(ref) FROM bench_run GROUP BY file HAVING max(copies) > 1 LIMIT 1"
    ):
        end = IN_ORDER if ended >= copies else f"{copies - ended} of them did not finish"
        return f"{copies} copies of nccl-tests{' on one GPU each' if alone else ''}, {end}", shown
    if finished < runs:
        return (
            f"{runs - finished} of {runs} runs of nccl-tests did not finish"
            if runs > 1
            else "nccl-tests did not finish"
        ), ref
    return (IN_ORDER if passed else "nccl-tests finished, and did not pass its own check"), ref


def _said(facts: Facts) -> End | None:
    marks = ",".join("?" for _ in _GOOD_ENDS)
    said = facts.query(
        f"SELECT max(last_line), ref FROM message WHERE kind IN ({marks}) GROUP BY NULL HAVING count(*)", _GOOD_ENDS
    )
    return (IN_ORDER, said[0][1]) if said else None


def _destroyed(facts: Facts) -> End | None:
    ranks, ended, ref = facts.query(
        "SELECT (SELECT ranks FROM job), count(DISTINCT rank), max(ref) FROM communicator"
        " WHERE phase IN ('destroy', 'finalize') AND nranks IS (SELECT max(nranks) FROM communicator)"
    )[0]
    return (IN_ORDER, ref) if ranks and ended and ended >= ranks else None
