"""Which logs are of one job: files of several jobs in one folder must not be mixed, files of one job not torn apart.

Logs are held apart only on proof. A log can prove that it is a job of its own: it shows all ranks of a communicator, it is the
output of nccl-tests, or its name or text has the id of a scheduler. Two such logs are of different jobs where their ids differ,
or no communicator and no process is common to both. Where two logs are, each other one is a job of its own, unless it shares an
id, a communicator, a process or a name with another. Captures go with the only job of their folder.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, combinations
from pathlib import PurePosixPath
from typing import NamedTuple

from nccl_doctor.app.related_logs import Groups, Traits
from nccl_doctor.common.expressions import compiled
from nccl_doctor.log import job_log
from nccl_doctor.log.counts import LogCounts

_ID_IN_TEXT = compiled(
    r"\b(?:JOB|STEP) (\d{1,12})(?:\.\w+)? ON |\bStepId=(\d{1,12})\.|\bsrun: job (\d{1,12}) (?:has been|queued)"
)
_ID_IN_NAME = compiled(r"(?:^slurm-|^job-|[-_.])(\d{5,12})(?:[-_.]\d{1,5})?\.(?:out|err|log|o|e)$|\.[oe](\d{3,12})$")
_COMM_ID = compiled(r" commId (0x[0-9a-f]+)")
_WORLD = compiled(r"\brank (\d+) n[rR]anks (\d+)\b")
_OF_RANK = compiled(r"(?:^|/)(?:\d{1,6}/)?rank\.\d{1,7}/std(?:out|err)$")
_BENCHMARK = (b"# nThread ", b"# Avg bus bandwidth")  # what nccl-tests print once


class Fingerprint(NamedTuple):
    """What a log shows of the job that it belongs to."""

    name: str
    ids: frozenset[str]  # of the scheduler
    comms: frozenset[str]  # communicator ids, equal on all ranks
    processes: frozenset[tuple[str, int]]
    whole: bool  # all ranks of the largest communicator
    benchmark: bool

    @property
    def is_job(self) -> bool:
        """Whether the log proves to be a job of its own."""
        return bool(self.ids) or self.whole or self.benchmark


class JobFiles(NamedTuple):
    """The inputs of one job."""

    label: str
    names: tuple[str, ...]


def fingerprint(part: job_log.LogPart) -> Fingerprint:
    """The fingerprint of a log that was scanned and not added yet."""
    name, counts, _ = part
    processes = {(header.host, header.pid) for header in counts.headers if header.host and header.pid}
    comms: set[str] = set()
    ids: set[str] = set()
    worlds: dict[int, set[int]] = defaultdict(set)
    for body in counts.bodies():
        comms.update(_COMM_ID.findall(body))
        ids.update(one for found in _ID_IN_TEXT.findall(body) for one in found if one)
        if member := _WORLD.search(body):
            worlds[int(member[2])].add(int(member[1]))
    if not ids and (found := _ID_IN_NAME.search(PurePosixPath(name).name)):
        number = found[1] or found[2]
        if int(number) not in {pid for _, pid in processes}:  # NCCL_DEBUG_FILE=nccl.%h.%p
            ids = {number}
    largest = max(worlds, default=0)
    whole = largest > 1 and len(worlds[largest]) == largest
    return Fingerprint(name, frozenset(ids), frozenset(comms), frozenset(processes), whole, _is_benchmark(counts))


def _is_benchmark(counts: LogCounts) -> bool:
    return any(mark in counts.marks for mark in _BENCHMARK)


def group(logs: Sequence[Fingerprint], others: Iterable[str]) -> list[JobFiles]:
    """The jobs behind these logs and the other inputs; empty where they are, or may be, of one job.

    Once two logs are known to be of different jobs, a log is a job of its own unless something relates it to another.
    """
    proven = [log for log in logs if log.is_job]
    if not _any_differ(proven):
        return []
    files = [[log.name for log in job] for job in _joined([*proven, *(log for log in logs if not log.is_job)])]
    captures: list[str] = []
    for name in others:
        owner = _owner(name, files)
        (captures if owner is None else files[owner]).append(name)
    labels = _labels([names[0] for names in files])
    found = [JobFiles(label, tuple(names)) for label, names in zip(labels, files, strict=True)]
    return [*found, JobFiles("other files", tuple(captures))] if captures else found


def _any_differ(proven: Sequence[Fingerprint]) -> bool:
    """Whether two of these logs prove to be different jobs."""
    for shown in ([log.ids for log in proven], [log.comms for log in proven]):
        if shown and frozenset.intersection(*shown):
            return False
    kinds: dict[Hashable, list[Fingerprint]] = {}
    for log in proven:
        same = kinds.setdefault(_kind(log), [])
        if len(same) < 2:  # all others would differ from the same ones
            same.append(log)
    return any(_differ(one, other) for one, other in combinations(chain(*kinds.values()), 2))


def unrelated(logs: Sequence[Fingerprint]) -> int:
    """How many groups of logs nothing relates to each other: no id, communicator, process or name, numbers apart."""
    groups: Groups[Fingerprint] = Groups(_both_differ)
    for log in logs:
        traits = _traits(log)
        traits = traits._replace(keys=traits.keys | {("pattern", _pattern(log.name))})
        groups.add(log, traits, groups.related(log, traits))
    return sum(1 for _ in groups)


def each(names: Iterable[str]) -> list[JobFiles]:
    """Every input as a job of its own."""
    given = list(names)
    return [JobFiles(label, (name,)) for label, name in zip(_labels(given), given, strict=True)]


def _joined(logs: Sequence[Fingerprint]) -> list[list[Fingerprint]]:
    """The logs, related ones together. Of those that prove no job, names that differ in numbers only are related too."""
    jobs: Groups[Fingerprint] = Groups(_both_differ)
    named: dict[str, list[int]] = defaultdict(list)  # pattern of the first log -> logs that prove no job
    for number, log in enumerate(logs):
        traits = _traits(log)
        mine = jobs.related(log, traits)
        if not log.is_job and not mine:
            mine = sorted({jobs.group_of(one) for one in named[_pattern(log.name)]})
            mine = [job for job in mine if not jobs.first(job).is_job]
        jobs.add(log, traits, mine if log.is_job or len(mine) < 2 else ())  # a log of several jobs belongs to none
        if not log.is_job and jobs.first(number) is log:
            named[_pattern(log.name)].append(number)
    order = {log.name: number for number, log in enumerate(logs)}
    return sorted(jobs, key=lambda job: order[job[0].name])


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _traits(log: Fingerprint) -> Traits:
    """What relates a log to others: an id, a communicator, its stem or its launch; a process, unless they prove to differ."""
    named: list[Hashable] = [("stem", _stem(log.name))]
    if (launch := _launch(log.name)) is not None:
        named.append(("launch", launch))
    keys = frozenset([*named, *(("id", one) for one in log.ids), *(("comm", one) for one in log.comms)])
    return Traits(keys, frozenset(log.processes), _kind(log))


def _kind(log: Fingerprint) -> Hashable:
    """All that `_differ` looks at."""
    return log._replace(name=_launch(log.name) or "", processes=log.processes if log.whole else frozenset())


def _both_differ(one: Fingerprint, other: Fingerprint) -> bool:
    return one.is_job and other.is_job and _differ(one, other)


def _launch(name: str) -> str | None:
    """The folder of one call of mpirun with `--output-filename`, which keeps `1/rank.0/stdout` below it; None for other names."""
    found = _OF_RANK.search(name)
    return name[: found.start()] if found else None


def _stem(name: str) -> tuple[PurePosixPath, str]:
    path = PurePosixPath(name)
    return path.parent, path.name.removesuffix(path.suffix)


def _differ(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether two logs that prove to be jobs prove to be different ones."""
    if one.ids & other.ids or one.comms & other.comms or (_launch(one.name) or "") == _launch(other.name):
        return False
    if one.ids and other.ids:
        return True
    if one.benchmark and other.benchmark:
        return True
    if one.whole and other.whole:
        return bool(one.comms and other.comms) or not one.processes & other.processes
    return False


def _owner(name: str, files: Sequence[Sequence[str]]) -> int | None:
    """The one job that has a file of the same stem, else of the same folder, else of a folder above or below."""
    path = PurePosixPath(name)
    rules: tuple[Callable[[PurePosixPath], bool], ...] = (
        lambda other: _stem(name) == _stem(str(other)),
        lambda other: path.parent == other.parent,
        lambda other: path.is_relative_to(other.parent) or other.is_relative_to(path.parent),
    )
    for same in rules:
        found = {number for number, names in enumerate(files) for one in names if same(PurePosixPath(one))}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _labels(names: Sequence[str]) -> list[str]:
    """The names without the folders that all share."""
    parts = [PurePosixPath(name).parts for name in names]
    shared = 0
    while parts and all(len(one) > shared + 1 and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    return ["/".join(one[shared:]) for one in parts]
