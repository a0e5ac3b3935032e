"""One line a job, for folders of runs: `run7.log: ERROR: A rank was killed · rank 3 · certain · PEER021 · 412 ms a step`."""

from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.reporters import Options, words


def render(report: Report, options: Options) -> str:
    """Returns one line for each job, or one for the only one."""
    return "".join(f"{words.clean(name(job))}: {row(job)}\n" for job in report.jobs or [report])


def name(report: Report) -> str:
    """What the line is about: the name of the job among several, the only input, or how many there are."""
    if report.name or not report.inputs:
        return report.name or "-"
    first = report.inputs[0].path
    return first if len(report.inputs) == 1 else f"{first} and {len(report.inputs) - 1} more"


def row(report: Report) -> str:
    """Verdict, cause, scope, and the job's size and speed."""
    top = report.findings[0] if report.findings and report.verdict == report.findings[0].severity else None
    parts = [f"{words.HEADLINES[report.verdict]}: {words.headline(report)}", words.title_suffix(top) if top else ""]
    size = [counted(report.job[key], key[:-1]) for key in ("hosts", "ranks") if report.job.get(key)]
    speed = report.job_lines[-1] if len(report.job_lines) > 1 else ""
    return " · ".join(filter(None, [*parts, *size, words.clean(speed)]))
