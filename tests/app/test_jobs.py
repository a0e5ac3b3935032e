"""Files of several jobs are reported apart; files of one job stay together."""

import json
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from helpers.schemas import validator

from nccl_doctor.app import analyze, jobs
from nccl_doctor.app.related_logs import Groups, Traits
from nccl_doctor.cli.main import main
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.reporters import FORMATS, render
from nccl_doctor.reporters.json_report import schema
from nccl_doctor.simulate import Spec, write_log

HEADER = re.compile(r"(\S+?):(\d+):\d+ \[\d+\] ")


def report(*paths: Path, apart: str = "auto") -> Report:
    return analyze.analyze([str(path) for path in paths], apart=apart)[0]


def job(folder: Path, name: str, seed: int, **changes: object) -> list[str]:
    lines = list(write_log(Spec(nodes=2, gpus=2, steps=12, seed=seed, **changes)))  # type: ignore[arg-type]
    (folder / name).write_text("\n".join(lines) + "\n")
    return lines


def names(several: Report) -> list[str]:
    return sorted(one.name for one in several.jobs)


def test_two_runs_in_a_folder_are_two_jobs(tmp_path: Path) -> None:
    job(tmp_path, "a.log", 1)
    job(tmp_path, "b.log", 2)
    several = report(tmp_path)
    assert ["a.log", "b.log"] == names(several)
    alone = report(tmp_path / "a.log")
    assert alone.job_lines == next(one.job_lines for one in several.jobs if one.name == "a.log")


def test_logs_that_nothing_relates_are_read_as_one_job_and_the_report_says_so(tmp_path: Path) -> None:
    for name in ("train", "evaluate"):
        (tmp_path / f"{name}.log").write_text(
            "".join(f" iteration {n}/20 | elapsed time per iteration (ms): 1500.0 |\n" for n in range(20))
        )
    said = report(tmp_path).missing[:1]
    assert ["nothing relates 2 of the logs to each other"] == [one.partition(";")[0] for one in said]
    assert said == analyze.analyze([str(tmp_path)], apart="auto")[2]
    assert set(said).isdisjoint(report(tmp_path, apart="one").missing)
    (tmp_path / "train.log").rename(tmp_path / "evaluate.err")
    assert set(said).isdisjoint(report(tmp_path).missing)


def test_the_worst_job_comes_first_and_gives_the_verdict(tmp_path: Path) -> None:
    job(tmp_path, "a.log", 1)
    (tmp_path / "b.log").write_bytes((FIXTURES / "demo.log").read_bytes())
    several = report(tmp_path)
    assert ["b.log", "a.log"] == [one.name for one in several.jobs]
    assert "error" == several.verdict
    assert 1 == main(["analyze", "--format", "short", str(tmp_path)])


@pytest.mark.parametrize("named", ["nccl.{host}.{pid}.txt", "nccl.{host}.{pid}", "job-{pid}.out"])
def test_the_files_of_the_processes_of_one_job_stay_together(named: str, tmp_path: Path) -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for line in write_log(Spec(nodes=2, gpus=4, steps=4)):
        if found := HEADER.match(line):
            files[named.format(host=found[1], pid=found[2])].append(line)
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    assert len(files) == 8
    one = report(tmp_path)
    assert [] == one.jobs
    assert (2, 8) == (one.job["hosts"], one.job["ranks"])


def test_output_and_errors_of_one_scheduler_job_stay_together(tmp_path: Path) -> None:
    for number, seed in ((41017, 1), (41018, 2)):
        job(tmp_path, f"slurm-{number}.out", seed)
        (tmp_path / f"slurm-{number}.err").write_text(
            f"slurmstepd: error: *** JOB {number} ON node01 CANCELLED AT 2026-05-01T10:00:00 ***\n"
        )
    several = report(tmp_path)
    assert ["slurm-41017.err", "slurm-41018.err"] == names(several)
    assert [2, 2] == [len(one.inputs) for one in several.jobs]
    assert all("cancelled through Slurm" == one.job["end"] for one in several.jobs)


def test_a_job_and_its_captures_are_one_job(tmp_path: Path) -> None:
    job(tmp_path, "job.log", 1)
    (tmp_path / "gpu.csv").write_bytes((FIXTURES / "gpu" / "busy85.csv").read_bytes())
    (tmp_path / "timeline.json").write_bytes((FIXTURES / "timeline" / "healthy_4r.json").read_bytes())
    assert [] == report(tmp_path).jobs


def test_captures_go_with_the_job_of_their_folder(tmp_path: Path) -> None:
    for run, seed in (("run1", 1), ("run2", 2)):
        (tmp_path / run).mkdir()
        job(tmp_path / run, "job.log", seed)
    (tmp_path / "run1" / "gpu.csv").write_bytes((FIXTURES / "gpu" / "busy85.csv").read_bytes())
    (tmp_path / "topology.xml").write_bytes((FIXTURES / "topology" / "node01.xml").read_bytes())
    several = report(tmp_path)
    assert ["other files", "run1/job.log", "run2/job.log"] == names(several)
    assert {"run1/job.log": 2, "run2/job.log": 1, "other files": 1} == {
        one.name: len(one.inputs) for one in several.jobs
    }


def test_what_compares_jobs_is_found_across_them() -> None:
    logs = [FIXTURES / "throughput" / f"megatron_{gpus}.log" for gpus in (8, 16, 32)]
    apart = report(*logs, apart="each")
    assert 3 == len(apart.jobs)
    together = {finding.rule for finding in report(*logs, apart="one").findings}
    assert {finding.rule for finding in apart.findings} <= together
    assert apart.findings


def test_the_last_job_of_a_folder_is_that_whose_files_were_written_last(tmp_path: Path) -> None:
    for name, seed, at in (("slurm-41017.out", 1, 3_000), ("slurm-41018.out", 2, 9_000), ("slurm-41019.out", 3, 5_000)):
        job(tmp_path, name, seed)
        os.utime(tmp_path / name, (at, at))
    one, facts, said = analyze.analyze([str(tmp_path)], apart="last")
    assert [] == one.jobs
    assert ["slurm-41018.out"] == [Path(read.path).name for read in one.inputs]
    assert [(1,)] == facts.query("SELECT count(*) FROM input")
    assert ["slurm-41018.out is the last of 3 jobs"] == [text.partition(" by ")[0] for text in said]
    assert 0 == main(["analyze", "--jobs", "last", "--format", "short", str(tmp_path)])
    alone, _, said = analyze.analyze([str(tmp_path / "slurm-41017.out")], apart="last")
    assert ([], 1) == (said, len(alone.inputs))


def test_one_job_on_demand(tmp_path: Path) -> None:
    job(tmp_path, "a.log", 1)
    job(tmp_path, "b.log", 2)
    assert [] == report(tmp_path, apart="one").jobs


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_every_job(form: str, tmp_path: Path) -> None:
    job(tmp_path, "a.log", 1)
    job(tmp_path, "b.log", 2)
    several = report(tmp_path)
    text = render(form, several)
    assert "a.log" in text
    assert "b.log" in text
    if form == "short":
        assert 2 == len(text.splitlines())
    if form == "json":
        validator(schema()).validate(json.loads(text))


def test_a_report_of_one_job_is_one_short_line() -> None:
    text = render("short", report(FIXTURES / "demo.log"))
    assert 1 == text.count("\n")
    assert text.startswith(f"{FIXTURES}/demo.log: ERROR: ")


@pytest.mark.parametrize(
    ("shape", "groups"),
    [("ids of their own", 900), ("one id", 0), ("one process, benchmarks", 900), ("one communicator", 0)],
)
def test_logs_are_not_compared_pair_by_pair(shape: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 900
    logs = [
        jobs.Fingerprint(
            f"logs/job-{number}.txt",
            frozenset({str(number)} if shape == "ids of their own" else {"7"} if shape == "one id" else ()),
            frozenset({"0xc", hex(number)} if shape == "one communicator" else ()),
            frozenset({("node01", 1 if shape == "one process, benchmarks" else number)}),
            whole=shape == "one communicator",
            benchmark=shape == "one process, benchmarks",
        )
        for number in range(count)
    ]
    asked = []
    real = jobs._differ
    monkeypatch.setattr(jobs, "_differ", lambda one, other: asked.append(1) or real(one, other))

    assert groups == len(jobs.group(logs, []))
    assert len(asked) <= 2 * count


def test_groups_keep_the_order_of_what_joined_last() -> None:
    groups: Groups[str] = Groups(lambda *_: False)
    for name, keys in (("a", "x"), ("b", "y"), ("c", "z"), ("d", "zx")):
        traits = Traits(frozenset(keys), frozenset(), None)
        groups.add(name, traits, groups.related(name, traits))

    assert [["b"], ["a", "c", "d"]] == list(groups)
