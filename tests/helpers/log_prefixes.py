"""What launchers and collectors write before a line, and what of a report must not depend on it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.simulate import PREFIXES, Spec, fit, write_log
from nccl_doctor.simulate.cluster import Host, Rank
from nccl_doctor.simulate.prefixes import Place

FAULTS = (
    None,
    "cuda-oom",
    "connection-refused",
    "rank-sigkill",
    "missing-rank-in-collective",
    "ib-link-flapping",
    "python-exception",
)


class Said(NamedTuple):
    """A line and who wrote it; a line of the launcher has neither host nor rank."""

    text: str
    when: float
    host: str | None = None
    node: int | None = None
    rank: int | None = None
    local: int = 0
    pid: int = 0


def _clock(said: Said) -> datetime:
    return datetime.fromtimestamp(said.when, UTC)


def _iso(said: Said) -> str:
    return f"{_clock(said):%Y-%m-%dT%H:%M:%S.%f}Z"


def _asctime(said: Said) -> str:
    return f"{_clock(said):%a %b %e %H:%M:%S %Y}"


def _rank(form: Callable[[Said], str]) -> Callable[[Said], str]:
    """Only lines of ranks get it."""
    return lambda said: "" if said.rank is None else form(said)


def _host(form: Callable[[Said], str]) -> Callable[[Said], str]:
    """Only lines of machines get it."""
    return lambda said: "" if said.host is None else form(said)


_mpi = _rank(lambda said: f"[1,{said.rank}]<stdout>:")
_torch = _rank(lambda said: f"[rank{said.rank}]: ")
_kubectl = _host(lambda said: f"[pod/job-worker-{said.node}/pytorch] ")
_stern = _host(lambda said: f"job-worker-{said.node} pytorch ")

BEFORE: dict[str, Callable[[Said], str]] = {
    "mpirun": _mpi,
    "mpirun-5": _rank(lambda said: f"[prterun-node01-4242@1,{said.rank}]<stdout>: "),
    "mpirun-timestamp": _rank(lambda said: f"{_asctime(said)}[1,{said.rank}]<stderr>:"),
    "horovodrun": _rank(lambda said: f"[{said.rank}]<stdout>:"),
    "sagemaker": _rank(lambda said: f"[1,mpirank:{said.rank},algo-{said.node}]<stdout>:"),
    "mpich": _rank(lambda said: f"[{said.rank}] "),
    "mpich-pattern": _rank(lambda said: f"[{said.rank}@{said.host}] "),
    "srun": _rank(lambda said: f"{said.rank:>2}: "),
    "srun-torchrun": _rank(lambda said: f"{said.node}: [default{said.local}]:"),
    "torchrun": _rank(lambda said: f"[default{said.local}]:"),
    "torch": _torch,
    "ray": _rank(lambda said: f"\x1b[36m(RayTrainWorker pid={said.pid}, ip=10.9.0.{said.node})\x1b[0m "),
    "ray-torch": _rank(lambda said: f"(RayTrainWorker pid={said.pid}, ip=10.9.0.{said.node}) [rank{said.rank}]: "),
    "pdsh": _host(lambda said: f"{said.host}: "),
    "pdsh-torchrun": _rank(lambda said: f"{said.host}: [default{said.local}]:"),
    "host-and-rank": _rank(lambda said: f"{said.host} {said.rank}: "),
    "kubectl": _kubectl,
    "kubectl-torch": lambda said: _kubectl(said) + _torch(said),
    "stern": _stern,
    "stern-torch": lambda said: _stern(said) + _torch(said),
    "kail": _host(lambda said: f"default/job-worker-{said.node}[pytorch]: "),
    "compose": _host(lambda said: f"worker-{said.node}  | "),
    "cri": lambda said: f"{_iso(said)} stdout F ",
    "cri-mpirun": lambda said: f"{_iso(said)} stdout F {_mpi(said)}",
    "cloudwatch": lambda said: f"  | {_iso(said)} | ",
    "iso": lambda said: f"{_iso(said)} ",
    "iso-mpirun": lambda said: f"{_iso(said)} {_mpi(said)}",
    "iso-torch": lambda said: f"{_iso(said)} {_torch(said)}",
    "logging": lambda said: f"{_clock(said):%Y-%m-%d %H:%M:%S},500 - ",
    "clock": lambda said: f"{_clock(said):%H:%M:%S} ",
    "journald": _host(lambda said: f"{_clock(said):%b %e %H:%M:%S} {said.host} python3[77]: "),
    "quote": lambda said: "> ",
    "frame": lambda said: "│ ",
}


def _with(before: str) -> Callable[[Said], str]:
    return lambda said: BEFORE[before](said) + said.text


def _docker(said: Said) -> str:
    text = json.dumps(said.text + "\n", ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return f'{{"log":{text},"stream":"stdout","time":"{_iso(said)}"}}'


def _xml(said: Said) -> str:
    text = said.text.replace("<", "&lt;").replace(">", "&gt;")
    return said.text if said.rank is None else f'<stdout rank="{said.rank}">{text}</stdout>'


FORMS: dict[str, Callable[[Said], str]] = {
    **{name: _with(name) for name in BEFORE},
    "ansi": lambda said: f"\x1b[3{(said.node or 0) % 7}m{said.text}\x1b[0m",
    "ansi-mpirun": lambda said: f"\x1b[1;34m{_mpi(said)}\x1b[0m{said.text}",
    "crlf": lambda said: said.text + "\r",
    "crlf-mpirun": lambda said: _mpi(said) + said.text + "\r",
    "docker-json": _docker,
    "xml": _xml,
}


@cache
def simulated(fault: str | None) -> list[Said]:
    """The lines of an invented job with who wrote each."""
    lines: list[Said] = []

    def prefix(place: Place) -> str:
        source = place.source
        host = source.host if isinstance(source, Rank) else source
        rank = source if isinstance(source, Rank) else None
        lines.append(
            Said(
                "",
                place.when,
                host.name if isinstance(host, Host) else None,
                host.index if isinstance(host, Host) else None,
                rank.number if rank else None,
                rank.local if rank else 0,
                rank.pid if rank else 0,
            )
        )
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PREFIXES, "none", prefix)
        spec = fit(Spec(nodes=2, gpus=4, steps=4, fault=fault, seed=5, version="2.27.7"))
        texts = list(write_log(spec))
    return [said._replace(text=text) for said, text in zip(lines, texts, strict=True)]


def analysed(text: str, folder: Path, problem: str = "") -> tuple[Any, ...]:
    """What must not depend on the prefix. `problem` is the end of what is said of the reading."""
    path = folder / "job.log"
    path.write_bytes(text.encode())
    report, facts, problems = analyze.analyze([str(path)])
    assert [problem] * bool(problem) == [found.partition(": ")[2] for found in problems]
    names = facts.query("SELECT name FROM host ORDER BY name"), facts.query("SELECT rank, host FROM rank ORDER BY rank")
    return report.verdict, report.job["hosts"], report.job["ranks"], names, _findings(report)


def _findings(report: Report) -> list[tuple[str, ...]]:
    """Alarms; notes may say more where a prefix says more."""
    alarms = [finding for finding in report.findings if finding.severity != "note"]
    return [(f.name, f.severity, f.role, f.confidence, f.hosts, f.ranks) for f in alarms]
