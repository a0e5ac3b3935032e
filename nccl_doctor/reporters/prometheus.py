"""A node report for Prometheus' textfile collector: the verdict, the findings, and the time of each collector."""

from nccl_doctor.diagnosis.report import Report
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.words import clean

_FITNESS = ("fit", "drain", "job", "unknown")


def render(report: Report, options: Options) -> str:
    """Returns the text exposition format, version 0.0.4."""
    rows = [
        "# HELP nccl_doctor_node_fitness Verdict of nccl-doctor preflight on this node, 1 for the one that holds.",
        "# TYPE nccl_doctor_node_fitness gauge",
        *(f'nccl_doctor_node_fitness{{verdict="{one}"}} {int(one == report.fitness)}' for one in _FITNESS),
        "# HELP nccl_doctor_finding Findings of nccl-doctor preflight, with the number of places that show them.",
        "# TYPE nccl_doctor_finding gauge",
    ]
    seen: dict[str, int] = {}
    for finding in report.findings:
        labels = f'rule="{finding.rule}",name="{finding.name}",severity="{finding.severity}",action="{finding.action}"'
        seen[labels] = seen.get(labels, 0) + finding.count
    rows += [f"nccl_doctor_finding{{{labels}}} {count}" for labels, count in seen.items()]
    rows += [
        "# HELP nccl_doctor_collector_seconds Time that a collector of nccl-doctor preflight took.",
        "# TYPE nccl_doctor_collector_seconds gauge",
    ]
    for one in report.job.get("collectors", []):
        source, outcome = clean(str(one["source"])), clean(str(one["outcome"]))
        rows.append(f'nccl_doctor_collector_seconds{{source="{source}",outcome="{outcome}"}} {one["seconds"]:g}')
    return "\n".join(rows) + "\n"
