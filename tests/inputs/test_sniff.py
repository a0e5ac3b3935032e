"""What the first bytes of a file say about its kind."""

import sqlite3
import zipfile
from pathlib import Path

import pytest
import zstandard
from helpers.input_files import LINE, LOG, look
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.inputs import detect, sources
from nccl_doctor.inputs.sources import sniff


@given(st.binary(max_size=500))
def test_sniff_never_fails(head: bytes) -> None:
    assert sniff(head)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (LINE, "nccl-log"),
        (b"NCCL version 2.21.5+cuda12.4\n", "nccl-log"),
        (b"RCCL version 2.22.3\n", "nccl-log"),
        (b"node01:101:140 [0] INFO NET/Socket : 1 interfaces found\n", "nccl-log"),
        (b"\xef\xbb\xbf" + LINE, "nccl-log"),
        (LINE + bytes(4000) + LINE, "nccl-log"),
        (b'{"log":"' + LINE.strip() + b'\\n","stream":"stderr"}\n', "nccl-log"),
        (b'<stdout rank="3">' + LINE.strip() + b"</stdout>\n", "nccl-log"),
        (b"Traceback (most recent call last):\n", "job-log"),
        (b"\x1b[36m(Worker pid=1)\x1b[0m hello\n", "job-log"),
        (b"caf\xe9 epoch 3\n", "job-log"),
        (b"[1,0]<stdout>:hello\n", "job-log"),
        (b"some words\n", "text"),
        (b'{"schemaVersion": 1, "traceEvents": [{"name": "nccl:all_reduce"}]}', "json"),
        (b'[\n{"name": "process_name"},\n', "json"),
        (b'<system version="1">\n  <cpu numaid="0"/>\n', "xml"),
        (b'<?xml version="1.0"?>\n<nvidia_smi_log>', "xml"),
        (b"<graphs version='1'>\n<graph/>", "xml"),
        (b"<style>\nc { color: red; }\n</style>\n\n# Output\nstep 1 loss 2.5\n", "job-log"),
        (b"\x80\x02}q\x00", "pickle"),
        (b"", "empty"),
        (b" \r\n", "empty"),
        (bytes(100), "binary"),
        (zstandard.ZstdCompressor().compress(LOG), "compressed"),
    ],
)
def test_sniff(head: bytes, kind: str) -> None:
    assert kind == sniff(head)


def test_sniff_facts_file(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "job.db") as base:
        base.execute("CREATE TABLE message (text)")

    assert sniff((tmp_path / "job.db").read_bytes()) == "sqlite"
    assert [tmp_path / "job.db"] == [source.path for source in look(tmp_path / "job.db")[0]]


def test_sniff_takes_the_name_only_for_plain_text() -> None:
    assert sniff(b"some words\n", "slurm-12.out") == "job-log"
    assert sniff(b"\x7fELF", "slurm-12.out") == "program"


def test_a_hole_of_zero_bytes_makes_no_binary_file_of_a_log() -> None:
    text = b"rank0: step 1 loss 2.3\n" * 40
    for head in (text + bytes(3_000) + text, bytes(3_000) + text, text + bytes(3_000)):
        assert "binary" != detect.sniff(head, "job.out")
    for head in (bytes(range(256)) * 50, b"\x01\x00\x02\x00" * 100, text + b"\x00" + text):
        assert "binary" == detect.sniff(head, "job.out")


def test_a_number_that_was_printed_as_a_character_makes_no_binary_file() -> None:
    text = b"rank0: step 1 loss 2.3\n" * 100
    assert "job-log" == detect.sniff(text + b"W gpu_resources.cc:275] WARNING: device: \x00. Go on.\n" + text, "")
    assert "binary" == detect.sniff((text + b"\x00\x00\x00\x00") * 3, "")


@pytest.mark.parametrize("member", ["[Content_Types].xml", "docProps/app.xml", "xl/workbook.xml", "word/document.xml"])
def test_documents_of_office_programs_are_named(tmp_path: Path, member: str) -> None:
    path = tmp_path / "results.csv"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "<a/>")
        archive.writestr("xl/worksheets/sheet1.xml", "<b/>")
    head = path.read_bytes()
    assert "office" == sniff(head, path.name)
    (problem,) = sources.expand([str(path)], lambda _: False)
    assert "save the table as CSV" in str(problem)
