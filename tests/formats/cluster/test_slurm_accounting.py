"""sacct and seff: states, statuses and numbers, whole and cut; the same ends as `scontrol show job` gives."""

import io
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, Measure, Message, ProcessEnd
from nccl_doctor.formats.cluster import slurm_accounting
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.registry import recognise

SACCT = FIXTURES / "captures" / "sacct.txt"
PIPED = """\
JobID|JobName|State|ExitCode|Elapsed|MaxRSS|NodeList|End
4713|train|FAILED|1:0|1-02:03:04||node[01-02]|2026-05-07T12:00:00
4713.batch|batch|FAILED|1:0|1-02:03:04|1024K|node01|2026-05-07T12:00:00
4713.0|python|FAILED|0:9|1-02:03:00|12.5G|node[01-02]|2026-05-07T12:00:00
"""
SEFF = """\
Job ID: 4714
Cluster: hpc
User/Group: anna/research
State: {state}
Nodes: 2
Cores per node: 64
CPU Utilized: 02:12:29
CPU Efficiency: 13.80% of 16:00:00 core-walltime
Job Wall-clock time: 00:07:30
Memory Utilized: 181.20 GB (estimated maximum)
Memory Efficiency: 90.60% of 200.00 GB
"""


def read(text: str) -> tuple[Facts, Reading]:
    known = recognise(text.encode())
    assert known is not None
    assert "slurm-accounting" == known.kind
    facts = Facts()
    return facts, slurm_accounting.read_format(io.BytesIO(text.encode()), "sacct.txt", facts)


def test_the_job_whose_end_is_certain_comes_first(tmp_path: Path) -> None:
    rows = ["JobID|JobName|State|ExitCode|Elapsed|NodeList|End"]
    for job, state, status in ((21, "FAILED", "0:9"), (22, "NODE_FAIL", "0:0"), (23, "OUT_OF_MEMORY", "0:125")):
        rows.append(f"{job}|train|{state}|{status}|00:20:00|node{job}|2026-05-07T12:{job}:00")
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    report, _, _ = analyze.analyze([str(tmp_path / "sacct.txt")])
    assert [("host-memory-oom", "certain"), ("node-failed", "certain"), ("rank-sigkill", "likely")] == [
        (finding.name, finding.confidence) for finding in report.findings
    ]


def test_table_of_sacct() -> None:
    report, facts, problems = analyze.analyze([str(SACCT)])
    assert [] == problems
    assert ["host-memory-oom"] == [finding.name for finding in report.findings]
    states = [(row.job, row.state, row.cpus) for row in facts.rows(AccountedJob)]
    assert ("4711", "OUT_OF_MEMORY", 128) == states[0]
    assert [("4712", "COMPLETED", 128), ("4712.0", "COMPLETED", 128)] == states[-2:]
    assert 1 == len(facts.rows(Message))


def test_columns_between_bars_and_the_step_that_failed() -> None:
    facts, reading = read(PIPED)
    assert (4, 4) == (reading.lines, reading.understood)
    (end,) = facts.rows(ProcessEnd)
    assert (-9, "SIGKILL", "sacct") == (end.exitcode, end.signal, end.reporter)
    assert [(93_784.0, None), (93_784.0, 1.0), (93_780.0, 12_800.0)] == [
        (row.elapsed_s, row.max_rss) for row in facts.rows(AccountedJob)
    ]


@given(st.permutations(["JobID", "JobName", "State", "ExitCode", "Elapsed", "MaxRSS"]), st.booleans())
def test_columns_come_in_the_order_that_was_asked_for(titles: list[str], bars: bool) -> None:
    job = {"JobID": "4711", "JobName": "train", "State": "FAILED", "ExitCode": "1:0", "Elapsed": "01:00:00"}
    rows = [{title: title for title in titles}, {**job, "MaxRSS": ""}, {**job, "JobID": "4711.0", "MaxRSS": "2G"}]
    lines = ["|".join(row[title] for title in titles) for row in rows]
    if not bars:
        lines = [" ".join(f"{row[title]:>10}" for title in titles) for row in rows]
        lines.insert(1, " ".join(["-" * 10] * len(titles)))
    text = "\n".join(lines).encode() + b"\n"
    known = recognise(text)
    assert known is not None
    assert "slurm-accounting" == known.kind
    facts = Facts()
    slurm_accounting.read_format(io.BytesIO(text), "sacct.txt", facts)
    found = [(row.job, row.name, row.state, row.elapsed_s, row.max_rss) for row in facts.rows(AccountedJob)]
    assert [("4711", "train", "FAILED", 3600.0, None), ("4711.0", "train", "FAILED", 3600.0, 2048.0)] == found


@pytest.mark.parametrize("between", [",", ";", "\t", "^", "||", "::", " "])
def test_any_delimiter_gives_what_bars_give(between: str) -> None:
    facts, _ = read(PIPED)
    others, reading = read(PIPED.replace("|", between))
    assert 4 == reading.understood
    assert [row[:-1] for row in facts.rows(AccountedJob)] == [row[:-1] for row in others.rows(AccountedJob)]
    assert [(row.host, row.exitcode) for row in facts.rows(ProcessEnd)] == [
        (row.host, row.exitcode) for row in others.rows(ProcessEnd)
    ]


@pytest.mark.parametrize(
    ("state", "kinds", "codes"),
    [
        ("OUT_OF_MEMORY (exit code 0)", ["slurm-oom-kill"], []),
        ("CANCELLED by 1001", ["slurm-cancelled"], []),
        ("FAILED (exit code 3)", [], [3]),
        ("COMPLETED (exit code 0)", [], []),
    ],
)
def test_answer_of_seff(state: str, kinds: list[str], codes: list[int]) -> None:
    facts, _ = read(SEFF.format(state=state))
    assert (kinds, codes) == (
        [row.kind for row in facts.rows(Message)], [row.exitcode for row in facts.rows(ProcessEnd)]
    )  # fmt: skip
    (job,) = facts.rows(AccountedJob)
    assert (450.0, pytest.approx(185_548.8), 0.138, pytest.approx(0.906)) == (
        job.elapsed_s, job.max_rss, job.cpu_efficiency, job.memory_efficiency
    )  # fmt: skip


def test_the_step_that_ran_out_of_memory_is_named_with_its_node(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobID|JobName|NNodes|State|ExitCode|NodeList|MaxRSS|MaxRSSNode|MaxRSSTask\n"
        "81|train|4|OUT_OF_MEMORY|0:125|gpu[011-014]|||\n"
        "81.batch|batch|1|OUT_OF_MEMORY|0:125|gpu011|1048576000K|gpu011|0\n"
        "81.0|python|4|FAILED|1:0|gpu[011-014]|310000000K|gpu013|17\n"
    )
    report, _, _ = analyze.analyze([str(path)])
    (finding,) = report.findings
    assert ("host-memory-oom", "gpu011") == (finding.name, finding.hosts)
    assert "a process of step 81.batch (most memory: 1,000 GiB, task 0 on gpu011)" in finding.message


def test_measures_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "seff.txt"
    path.write_text(SEFF.format(state="COMPLETED (exit code 0)"))
    _, facts, _ = analyze.analyze([str(path)])
    shown = {row.name: row.value for row in facts.rows(Measure) if (row.scope, row.of) == ("batch-job", "4714")}
    assert {"elapsed": 450.0, "max_rss": 185_548.8, "cpu_efficiency": 13.8, "memory_efficiency": 90.6} == pytest.approx(
        shown
    )


@given(st.integers(0, 600), st.text(max_size=20))
def test_cut_and_changed_tables(cut: int, more: str) -> None:
    text = SACCT.read_text()
    facts = Facts()
    data = (text[:cut] + more).encode("utf-8", "replace")
    reading = slurm_accounting.read_format(io.BytesIO(data), "sacct.txt", facts)
    assert reading.understood <= reading.lines
    assert len(facts.rows(AccountedJob)) <= 6


SEVERAL = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
810             prepare        cpu   research         16  COMPLETED      0:0
811             train-a        gpu   research         96 OUT_OF_ME+    0:125
811.batch         batch              research         96 OUT_OF_ME+    0:125
812             train-b        gpu   research        192    TIMEOUT      0:0
812.0            python              research        192     FAILED     15:0
813            evaluate        gpu   research         48     FAILED      1:0
814            evaluate        gpu   research         48     FAILED      1:0
815             train-c        gpu   research        192     FAILED      0:9
816             train-d        gpu   research        192 CANCELLED+      0:0
817             train-e        gpu   research        192 NODE_FAIL       0:0
"""


def test_jobs_of_one_table_are_named_and_do_not_explain_each_other(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SEVERAL.replace("192 NODE_FAIL ", "192  NODE_FAIL"))
    report, _, _ = analyze.analyze([str(path)])
    assert {
        "host-memory-oom": "job 811 (train-a)",
        "scheduler-time-limit": "job 812 (train-b)",
        "rank-exited": "2 jobs, 813 (evaluate), 814 (evaluate)",
        "rank-sigkill": "job 815 (train-c)",
        "scheduler-cancelled": "job 816 (train-d)",
        "node-failed": "job 817 (train-e)",
    } == {finding.name: finding.values["accounted"] for finding in report.findings}
    assert all(finding.message.startswith(f"{finding.values['accounted']}: ") for finding in report.findings)
    assert [] == [one for finding in report.findings for one in (*finding.explains, *finding.explained_by)]
    killed = next(finding for finding in report.findings if finding.name == "rank-sigkill")
    assert ("cause", "error") == (killed.role, killed.severity)
    assert report.job["end"].startswith("8 jobs: 3 failed, 1 cancelled, ")


def test_a_single_job_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("".join(SEVERAL.splitlines(keepends=True)[i] for i in (0, 1, 3, 4)))
    report, _, _ = analyze.analyze([str(path)])
    (finding,) = report.findings
    assert finding.message.startswith("job 811 (train-a): memory ran out")


@pytest.mark.parametrize(
    ("state", "status", "end"), [("COMPLETED", "0:0", "ended in order"), ("PENDING", "0:0", "job 4713 is pending")]
)
def test_a_single_job_has_an_end(tmp_path: Path, state: str, status: str, end: str) -> None:
    (tmp_path / "sacct.txt").write_text(f"JobID|JobName|State|ExitCode\n4713|train|{state}|{status}\n")
    report, _, _ = analyze.analyze([str(tmp_path / "sacct.txt")])
    assert ("nothing-found", end) == (report.verdict, report.job["end"])


def test_lines_below_the_table_that_are_no_jobs() -> None:
    text = "JobID|State|ExitCode\n77|FAILED|1:0\n78_[3-9]|PENDING|0:0\n\nsee|also|jobs of last week\nmore|or|less\n"
    facts = Facts()
    slurm_accounting.read_format(io.BytesIO(text.encode()), "jobs.txt", facts)

    assert ["77", "78_[3-9]"] == [job for (job,) in facts.query("SELECT job FROM accounted_job ORDER BY job")]


def test_a_table_without_titles(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(
        "77|train|2026-05-07T12:00:00|01:02:03|COMPLETED|0:0|node01\n"
        "78|train|2026-05-07T12:00:00|01:02:03|CANCELLED by 1001|0:0|node01\n"
        "79|train|2026-05-07T12:00:00|01:02:03|OUT_OF_MEMORY|0:125|node02\n"
        "79.0|train|2026-05-07T12:00:00|01:02:03|OUT_OF_MEMORY|0:125|node02\n"
    )
    report, facts = analyze.analyze([str(path)])[:2]

    assert ["slurm-accounting"] == [one.kind for one in report.inputs]
    rows = facts.query("SELECT job, state FROM accounted_job WHERE job NOT LIKE '%.%' ORDER BY job")
    assert [("77", "COMPLETED"), ("78", "CANCELLED"), ("79", "OUT_OF_MEMORY")] == rows
    assert any("79" in one.message for one in report.findings)


@pytest.mark.parametrize(
    "line", ["77|train|COMPLETED|node01", "77|train|done|0:0", "epoch|77|COMPLETED|0:0", "12:30|COMPLETED|0:0"]
)
def test_other_tables_without_titles(line: str) -> None:
    assert recognise(f"{line}\n".encode()) is None


def test_a_table_without_the_numbers_of_jobs_counts_them(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "CPUTimeRAW|ReqCPUS|ReqMem|Partition|State\n1200|4|10G|gpu|COMPLETED\n800|4|10G|gpu|FAILED\n2400|4|10G|gpu|TIMEOUT\n"
    )
    report, facts, _ = analyze.analyze([str(tmp_path / "jobs.csv")])
    assert ["COMPLETED", "FAILED", "TIMEOUT"] == [row.state for row in facts.rows(AccountedJob)]
    assert "3 jobs: 1 completed, 1 failed, 1 timeout" in " ".join(report.job_lines)
    assert "scheduler-time-limit" in {finding.name for finding in report.findings}


def test_a_job_that_failed_is_told_without_the_column_of_its_status(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(
        "JobID|JobName|State|Elapsed\n4242|train|FAILED|01:02:03\n4243|eval|COMPLETED|00:10:00\n"
    )
    report, _, _ = analyze.analyze([str(tmp_path / "sacct.txt")])
    assert [("rank-exited", True)] == [(one.name, "job 4242 (train)" in one.message) for one in report.findings]
