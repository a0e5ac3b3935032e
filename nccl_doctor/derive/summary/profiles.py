"""What a report says of profiles, and of processes on GPUs: how the time is divided, and what took most or least of it."""

from collections.abc import Iterator

from nccl_doctor.common.plurals import counted
from nccl_doctor.derive.summary import Clause
from nccl_doctor.facts.store import Facts


def clauses(facts: Facts) -> Iterator[Clause]:
    """`nsys summary of kernels: 61 % compute, 39 % communication`, and of Python the function with most time or samples of its own."""
    for seconds, ref in facts.query(
        "SELECT sum(total_ms) / 1000, min(ref) FROM profile_share WHERE report = 'functions' GROUP BY NULL HAVING sum(total_ms) >= 0"
    ):
        kinds = facts.query(
            "SELECT kind, sum(total_ms) / 1000 FROM profile_share WHERE report = 'functions' GROUP BY kind ORDER BY 2 DESC"
        )
        parts = [
            f"{100 * of / seconds:.3g} % {kind}" for kind, of in kinds if seconds and kind != "other" and (of or 0) > 0
        ]
        longest = facts.query(
            "SELECT name, total_ms / 1000, n FROM profile_sum WHERE report = 'functions' AND total_ms >= 0 ORDER BY total_ms DESC LIMIT 1"
        )
        parts += [f"most in {name[:80]} ({_seconds(own)} s, {counted(calls, 'call')})" for name, own, calls in longest]
        yield ", ".join([f"cProfile: {_seconds(seconds)} s in functions", *parts]), ref
    for file, samples, ref in facts.query(
        "SELECT file, sum(n), min(ref) FROM profile_share WHERE report = 'samples' GROUP BY file ORDER BY sum(n) DESC LIMIT 1"
    ):
        kinds = facts.query(
            "SELECT kind, sum(n) FROM profile_share WHERE report = 'samples' AND file = ? GROUP BY kind ORDER BY 2 DESC",
            (file,),
        )
        parts = [f"{100 * of / samples:.3g} % {kind}" for kind, of in kinds if samples and kind != "other" and of > 0]
        frequent = facts.query(
            "SELECT name, 100.0 * n / ? FROM profile_sum WHERE report = 'samples' AND file = ? ORDER BY n DESC LIMIT 1",
            (samples, file),
        )
        parts += [f"most in {name[:80]} ({share:.3g} %)" for name, share in frequent]
        yield ", ".join([f"{counted(samples, 'sample')} of stacks", *parts]), ref
    for tool, report, total, ref in facts.query(
        "SELECT tool, report, sum(total_ms), min(ref) FROM profile_share WHERE report NOT IN ('functions', 'samples') GROUP BY tool, report"
        " ORDER BY report = 'kernels' DESC, sum(total_ms) DESC LIMIT 1"
    ):
        shares = facts.query(
            "SELECT kind, 100 * sum(total_ms) / ? AS share FROM profile_share WHERE tool = ? AND report = ? GROUP BY kind"
            " HAVING share IS NOT NULL ORDER BY share DESC",  # an infinite time has none
            (total or 1.0, tool, report),
        )
        parts = [f"{_seconds((total or 0.0) / 1000)} s", *(f"{share:.3g} % {kind}" for kind, share in shares[:3])]
        longest = facts.query(
            "SELECT name, total_ms / 1000 FROM profile_sum WHERE tool = ? AND report = ? AND total_ms >= 0 ORDER BY total_ms DESC LIMIT 1",
            (tool, report),
        )
        parts += [f"longest {name[:60]} ({_seconds(seconds)} s)" for name, seconds in longest]
        yield f"{tool} summary of {report}: " + ", ".join(parts), ref


def processes(facts: Facts) -> Iterator[Clause]:
    """Processes that were on GPUs, and which of them computed least."""
    for processes, gpus, middle, ref in facts.query(
        "SELECT count(*), count(DISTINCT coalesce(host, '') || ' ' || coalesce(gpu, uuid)), median(sm), min(ref) FROM gpu_process"
        " WHERE kind IS NOT 'G' AND NOT EXISTS (SELECT 1 FROM node_gpu) GROUP BY NULL HAVING count(*)"
    ):
        text = f"{counted(processes, 'process')} on {counted(gpus, 'GPU')}"
        if middle is not None:
            text += f", SMs in use {middle:.3g} % of the time"
            where, gpu, pid, least = facts.query(
                "SELECT coalesce(host || ' ', ''), gpu, pid, sm FROM gpu_process WHERE sm IS NOT NULL ORDER BY sm LIMIT 1"
            )[0]
            text += (
                f", least {least:.3g} % by pid {pid} on {where}GPU {gpu}" if processes > 1 and least < middle else ""
            )
        yield text, ref


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
