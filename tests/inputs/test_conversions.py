"""Files that nothing here reads are named with what converts them, in the report and on stderr."""

from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.inputs.conversions import of_file
from nccl_doctor.reporters import Options, render

BINARY = b"\x01\x00\x02\xff" * 20
FILES = {
    "profile.nsys-rep": (BINARY, "nsys stats"),
    "old.qdrep": (BINARY, "nsys export --type sqlite"),
    "nsys.sqlite": (b"SQLite format 3\x00" + b"\x00" * 200 + b"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL", "nsys stats"),
    "run.nvvp": (b"SQLite format 3\x00" + b"\x00" * 200, "nvprof -i"),
    "kernel.ncu-rep": (BINARY, "ncu --import"),
    "system@1.journal": (b"LPKSHHRH" + BINARY, "journalctl --file"),
    "core.4711": (b"\x7fELF\x02\x01\x01" + b"\x00" * 9 + b"\x04\x00" + BINARY, "gdb PROGRAM"),
    "perf.data": (b"PERFILE2" + BINARY, "perf report"),
    "sa21": (b"\xd5\x96" + BINARY, "sar -A -f"),
    "ib0.pcap": (b"\xd4\xc3\xb2\xa1" + BINARY, "tcpdump"),
    "events.out.tfevents.1.node01.7.0": (BINARY, "tensorboard"),
    "run-1.wandb": (BINARY, "wandb sync"),
    "rank0.json": (b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[]}', "py-spy dump"),
    "fabric.txt": (b"# Topology file\n\nvendid=0x2c9\ndevid=0xd2f0\n", "ibstat"),
    "nodes.txt": (b"NodeName=n1 Arch=x86_64 CoresPerSocket=1\n", "scontrol show job"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_foreign_file_is_named_with_what_converts_it(name: str, tmp_path: Path) -> None:
    content, command = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageProblem, match=command):
        analyze.analyze([str(tmp_path / name)])


@pytest.mark.parametrize("path", sorted(p for p in FIXTURES.rglob("*") if p.is_file()), ids=lambda p: p.name)
def test_no_file_that_is_read_is_taken_for_a_foreign_one(path: Path) -> None:
    assert of_file(path.read_bytes()[:65536], path.name) is None


def test_beside_a_log_they_are_in_the_report_and_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.log").write_bytes((FIXTURES / "demo.log").read_bytes())
    alone = analyze.analyze([str(tmp_path)])[0]
    for name in ("a.nsys-rep", "b.nsys-rep", "system.journal"):
        (tmp_path / name).write_bytes(FILES.get(name, (b"LPKSHHRH", ""))[0] if "journal" in name else BINARY)
    report = analyze.analyze([str(tmp_path)])[0]
    assert (alone.verdict, alone.basis) == (report.verdict, report.basis)
    assert [f"{tmp_path}/a.nsys-rep and 1 more", f"{tmp_path}/system.journal"] == [
        one.path for one in report.inputs if one.kind == "unread"
    ]
    assert 2 == render("terminal", report, Options(verbose=True)).count("\nNot read ")
    main(["analyze", str(tmp_path)])
    printed = capsys.readouterr().err
    assert "nsys stats" in printed
    assert "journalctl --file" in printed
