"""Reports for Prometheus' textfile collector: of a node its fitness, of a job its verdict, coverage and measures; findings of both."""

from collections.abc import Iterable, Iterator
from itertools import islice
from math import isfinite

from nccl_doctor.diagnosis.report import VERDICTS, Report
from nccl_doctor.reporters import Options, short
from nccl_doctor.reporters.words import clean

MEASURES = 1000  # of one job: each is a series of its own
_FITNESS = ("fit", "drain", "job", "unknown")
_Row = tuple[dict[str, str], float]


def render(report: Report, options: Options) -> str:
    """Returns the text exposition format, version 0.0.4."""
    families = _of_node(report) if report.fitness else _of_jobs(report)
    return "\n".join(line for family in families for line in family) + "\n"


def _of_node(report: Report) -> Iterator[list[str]]:
    fitness = [({"verdict": one}, float(one == report.fitness)) for one in _FITNESS]
    yield _family("node_fitness", "Verdict of nccl-doctor preflight on this node, 1 for the one that holds.", fitness)
    help_ = "Findings of nccl-doctor preflight, with the number of places that show them."
    yield _family("finding", help_, _findings(report, with_action=True))
    seconds = [
        ({"source": str(one["source"]), "outcome": str(one["outcome"])}, float(one["seconds"]))
        for one in report.job.get("collectors", [])
    ]
    yield _family("collector_seconds", "Time that a collector of nccl-doctor preflight took.", seconds)


def _of_jobs(report: Report) -> Iterator[list[str]]:
    jobs = [({"job": short.name(job)}, job) for job in report.jobs or [report]]
    verdicts = [({**of, "verdict": one}, float(one == job.verdict)) for of, job in jobs for one in VERDICTS]
    yield _family("verdict", "Verdict of nccl-doctor analyze on a job, 1 for the one that holds.", verdicts)
    findings = [({**of, **labels}, count) for of, job in jobs for labels, count in _findings(job)]
    yield _family("finding", "Findings of nccl-doctor analyze, with the number of places that show them.", findings)
    measures = [
        ({**of, "name": one.name, "unit": one.unit, "scope": one.scope, "of": one.of}, one.value)
        for of, job in jobs
        for one in islice(job.measures, MEASURES)
        if isfinite(one.value)
    ]
    yield _family("measure", "A number that the inputs of a job hold.", measures)
    coverage = [({**of, "aspect": one.aspect, "seen": one.seen}, 1.0) for of, job in jobs for one in job.coverage]
    yield _family("coverage", "How much of an aspect of a job its inputs show.", coverage)


def _findings(report: Report, *, with_action: bool = False) -> Iterator[_Row]:
    """Each rule that found something, with how many places show it."""
    seen: dict[tuple[str, ...], float] = {}
    for one in report.findings:
        key = (one.rule, one.name, one.severity, one.action)[: 4 if with_action else 3]
        seen[key] = seen.get(key, 0) + one.count
    names = ("rule", "name", "severity", "action")
    for key, count in seen.items():
        yield dict(zip(names, key, strict=False)), count


def _family(name: str, help_: str, rows: Iterable[_Row]) -> list[str]:
    """Metrics of one name; two rows of the same labels are one series, which has the last value."""
    full = f"nccl_doctor_{name}"
    series = {",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items()): n for labels, n in rows}
    return [
        f"# HELP {full} {help_}",
        f"# TYPE {full} gauge",
        *(f"{full}{{{labels}}} {value:.12g}" for labels, value in series.items()),
    ]


def _escaped(value: str) -> str:
    """A value of a label: one line, with backslashes and quotation marks escaped."""
    return clean(value).replace("\\", r"\\").replace('"', r"\"")
