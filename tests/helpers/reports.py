"""Reports that reporters are tried with."""

from typing import Any

import pytest

from nccl_doctor.diagnosis.report import Check, CoverageRow, Finding, InputSummary, MeasureRow, Place, Report

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]markup[/bold] [link=http://x]y[/link] <script>alert(1)</script> & \"'"
    " ]]> --> \x00\x08\x7f\x9b2J \u202egnp.exe\u202c \ud800 \ufffe `code` ``` @everyone ![x](http://x/y.png) :smile: 日本語の行"
)


def finding(rule: str = "NET003", **changes: Any) -> Finding:
    given: dict[str, Any] = {
        "rule": rule,
        "name": "libibverbs-missing",
        "title": "libibverbs cannot be loaded",
        "severity": "error",
        "role": "cause",
        "confidence": "certain",
        "message": "node[01-02] could not load libibverbs, so NCCL sees no InfiniBand or RoCE device",
        "why": "NCCL loads the library at run time. Without it all traffic between nodes goes through TCP.",
        "fix": "Install the package in the image:\n  apt-get install libibverbs1\nTakes a minute; undo by removing it.",
        "hosts": "node[01-02]",
        "ranks": "0-15",
        "values": {"host": "node01", "rank": 3, "share": 0.5, "none": None},
        "references": ["NCCL src/misc/ibvwrap.cc", "https://docs.nvidia.com/deeplearning/nccl/"],
        "evidence": [
            Place("job.log", 12, "node01:101:140 [0] NCCL INFO NET/IB : Failed to open libibverbs.so[.1]"),
            Place("job.log", 45, "node02:101:140 [0] NCCL INFO NET/IB : Failed to open libibverbs.so[.1]"),
        ],
    }
    return Finding(**{**given, **changes})


def report(verdict: str = "error", *findings: Finding, **changes: Any) -> Report:
    given: dict[str, Any] = {
        "inputs": [InputSummary("job.log", "nccl-log", 1000, 200, 120, 121)],
        "job": {"hosts": 2, "ranks": 16, "nccl_versions": ["2.21.5"], "network": ["Socket"]},
        "checks": [
            *(Check(one.rule, one.name, "found") for one in findings),
            Check("NET009", "port-down", "skipped", "no facts in table port", "a log with NCCL_DEBUG=INFO"),
            Check("NET010", "odd-rule", "broken", "no such column: x"),
            Check("NET011", "clear-rule", "clear"),
        ],
        "job_lines": ["2 hosts node[01-02] · 16 x H100 · 16 ranks", "412 ms a step · ended in order"],
        "coverage": [
            CoverageRow(
                "start-up", "seen", "16 of 16 ranks came up", "NCCL_DEBUG=INFO", [Place("job.log", 3, "Init COMPLETE")]
            ),
            CoverageRow("progress", "partly", "2 step lines", "the step lines"),
            CoverageRow("gpus", "not", "", "nvidia-smi"),
        ],
        "measures": [
            MeasureRow("step_time", 0.412, "s", "run", "megatron", [Place("job.log", 90, "elapsed time 412")])
        ],
        "missing": ["the log holds no INFO lines; rerun with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"],
    }
    return Report(verdict=verdict, findings=list(findings), **{**given, **changes})


def hostile() -> Report:
    bad = finding(
        title=HOSTILE, message=HOSTILE, why=HOSTILE, fix=f"{HOSTILE}\n{HOSTILE}", hosts=HOSTILE, ranks=HOSTILE,
        values={HOSTILE: HOSTILE, "list": [HOSTILE], "nan": float("nan")}, references=[HOSTILE, f"https://x/{HOSTILE}"],
        evidence=[Place(HOSTILE, 1, HOSTILE), Place("/a/b/" + "c" * 300 + ".log", 2, "x" * 3000)],
    )  # fmt: skip
    return report(
        "error", bad, finding("NET001", title=HOSTILE, severity="warning", explained_by=["NET003"]),
        finding("CFG001", title=HOSTILE, severity="note"),
        inputs=[InputSummary(HOSTILE, "job-log", 1, 1, 0, 0, HOSTILE)], job_lines=[HOSTILE], basis=HOSTILE,
        unread=[Place(HOSTILE, 1, HOSTILE)], unread_count=1, coverage=[CoverageRow("end", "seen", HOSTILE, HOSTILE)],
        measures=[MeasureRow(HOSTILE, float("inf"), HOSTILE, "run", HOSTILE)],
        job={"hosts": 1, "ranks": 1, "nccl_versions": [HOSTILE], "network": [HOSTILE]},
        checks=[Check("NET003", "a", "found"), Check("NET004", HOSTILE, "skipped", HOSTILE), Check("NET005", "b", "broken", HOSTILE)],
        missing=[HOSTILE],
    )  # fmt: skip


def large() -> Report:
    """More of everything than a screen holds."""
    fix = "\n".join(
        f"Step {n}: look at the other side of the link and replace the cable if it counts errors." for n in range(30)
    )
    places = [
        Place("/scratch/project/user/run/2024/job.log", n, "node01:1:1 [0] NCCL WARN " + "x" * 200)
        for n in range(1, 13)
    ]
    first = finding(
        message="many words " * 60, fix=fix, evidence=places, hosts=",".join(f"host{n}x" for n in range(90))
    )
    follows = [finding(f"SYM{n:03}", role="symptom", severity="warning", explained_by=["NET003"]) for n in range(20)]
    also = [finding(f"CFG{n:03}", role="context", severity="note") for n in range(20)]
    return report("error", first, *follows, *also)


REPORTS = {
    "error": lambda: report("error", finding(), finding("NET001", severity="warning", role="symptom", explained_by=["NET003"])),
    "warning": lambda: report("warning", finding(severity="warning", confidence="possible", hosts="", ranks="", evidence=[])),
    "note": lambda: report("note", finding(severity="note")),
    "healthy": lambda: report("healthy", missing=[]),
    "inconclusive": lambda: report("inconclusive", inputs=[InputSummary("x", "text", 1, 1, 0)], job={}),
    "empty": lambda: Report("inconclusive", [], {}, [], []),
    "hostile": hostile,
    "large": large,
}  # fmt: skip
every_report = pytest.mark.parametrize("name", REPORTS)
