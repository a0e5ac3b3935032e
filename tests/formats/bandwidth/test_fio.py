"""Output of fio: recorded on a local disk, and other nodes in its form."""

import io
import json
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.bandwidth import fio

READ = FIXTURES / "bandwidth" / "fio_read.txt"


def read(text: str) -> list[ActiveTest]:
    facts = Facts()
    fio.read_format(io.BytesIO(text.encode()), "fio.txt", facts)
    return facts.rows(ActiveTest)


def test_recorded_runs() -> None:
    assert [("seqread read", 490.0)] == [(row.test, row.value) for row in read(READ.read_text())]
    mixed = (FIXTURES / "bandwidth" / "fio_mixed.txt").read_text()
    assert [("mix read", 93.4), ("mix write", 98.3)] == [(row.test, row.value) for row in read(mixed)]


def test_recorded_json_agrees_with_its_own_bytes() -> None:
    text = READ.with_suffix(".json").read_text()
    said = json.loads(text)["jobs"][0]["read"]
    (row,) = read(text)
    assert pytest.approx(said["io_bytes"] / said["runtime"] / 1e3, rel=1e-3) == row.value
    assert ("seqread read", "MB/s", "pass") == (row.test, row.unit, row.outcome)


@pytest.mark.parametrize(("text", "value"), [("(512kB/s)", 0.512), ("(3.50GB/s)", 3500.0), ("(900B/s)", 0.0009)])
def test_units(text: str, value: float) -> None:
    (row,) = read(READ.read_text().replace("(490MB/s)(", f"{text}("))
    assert pytest.approx(value) == row.value


def test_the_slow_node_is_named(tmp_path: Path) -> None:
    for node, rate in enumerate((490, 495, 21, 488)):
        (tmp_path / f"node0{node}.txt").write_text(READ.read_text().replace("490MB/s", f"{rate}MB/s"))
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert ["storage-test-slow"] == [finding.name for finding in report.findings]
    assert "node02: seqread read reaches 21.0 MB/s, 489.0 are usual over 4 runs" in report.findings[0].message


def test_a_job_that_failed_is_an_error(tmp_path: Path) -> None:
    failed = READ.read_text().replace(
        "err= 0:", "err=28 (file:filesetup.c:245, func=write, error=No space left on device):"
    )
    rows = read(failed)
    assert [("seqread", "fail", None)] == [(row.test, row.outcome, row.value) for row in rows[:1]]
    (tmp_path / "fio.txt").write_text(failed)
    report, _, _ = analyze.analyze([str(tmp_path / "fio.txt")])
    assert "error" == report.findings[0].severity


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"fio version": "x", "jobs": 3}',
        '{"fio version": "x", "jobs": [1, {"jobname": 2}]}',
        "x: (groupid=0, jobs=1): err=",
    ],
)
def test_odd_text_says_nothing(text: str) -> None:
    assert [] == read(text)


def test_a_name_of_a_job_like_that_of_a_host() -> None:
    """Behind a prefix of pdsh the line of a job looks the same."""
    text = "Seq1M-Read-Q8: (groupid=0, jobs=1): err= 0: pid=86: Wed Jul 31 19:17:00 2024\n"
    text += "  read: IOPS=86, BW=86.8MiB/s (91.0MB/s)(1024MiB/11799msec)\n"
    facts = Facts()
    fio.read_format(io.BytesIO(text.encode()), "fio.txt", facts)
    assert [(None, "Seq1M-Read-Q8 read", 91.0)] == [(row.host, row.test, row.value) for row in facts.rows(ActiveTest)]


def test_results_of_version_2(tmp_path: Path) -> None:
    path = tmp_path / "fio.txt"
    path.write_text(
        "rw8k: (groupid=4, jobs=4): err= 0: pid=12942: Thu Sep  8 14:03:14 2016\n"
        "  read : io=11263MB, bw=384390KB/s, iops=48048, runt= 30003msec\n"
        "    slat (usec): min=1, max=9321, avg=12.10, stdev=40.10\n"
        "  write: io=1.5GB, bw=164.9MB/s, iops=20617, runt= 30003msec\n"
    )
    _, facts, _ = analyze.analyze([str(path)])
    assert {"rw8k read": 393.6, "rw8k write": 172.9} == pytest.approx(
        {row.test: row.value for row in facts.rows(ActiveTest)}, abs=0.1
    )


def test_results_inside_the_document_of_a_harness(tmp_path: Path) -> None:
    run = json.loads((FIXTURES / "bandwidth" / "fio_read.json").read_text())
    (tmp_path / "out.json").write_text(json.dumps({"data": [run], "command": "fio --name=x"}, indent=4))
    report, facts, _ = analyze.analyze([str(tmp_path / "out.json")])
    assert ["storage-test"] == [one.kind for one in report.inputs]
    assert [row.value for row in read(json.dumps(run))] == [row.value for row in facts.rows(ActiveTest)]


def test_rates_of_versions_between_2_and_3() -> None:
    text = "iops: (groupid=0, jobs=1): err= 0: pid=11: Mon Feb 17 14:59:11 2020\n"
    text += "   read: IOPS=2967, BW=11.7MiB/s (12.2MB/s)(174MiB/15017msec)\n  write: IOPS=1801, BW=7223KiB/s (7396kB/s)(107MiB/15106msec)\n"
    assert [("iops read", 12.2), ("iops write", 7.396)] == [(row.test, row.value) for row in read(text)]
