"""What Slurm printed of a dozen jobs (fixtures/slurm/recorded), against the tables of its database and against /proc."""

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import AccountedJob, Input, Message, ProcessEnd

RECORDED = FIXTURES / "slurm" / "recorded"
TABLES = ["sacct_bars.txt", "sacct.json.gz"]
# `enum job_states` of slurm.h
STATES = {3: "COMPLETED", 4: "CANCELLED", 5: "FAILED", 6: "TIMEOUT", 7: "NODE_FAIL", 11: "OUT_OF_MEMORY"}
CPU, MEMORY, NODES = "1", "2", "4"  # resources in the database; CPU time in ms, memory in bytes


def table(name: str) -> list[dict[str, Any]]:
    return list(csv.DictReader((RECORDED / name).open(), delimiter="\t"))


def resources(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (one.split("=") for one in text.split(","))}


def facts_of(path: Path | str) -> Facts:
    facts, problems = analyze.read_facts([str(RECORDED / path)])
    assert [] == problems
    return facts


def jobs_of(path: Path | str) -> dict[str, AccountedJob]:
    return {row.job: row for row in facts_of(path).rows(AccountedJob)}


def ends_of(facts: Facts) -> dict[str, Any]:
    """What is said of the end of each job that did not end well, by the kind of message or the status."""
    announced = {json.loads(row.fields)["job"]: row.kind for row in facts.rows(Message)}
    return announced | {str(row.exitcode): row.signal for row in facts.rows(ProcessEnd)}


@pytest.mark.parametrize("name", TABLES)
def test_jobs_are_those_of_the_database(name: str) -> None:
    found = jobs_of(name)
    for job in table("jobs.tsv"):
        row, allocated = found[job["shown"]], resources(job["allocated"])
        expected = job["name"], STATES[int(job["state"])], float(job["elapsed"]), allocated[CPU], allocated[NODES]
        assert expected == (row.name, row.state, row.elapsed_s, row.cpus, row.nodes)


@pytest.mark.parametrize("name", TABLES)
def test_steps_are_those_of_the_database(name: str) -> None:
    found, jobs = jobs_of(name), {job["job"]: job["shown"] for job in table("jobs.tsv")}
    steps = table("steps.tsv")
    assert 14 == len(steps)
    for step in steps:
        row = found[f"{jobs[step['job']]}.{step['step']}"]
        peak, least, mean = (resources(step[key]) for key in ("peak", "least", "mean"))
        whole = 1000 if name == "sacct_bars.txt" else 1  # sacct cuts to seconds
        assert (step["name"], STATES[int(step["state"])]) == (row.name, row.state)
        assert (float(step["elapsed"]), int(step["tasks"])) == (row.elapsed_s, row.tasks)
        assert row.max_rss == pytest.approx(peak[MEMORY] / 2**20, abs=0.001)
        assert row.mean_cpu_s == mean[CPU] // whole * whole / 1000
        assert row.least_cpu_s == least[CPU] // whole * whole / 1000
        nodes = ["node01", "node02"] if step["nodelist"] == "node[01-02]" else [step["nodelist"]]
        least_of = resources(step["least_task"])[CPU], nodes[resources(step["least_node"])[CPU]]
        assert least_of == (row.least_task, row.least_host)
        if row.elapsed_s:
            share = float(step["used"]) / row.elapsed_s / (row.cpus or 0)
            assert row.cpu_efficiency == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("name", [*TABLES, "seff.txt", "scontrol_jobs.txt"])
def test_ends_of_jobs(name: str) -> None:
    ended = {"15": "slurm-time-limit", "16": "slurm-cancelled", "21": "slurm-node-failure"}
    wait = {job["job"]: int(job["exit_code"]) for job in table("jobs.tsv") if STATES[int(job["state"])] == "FAILED"}
    assert {"12": 3 << 8, "13": 134 << 8, "14": 1 << 8} == wait
    ended |= {"None" if "json" in name else "3": None}
    if name in TABLES:  # the steps are known
        ended |= {"-6": "SIGABRT", "14": "slurm-oom-kill"}
    else:
        ended |= {"134": None, "1": None}
    assert ended == ends_of(facts_of(name))


def test_job_that_failed_with_a_status_that_was_lost() -> None:
    report, _, _ = analyze.analyze([str(RECORDED / "sacct.json.gz")])
    (exited,) = [finding for finding in report.findings if finding.name == "rank-exited"]
    assert "job 12 (train-steps): a process ended with exit code (not recorded), reported by sacct" == exited.message


def test_table_with_cut_columns_says_the_same_of_states() -> None:
    wide, narrow = jobs_of("sacct_bars.txt"), jobs_of("sacct.txt")
    assert {job: row.state for job, row in wide.items()} == {job: row.state for job, row in narrow.items()}
    assert ends_of(facts_of("sacct_bars.txt")) == ends_of(facts_of("sacct.txt"))


def test_efficiency_of_seff() -> None:
    found = jobs_of("seff.txt")
    used: dict[str, float] = {}
    for step in table("steps.tsv"):
        used[step["job"]] = used.get(step["job"], 0) + float(step["used"])
    for job in table("jobs.tsv"):
        if (row := found.get(job["shown"])) is None:
            assert job["shown"] in ("17_0", "17_1")  # seff was asked for 17_2 only
            continue
        cpus = resources(job["allocated"])[CPU]
        assert (STATES[int(job["state"])], cpus) == (row.state, row.cpus)
        # seff rounds the CPU time to seconds
        assert row.cpu_efficiency == pytest.approx(
            used[job["job"]] / int(job["elapsed"]) / cpus, abs=0.6 / int(job["elapsed"])
        )


@pytest.mark.parametrize("name", ["sstat.txt", "sstat_long.txt"])
def test_task_that_is_behind(name: str) -> None:
    seconds = [float(row["seconds"]) for row in table("tasks.tsv")]
    report, facts, _ = analyze.analyze([str(RECORDED / name)])
    row = {row.job: row for row in facts.rows(AccountedJob)}["22.0"]
    assert (4, 3, "node02") == (row.tasks, row.least_task, row.least_host)
    assert (int(sum(seconds) / 4), int(seconds[3])) == (row.mean_cpu_s, row.least_cpu_s)
    (finding,) = report.findings
    assert ("task-far-behind", "node02") == (finding.name, finding.hosts)
    assert finding.values["others"] == pytest.approx(sum(seconds[:3]) / 3, abs=4 / 3)


def test_tasks_that_are_behind_in_steps_that_did_not_end_well() -> None:
    report, _, _ = analyze.analyze([str(RECORDED / "sacct.json.gz")])
    found = [finding.values for finding in report.findings if finding.name == "task-far-behind"]
    assert [("16.0", 1, pytest.approx(39.99))] == [(one["job"], one["task"], one["others"]) for one in found]


def test_one_line_a_job_says_what_many_lines_say(tmp_path: Path) -> None:
    text = (RECORDED / "scontrol_jobs.txt").read_text()
    (tmp_path / "jobs.txt").write_text(re.sub(r"\n   (?=\S)", " ", text))
    many, one = facts_of("scontrol_jobs.txt"), facts_of(tmp_path / "jobs.txt")
    assert [row._replace(ref=0, last_line=0) for row in many.rows(Message)] == [
        row._replace(ref=0, last_line=0) for row in one.rows(Message)
    ]
    assert [row._replace(ref=0) for row in many.rows(ProcessEnd)] == [
        row._replace(ref=0) for row in one.rows(ProcessEnd)
    ]
    reports = [analyze.analyze([str(path)])[0] for path in (RECORDED / "scontrol_jobs.txt", tmp_path / "jobs.txt")]
    assert [(one.name, one.message) for one in reports[0].findings] == [
        (one.name, one.message) for one in reports[1].findings
    ]


def test_json_that_is_cut_is_read_to_there(tmp_path: Path) -> None:
    whole = gzip.decompress((RECORDED / "sacct.json.gz").read_bytes())
    (tmp_path / "sacct.json").write_bytes(whole[: whole.index(b'"job_id": 14,')])
    facts, problems = analyze.read_facts([str(tmp_path / "sacct.json")])
    assert ["11", "12", "13"] == [row.job for row in facts.rows(AccountedJob) if "." not in row.job]
    assert "3 jobs before that were read" in problems[0]


def test_json_of_newer_versions(tmp_path: Path) -> None:
    """Since 23.02 a number is an object and a state is a list."""

    def newer(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: newer(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [newer(inner) for inner in value]
        if key in ("return_code", "signal_id", "end", "start") and (value is None or isinstance(value, int)):
            return {"set": value is not None, "infinite": False, "number": value or 0}
        return [value] if key in ("current", "state", "status") and isinstance(value, str) else value

    old = json.loads(gzip.decompress((RECORDED / "sacct.json.gz").read_bytes()))
    (tmp_path / "sacct.json").write_text(json.dumps({"jobs": newer(old["jobs"]), "meta": {}, "errors": []}))
    facts, before = facts_of(tmp_path / "sacct.json"), facts_of("sacct.json.gz")
    assert ["slurm-json"] == [row.kind for row in facts.rows(Input)]
    assert ends_of(before) == ends_of(facts)
    assert [row._replace(ref=0) for row in before.rows(AccountedJob)] == [
        row._replace(ref=0) for row in facts.rows(AccountedJob)
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: text.index("16.0|")],
        lambda text: text.replace("12.1|train", "12.1\ufffdtrain"),
        lambda text: text + "\n" + text,
        lambda text: text.replace("\n13", "\nslurm_load_jobs error: Unable to contact slurm controller\n13", 1),
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
    ],
)
def test_tables_that_are_cut_or_mixed(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "sacct.txt").write_text(change((RECORDED / "sacct_bars.txt").read_text()))
    facts, _ = analyze.read_facts([str(tmp_path / "sacct.txt")])
    assert {"12.2", "13.0", "15"} <= {row.job for row in facts.rows(AccountedJob)}
    assert "SIGABRT" in ends_of(facts).values()


@pytest.mark.parametrize(
    ("job", "name", "hosts"),
    [
        ("12", "rank-exited", "node02"),
        ("13", "rank-crash", "node02"),
        ("14", "host-memory-oom", "node01"),
        ("15", "scheduler-time-limit", "node01"),
        ("16", "process-killed-by-launcher", ""),
        ("21", "node-failed", "node02"),  # node01 prints that the job was cancelled for it
    ],
)
def test_output_of_the_jobs(job: str, name: str, hosts: str) -> None:
    report, _, _ = analyze.analyze([str(RECORDED / f"job_{job}.log")])
    assert {hosts} == {finding.hosts for finding in report.findings if finding.name == name}
    assert name == report.findings[0].name
    assert ("note" if name in ("scheduler-time-limit", "process-killed-by-launcher") else "error") == report.verdict
