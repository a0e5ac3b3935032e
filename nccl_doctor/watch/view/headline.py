"""The lines below the status: what the job does, in one sentence."""

from collections.abc import Sequence

from nccl_doctor.watch.state import State
from nccl_doctor.watch.view.cells import BAD, DIM, FAIR, GOOD, Line, Look, whole
from nccl_doctor.watch.view.findings import Group
from nccl_doctor.watch.view.wrapping import wrap_text

MOST = 4  # lines


def headline(state: State, groups: Sequence[Group], look: Look, width: int, now: float, problem: str) -> list[Line]:
    """Returns the jobs that stopped; without one, what runs, how busy it is and what was found."""
    if problem:
        return [
            ((look.fit(f"NOT JUDGED  the rules failed, so findings are out of date: {problem}", width), f"bold {BAD}"),)
        ]
    jobs = state.headlines(now)
    if jobs:
        lines = [
            (line, FAIR if " WAITS " in job else BAD) for job in jobs for line in wrap_text(look.ascii, job, width)
        ]
        if len(lines) > MOST:
            lines[MOST - 1 :] = [(f"{lines[MOST - 1][0]} {look.more}", BAD)]
        return [((look.fit(text, width), f"bold {style}"),) for text, style in lines]
    parts, style = _summary(state, groups, now)
    return [((look.join(parts, width, look.dot), f"bold {style}"),)]


def _summary(state: State, groups: Sequence[Group], now: float) -> tuple[list[str], str]:
    """Returns the parts of the sentence, the most important first, and its style."""
    if not state.nodes:
        return ["waiting for the first values"], DIM
    fresh = [node for node in state.nodes.values() if node.age("gpu", now) is None and node.gone is None]
    gpus = [gpu for node in fresh for gpu in node.gpus.values()]
    ranks = sum(isinstance(one.get("rank"), int) for node in state.nodes.values() for one in node.processes)
    silent = len(state.nodes) - len(fresh)
    progress = state.progress(now)
    steps, slower = progress.sentence(now) if progress is not None else ("", False)
    parts = [steps] if steps else []
    if silent:
        parts.append(f"{silent} of {len(state.nodes)} nodes not counted: no fresh values")
    severities = set()
    for severity in ("error", "warning"):
        names = [group.finding.name for group in groups if not group.over and group.finding.severity == severity]
        if names:
            severities.add(severity)
            parts.append(f"{len(names)} {severity}{'s' * (len(names) != 1)}: {', '.join(dict.fromkeys(names))}")
    parts.append(f"{ranks} rank{'s' * (ranks != 1)}" if ranks else "no rank of a job")
    utils = [value for gpu in gpus if (value := gpu.last("util")) is not None]
    if utils:
        parts.append(f"{len(utils)} GPUs at {whole(sum(utils) / len(utils))} %")
    powers = [value for gpu in gpus if (value := gpu.last("power")) is not None]
    if powers:
        parts.append(f"{sum(powers) / 1000:.1f} kW")
    if "error" in severities:
        word, style = "ERROR", BAD
    elif slower:
        word, style = "SLOWER", FAIR
    elif "warning" in severities or silent:
        word, style = "WARNING", FAIR
    else:
        word, style = ("RUNNING", GOOD) if ranks or steps else ("WATCHING", "")
    return [f"{word}  {parts[0]}", *parts[1:]], style
