"""`nccl-doctor stacks`: shows where the ranks of a job are, and which of them differ."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccl_doctor.cli import terminal_size
from nccl_doctor.cli.output import complain, emit
from nccl_doctor.cli.value_types import NumberRange
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.app.stacks import Group
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.facts.store import Facts

ACTIVITIES = {
    "collective": "in a collective",
    "backward": "in the backward pass, where gradients are reduced (--native shows more)",
    "dataloader": "in its DataLoader",
    "loader-worker": "loads a sample",
    "loader-idle": "waits for an index",
    "checkpoint": "in a checkpoint",
    "cuda-sync": "waits for the GPU",
    "compiling": "compiles",
    "rendezvous": "waits for other ranks to join",
    "queue": "waits in a queue",
    "other": "elsewhere",
}
FRAMES = 8  # frames shown of one stack without -v


@click.command("stacks")
@click.option(
    "--pid", "pids", type=click.IntRange(1, 1 << 22), multiple=True, help="Only this process; may be repeated."
)
@click.option("--job", metavar="ID", help="Only the ranks of this job; a Slurm job on all its nodes.")
@click.option("--nodes", metavar="NODES", help="Dump the ranks of these nodes.")
@click.option("--via", default="ssh", show_default=True, help="ssh, srun, or a command with %host for the node.")
@click.option("--native", is_flag=True, help="Show C and C++ frames too: identifies a collective; takes longer.")
@click.option("--timeout", type=NumberRange(0.1, 600), help="Seconds per process.  [default: 10, with --native 60]")
@click.option(
    "--pause", type=NumberRange(0.1, 600), default=3.0, show_default=True, help="Seconds between the two dumps."
)
@click.option("--format", "form", type=click.Choice(["text", "json", "facts"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show whole stacks.")
def command(
    pids: tuple[int, ...],
    job: str | None,
    nodes: str | None,
    via: str,
    native: bool,
    timeout: float | None,
    pause: float,
    form: str,
    verbose: bool,
) -> int:
    """Dump the stacks of all ranks twice, group equal ones, and name the ranks that keep the others waiting.

    Jobs are told apart. No process is paused, except with --native. Exit status 1 if a rank keeps the others of its job
    waiting, 2 if a rank could not be read and nothing else was found.
    """
    from nccl_doctor.app import stacks
    from nccl_doctor.derive.registry import derive_all
    from nccl_doctor.facts import wire
    from nccl_doctor.facts.store import Facts

    timeout = timeout if timeout is not None else stacks.NATIVE_SECONDS if native else stacks.SECONDS
    problems: list[str] = []
    remote, via = _remote_nodes(nodes, job if form != "facts" and not pids else None, via)
    if remote:
        from nccl_doctor.app import fleet

        options = [
            f"--timeout={timeout:g}",
            f"--pause={pause:g}",
            *(["--native"] if native else []),
            *([f"--job={job}"] if job else []),
        ]
        facts = fleet.collect(remote, via, ["stacks", "--format", "facts", *options], 4 * timeout + pause)
        problems = [f"{host}: {note}" for host, note in facts.query("SELECT host, note FROM collection")]
    else:
        facts = Facts()
        problems = _dump(facts, pids, job, native, timeout, pause)
    if form == "facts":
        emit(wire.dump(facts))
        return 0
    derive_all(facts)
    report = _diagnose(facts)
    emit(_render_json(facts, report, problems) if form == "json" else _render_text(facts, report, verbose))
    for problem in problems if form == "text" else ():
        complain(problem)
    return 1 if report.verdict == "error" else 2 if problems else 0


def _remote_nodes(nodes: str | None, job: str | None, via: str) -> tuple[list[str], str]:
    """Returns the nodes to ask and the transport to them; no nodes means this node only."""
    from nccl_doctor.app import fleet

    if nodes is not None:
        return fleet.names(nodes), fleet.within(job) if job is not None and via == "srun" else via
    if job is not None and shutil.which("squeue") is not None:
        try:
            return fleet.of_job(job)
        except UsageProblem:  # a job of another scheduler; its ranks may run here
            pass
    return [], via


def _dump(
    facts: "Facts", pids: tuple[int, ...], job: str | None, native: bool, timeout: float, pause: float
) -> list[str]:
    """Add the stacks of the ranks on this node. Raises UsageProblem when no rank could be dumped."""
    from nccl_doctor.app import stacks
    from nccl_doctor.node.host import job_processes

    found = job_processes.find(job=job)
    ranks = found.ranks
    if pids:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            raise UsageProblem(f"there is no process {', '.join(map(str, pids))}")
        known = {rank.pid: rank for rank in ranks}
        ranks = [
            known.get(pid) or job_processes.RankProcess(pid, number, None, None, 0, None, "")
            for number, pid in enumerate(pids)
        ]
    if not ranks:
        hidden = f"; unreadable processes of other users: {found.hidden}" if found.hidden else ""
        of = f" of job {job}" if job else ""
        raise UsageProblem(
            f"no rank{of} runs on this node (no process with RANK or a launcher's rank){hidden}; name one with --pid"
        )
    problems = stacks.dump(facts, ranks, native=native, seconds=timeout, pause=pause)
    if len(problems) == len(ranks):
        raise UsageProblem(problems[0])
    return problems


def _diagnose(facts: "Facts") -> "Report":
    """Returns the report of the rules that read stacks; the others have no facts here."""
    from nccl_doctor.diagnosis import diagnose
    from nccl_doctor.rules import engine, loader

    rules = [rule for rule in loader.load_rules() if {"stack", "rank_doing", "job_stop"} & set(rule.needs)]
    return diagnose.diagnose(facts, engine.ask_all(rules, facts))


def _render_text(facts: "Facts", report: "Report", verbose: bool) -> str:
    from nccl_doctor.app import stacks
    from nccl_doctor.reporters.node import wrap_labelled

    width = terminal_size.columns()
    lines: list[str] = []
    for finding in report.findings:
        label = f"{finding.severity.upper()} {finding.rule} "
        lines += wrap_labelled(label, f"{finding.name}: {finding.message}", width)
        lines += [*wrap_labelled("  next ", finding.fix, width), ""]
    groups = stacks.groups(facts)
    several = len({group.job for group in groups}) > 1
    job = None
    for group in groups:
        if several and group.job != job:
            job = group.job
            lines.append(f"JOB {job}")
        lines += [*_group_lines(facts, group, verbose), ""]
    return "\n".join(lines[:-1]) + "\n"


def _group_lines(facts: "Facts", group: "Group", verbose: bool) -> list[str]:
    """The lines of ranks with equal stacks: who and what, the frames, the processes of the first rank."""
    from nccl_doctor.app import stacks
    from nccl_doctor.diagnosis.diagnose import fold_hosts, fold_ranks

    ranks = fold_ranks(member.rank for member in group.members)
    hosts = fold_hosts(member.host for member in group.members)
    noun = "rank" if len(group.members) == 1 else "ranks"
    frames = group.frames if verbose else group.frames[:FRAMES]
    lines = [f"{noun} {ranks or '?'} on {hosts or '?'}: {ACTIVITIES.get(group.doing, group.doing)}"]
    lines += [f"    {frame}" for frame in frames]
    if len(frames) < len(group.frames):
        lines.append(f"    … {len(group.frames) - len(frames)} more frames: -v")
    for worker in stacks.workers(facts, group.members[0].pid)[: None if verbose else 3]:
        lines.append(f"    its process {worker.pid} {ACTIVITIES.get(worker.doing, worker.doing)}: {worker.leaf}")
    return lines


def _render_json(facts: "Facts", report: "Report", problems: list[str]) -> str:
    from nccl_doctor.app import stacks
    from nccl_doctor.reporters.json_report import document

    content = document(report)
    content["stacks"] = [
        {"job": group.job, "doing": group.doing, "frames": group.frames, "ranks": [member.rank for member in group.members],
         "processes": [{"host": m.host, "pid": m.pid, "rank": m.rank, "leaf": m.leaf} for m in group.members]}
        for group in stacks.groups(facts)
    ]  # fmt: skip
    content["problems"] = problems
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
