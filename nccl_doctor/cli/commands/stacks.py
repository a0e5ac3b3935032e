"""`nccl-doctor stacks`: who is stuck where."""

import json
import shutil
from typing import TYPE_CHECKING

import click

from nccl_doctor.cli.output import complain, emit
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.facts.store import Facts

WORDS = {
    "collective": "in a collective",
    "backward": "in the backward pass, where gradients are reduced (--native tells)",
    "dataloader": "in its DataLoader",
    "loader-worker": "makes a sample",
    "loader-idle": "waits for an index",
    "checkpoint": "in a checkpoint",
    "cuda-sync": "waits for the GPU",
    "compiling": "compiles",
    "rendezvous": "waits for other ranks to join",
    "queue": "waits in a queue",
    "other": "elsewhere",
}
FRAMES = 8  # shown of one stack


@click.command("stacks")
@click.option("--pid", "pids", type=int, multiple=True, help="Only this process; may be repeated.")
@click.option("--job", metavar="ID", help="Only the ranks of this job; of a Slurm job on all its nodes.")
@click.option("--nodes", metavar="NODES", help="Ask these nodes.")
@click.option(
    "--via", default="ssh", show_default=True, help="ssh, srun, or a command in which %host stands for a node."
)
@click.option("--native", is_flag=True, help="C and C++ frames too: tells a collective from other work; takes longer.")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, help="Seconds for one process."
)
@click.option("--format", "form", type=click.Choice(["text", "json", "facts"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Whole stacks.")
def command(
    pids: tuple[int, ...],
    job: str | None,
    nodes: str | None,
    via: str,
    native: bool,
    timeout: float,
    form: str,
    verbose: bool,
) -> int:
    """Dump the stacks of all ranks of a job, fold equal ones, and say who stands elsewhere.

    Each process is stopped for some milliseconds. Exit status 1 where a rank keeps the others waiting.
    """
    from nccl_doctor.derive.hang.stacks import derive_stacks
    from nccl_doctor.facts import wire
    from nccl_doctor.facts.store import Facts

    problems: list[str] = []
    asked, via = _way(nodes, job if form != "facts" and not pids else None, via)
    if asked:
        from nccl_doctor.app import fleet

        options = [f"--timeout={timeout:g}", *(["--native"] if native else []), *([f"--job={job}"] if job else [])]
        facts = fleet.collect(asked, via, ["stacks", "--format", "facts", *options], timeout + 5)
        problems = [f"{host}: {note}" for host, note in facts.own("SELECT host, note FROM collection")]
    else:
        facts = Facts()
        problems = _dump(facts, pids, job, native, timeout)
    if form == "facts":
        emit(wire.dump(facts))
        return 0
    derive_stacks(facts)
    report = _judged(facts)
    emit(_json(facts, report, problems) if form == "json" else _text(facts, report, verbose))
    for problem in problems if form == "text" else ():
        complain(problem)
    return int(report.verdict == "error")


def _way(nodes: str | None, job: str | None, via: str) -> tuple[list[str], str]:
    """Which nodes to ask, none for this one alone, and the way to them."""
    from nccl_doctor.app import fleet

    if nodes is not None:
        return fleet.names(nodes), fleet.within(job) if job is not None and via == "srun" else via
    if job is not None and shutil.which("squeue") is not None:
        try:
            return fleet.of_job(job)
        except UsageProblem:  # a job of another scheduler, whose ranks may run here
            pass
    return [], via


def _dump(facts: "Facts", pids: tuple[int, ...], job: str | None, native: bool, timeout: float) -> list[str]:
    from nccl_doctor.app import stacks
    from nccl_doctor.node.host import job_processes

    found = job_processes.find(job=job)
    ranks = found.ranks
    if pids:
        known = {one.pid: one for one in ranks}
        ranks = [
            known.get(pid) or job_processes.RankProcess(pid, number, None, None, 0, None, "")
            for number, pid in enumerate(pids)
        ]
    if not ranks:
        hidden = f"; {found.hidden} processes of other users could not be looked into" if found.hidden else ""
        of = f" of job {job}" if job else ""
        raise UsageProblem(
            f"no rank{of} runs on this node (no process with RANK or a launcher's rank){hidden}; name one with --pid"
        )
    problems = stacks.dump(facts, ranks, native=native, seconds=timeout)
    if len(problems) == len(ranks):
        raise UsageProblem(problems[0])
    return problems


def _judged(facts: "Facts") -> "Report":
    """What the rules about stacks say; no others are asked, because nothing else was looked at."""
    from nccl_doctor.diagnosis import diagnose
    from nccl_doctor.rules import engine, loader

    wanted = [rule for rule in loader.load_rules() if {"stack", "rank_doing"} & set(rule.needs)]
    return diagnose.diagnose(facts, engine.ask_all(wanted, facts))


def _text(facts: "Facts", report: "Report", verbose: bool) -> str:
    from nccl_doctor.app import stacks
    from nccl_doctor.diagnosis.diagnose import fold_hosts, fold_ranks
    from nccl_doctor.reporters.node import wrapped

    width = shutil.get_terminal_size((80, 24)).columns
    rows: list[str] = []
    for finding in report.findings:
        rows += wrapped(f"{finding.severity.upper()} {finding.rule} ", f"{finding.name}: {finding.message}", width)
        rows += [*wrapped("  next ", finding.fix, width), ""]
    for group in stacks.groups(facts):
        ranks = fold_ranks(one.rank for one in group.members)
        hosts = fold_hosts(one.host for one in group.members)
        number = len(group.members)
        rows.append(
            f"{'rank' if number == 1 else 'ranks'} {ranks or '?'} on {hosts or '?'}: {WORDS.get(group.doing, group.doing)}"
        )
        frames = group.frames if verbose else group.frames[:FRAMES]
        rows += [f"    {frame}" for frame in frames]
        if len(frames) < len(group.frames):
            rows.append(f"    … {len(group.frames) - len(frames)} more: -v")
        for worker in stacks.workers(facts, group.members[0].pid)[: None if verbose else 3]:
            rows.append(f"    its process {worker.pid} {WORDS.get(worker.doing, worker.doing)}: {worker.leaf}")
        rows.append("")
    return "\n".join(rows[:-1]) + "\n"


def _json(facts: "Facts", report: "Report", problems: list[str]) -> str:
    from nccl_doctor.app import stacks
    from nccl_doctor.reporters.json_report import document

    content = document(report)
    content["stacks"] = [
        {"doing": group.doing, "frames": group.frames, "ranks": [one.rank for one in group.members],
         "processes": [{"host": one.host, "pid": one.pid, "rank": one.rank, "leaf": one.leaf} for one in group.members]}
        for group in stacks.groups(facts)
    ]  # fmt: skip
    content["problems"] = problems
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
