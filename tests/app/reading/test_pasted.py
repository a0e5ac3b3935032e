"""Outputs that stand in documents, mails and what a terminal showed are read by the readers of files of their own."""

import gzip
import io
import sys
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.formats import pastes

SACCT = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
5120          train-moe        gpu     speech        256    TIMEOUT      0:0
5120.batch        batch                speech         64  CANCELLED     0:15
"""
QACCT = """\
==============================================================
qname        gpu.q
hostname     gpu07
jobname      finetune
jobnumber    771
qsub_time    Mon May  6 12:00:00 2024
start_time   Mon May  6 12:00:10 2024
end_time     Mon May  6 12:30:10 2024
slots        8
failed       0
exit_status  137
ru_wallclock 1800
"""
SMI = """\
==============NVSMI LOG==============

Driver Version                            : 570.124.06
Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H200
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            DRAM Uncorrectable            : 4
"""
FABRIC = """\
    Fabric
        State                             : Completed
        Status                            : Success
        Health
            Bandwidth                     : Degraded
"""


def report_of(path: Path, text: str) -> analyze.Report:
    path.write_text(text)
    return analyze.analyze([str(path)])[0]


def fenced(text: str, indent: str = "") -> str:
    return f"{indent}```\n" + "".join(f"{indent}{line}\n" for line in text.splitlines()) + f"{indent}```\n"


@pytest.mark.parametrize(
    "wrapped",
    [
        f"Our job ended early:\n\n{fenced(SACCT)}\nWhy?\n",
        f"1. what we saw\n\n{fenced('sacct -j 5120' + chr(10) + SACCT, '   ')}",
        f"[me@login ~]$ squeue\n[me@login ~]$ sacct -j 5120\n{SACCT}[me@login ~]$ exit\nlogout\n",
        "On Monday I wrote:\n>\n> $ sacct -j 5120\n" + "".join(f"> {line}\n" for line in SACCT.splitlines()),
        "".join(f"    {line}\n" for line in SACCT.splitlines()),
        f"Our jobs ended early, as the table shows.\n\n{SACCT}\nWho can tell me why?\n",
        f"This is what it printed:\n{SACCT}",
        SACCT.replace(" ", chr(160)),
        "".join(f"\x1b[0;31m{line}\x1b[0m\n" for line in SACCT.splitlines()),
        f"\x1b]0;me@login: ~\x07\x1b[?2004h[me@login ~]$ sacct -j 5120\r\n{SACCT}[me@login ~]$ ",
    ],
    ids=[
        "fence",
        "fence of a list",
        "session",
        "mail",
        "indented",
        "below a sentence",
        "behind a colon",
        "web page",
        "colours",
        "title of a terminal",
    ],
)
def test_an_accounting_is_read_whatever_is_around_it(wrapped: str, tmp_path: Path) -> None:
    report = report_of(tmp_path / "note.md", wrapped)

    assert ["slurm-accounting"] == [one.kind for one in report.inputs]
    found = next(one for one in report.findings if one.name == "scheduler-time-limit")
    assert "5120" in found.message
    line = next(n for n, text in enumerate(wrapped.splitlines(), 1) if "TIMEOUT" in text)
    assert line in [one.line for one in found.evidence]


def test_several_outputs_and_a_log_are_read_together(tmp_path: Path) -> None:
    log = "gpu07:101:140 [0] NCCL INFO Using network Socket\n[rank3]: RuntimeError: CUDA error: out of memory\n"
    text = f"## What failed\n\n{fenced(SACCT)}\nand\n\n{fenced(QACCT)}\nThe log:\n{fenced(log)}"
    report = report_of(tmp_path / "issue.md", text)

    assert {"scheduler-time-limit", "cuda-oom"} <= {one.name for one in report.findings}
    assert ["nccl-log"] == [one.kind for one in report.inputs]
    assert any("771" in one.message for one in report.findings)


def test_an_output_that_a_log_may_hold_as_well_is_read_with_its_lines(tmp_path: Path) -> None:
    report = report_of(tmp_path / "issue.md", f"It is GPU 0:\n{fenced(SMI)}")

    assert "gpu-ecc-uncorrectable-now" in {one.name for one in report.findings}
    assert ["nvidia-smi-q"] == [one.kind for one in report.inputs]


def test_a_part_of_nvidia_smi_in_a_session(tmp_path: Path) -> None:
    report = report_of(tmp_path / "s.txt", f"root@gpu07:~# nvidia-smi -q | grep -A5 Fabric\n{FABRIC}root@gpu07:~# ")

    assert [("fabric-unhealthy", "error")] == [(one.name, one.severity) for one in report.findings]


def test_a_coloured_log_is_read_without_its_colours(tmp_path: Path) -> None:
    log = "#  Rank  0 Group  0 Pid    101 on      gpu07 device  0 [0x1b] NVIDIA H200\n"
    (tmp_path / "run.log").write_text("".join(f"\x1b[32m{line}\x1b[0m\n" for line in log.splitlines()))
    facts = analyze.analyze([str(tmp_path / "run.log")])[1]

    assert [("NVIDIA H200",)] == facts.query("SELECT value FROM job_fact WHERE name = 'gpu'")


def test_a_coloured_capture_that_is_too_long_to_be_a_note_is_read_as_what_it_is(tmp_path: Path) -> None:
    rows = "".join(
        f"{5120 + n:<12} \x1b[31m    train        gpu     speech        256    TIMEOUT      0:0\x1b[0m\n"
        for n in range(12_000)
    )
    report = report_of(tmp_path / "jobs.txt", "\n".join(SACCT.splitlines()[:2]) + "\n" + rows)

    assert ["slurm-accounting"] == [one.kind for one in report.inputs]


def test_compressed_and_piped_notes_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"So:\n{fenced(SACCT)}".encode()
    (tmp_path / "note.md.gz").write_bytes(gzip.compress(data))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    reports = [analyze.analyze([name])[0] for name in (str(tmp_path / "note.md.gz"), "-")]

    assert [["slurm-accounting"]] * 2 == [[one.kind for one in report.inputs] for report in reports]


def test_a_long_log_with_a_prompt_stays_a_log(tmp_path: Path) -> None:
    line = "gpu07:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    text = "$ sacct -j 5120\n" + SACCT + "$ mpirun ./train\n" + line * (pastes.LONGEST // len(line) + 1)
    report = report_of(tmp_path / "run.log", text)

    assert [("nccl-log", text.count("\n"))] == [(one.kind, one.lines) for one in report.inputs]


def test_the_facts_of_one_of_two_notes_are_those_of_that_note(tmp_path: Path) -> None:
    for name, text in (("a.md", fenced(SACCT)), ("b.md", fenced(QACCT))):
        (tmp_path / name).write_text(text)
    reader = analyze.InputReader([str(tmp_path / "a.md"), str(tmp_path / "b.md")])
    reader.read_all()
    facts = reader.facts_of([str(tmp_path / "b.md")])

    assert [("gridengine",)] == facts.query("SELECT DISTINCT scheduler FROM accounted_job")


def test_an_output_that_is_no_dump_ends_neither_its_document_nor_the_run(tmp_path: Path) -> None:
    text = "So:\n" + fenced('{"profiling_name": "x", "seq_id": 3}\n') + "\n" + fenced(SACCT)
    report = report_of(tmp_path / "note.md", text)

    assert "slurm-accounting" in {one.kind for one in report.inputs}
