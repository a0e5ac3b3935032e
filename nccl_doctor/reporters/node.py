"""A node report as plain text: the verdict, then each finding with evidence and fix. Uses the standard library only."""

from nccl_doctor.common.plurals import counted
from nccl_doctor.diagnosis.report import Finding, Report
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.words import clean, clean_block

WORDS = {"drain": "DRAIN", "job": "JOB", "unknown": "UNKNOWN", "fit": "FIT"}
MEANING = {
    "drain": "the node is broken",
    "job": "the node is fine, but this job cannot work on it as launched",
    "unknown": "some checks could not be completed",
    "fit": "this node can run the job",
}
IN_PART = {"amd-gpus-judged-in-part": "AMD GPUs are judged only in part"}  # notes without which `fit` says too much
_COLOURS = {"drain": "31", "job": "33", "unknown": "35", "fit": "32"}
_EVIDENCE = 3  # places of one finding, without `verbose`


def render(report: Report, options: Options) -> str:
    """Returns the whole report as text."""
    host = str(report.job.get("host_names") or "this node")
    word = WORDS.get(report.fitness, "UNKNOWN")
    if options.color:
        word = f"\x1b[1;{_COLOURS.get(report.fitness, '35')}m{word}\x1b[0m"
    rows = [f"{word} {clean(host)}: {headline(report)}"]
    shown = [f for f in report.findings if options.verbose or f.severity != "note"]
    for finding in shown:
        rows += ["", *_finding(finding, host, options)]
    if hidden := len(report.findings) - len(shown):
        rows += ["", f"{counted(hidden, 'note')} not shown: -v"]
    rows += (
        ["", *(row for one in report.missing for row in wrap_labelled("unknown  ", one, options.width))]
        if report.missing
        else []
    )
    return "\n".join(rows) + "\n"


def headline(report: Report) -> str:
    """Returns the message of the finding that decided, else what the verdict means."""
    top = decisive(report)
    if top is not None:
        return _message_without_host(top, str(report.job.get("host_names") or ""))
    meaning = MEANING.get(report.fitness, "")
    warnings = sum(finding.severity != "note" for finding in report.findings)
    if report.fitness != "fit":
        return meaning
    text = f"{meaning}; {counted(warnings, 'warning')}" if warnings else f"no problem found: {meaning}"
    return "; ".join([text, *in_part(report)])


def in_part(report: Report) -> list[str]:
    """Returns what a node that is fit was not wholly judged for."""
    return list(dict.fromkeys(IN_PART[finding.name] for finding in report.findings if finding.name in IN_PART))


def _message_without_host(finding: Finding, host: str) -> str:
    """Returns the message without the name of the node that the report is about."""
    return clean(finding.message).removeprefix(f"{host}: ")


def decisive(report: Report) -> Finding | None:
    """Returns the first finding that decided the verdict, else None."""
    return next((f for f in report.findings if f.action == report.fitness and f.severity != "note"), None)


def label(finding: Finding) -> str:
    """`drain`, `job`, `warn` or `note`."""
    return finding.severity if finding.severity == "note" else finding.action


def _finding(finding: Finding, host: str, options: Options) -> list[str]:
    where = f" ({finding.hosts})" if finding.hosts and finding.hosts != host else ""
    rows = wrap_labelled(
        f"{label(finding)} {finding.rule} ",
        f"{finding.name}: {_message_without_host(finding, host)}{where}",
        options.width,
    )
    places = finding.evidence if options.verbose else finding.evidence[:_EVIDENCE]
    for place in places:
        text = clean(f"{place.file}: {place.text}" if place.text else place.file)
        rows.append(
            f"  {text[: options.width - 3]}…" if len(text) > options.width - 2 and not options.verbose else f"  {text}"
        )
    if options.verbose:
        rows += wrap_labelled("  why  ", finding.why, options.width)
    return rows + wrap_labelled("  next ", finding.fix, options.width)


def wrap_labelled(label_: str, block: str, width: int) -> list[str]:
    import textwrap

    rows: list[str] = []
    for line in clean_block(block).split("\n"):
        rows += textwrap.wrap(line, max(width - len(label_), 20), break_on_hyphens=False) or [""]
    return [(label_ if number == 0 else " " * len(label_)) + row for number, row in enumerate(rows)]
