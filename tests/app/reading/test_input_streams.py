"""Lines that were decompressed or converted are read again without doing it again."""

import gzip
import io
import json
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.app.reading import input_streams
from nccl_doctor.app.reading.input_reader import InputReader
from nccl_doctor.app.reading.input_streams import KeptStream
from nccl_doctor.facts.tables import Evidence, Step, ThroughputRun

LINES = [f"[rank{rank}]: step {step} loss 2.1 {1000 + rank}.5 tokens/s" for step in range(1, 40) for rank in (0, 3)]


def read(path: Path) -> list[object]:
    reader = InputReader([str(path)])
    reader.read_all()
    return [[row._replace(file="log") if "file" in row._fields else row for row in reader.facts.rows(table)]
            for table in (ThroughputRun, Step, Evidence)]  # fmt: skip


def write(folder: Path) -> tuple[Path, Path, Path]:
    plain, packed, records = folder / "a.log", folder / "a.log.gz", folder / "a.json"
    text = "\n".join(LINES) + "\n"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    records.write_text(
        "".join(json.dumps({"ts": "2026-05-07 12:00:00", "level": "INFO", "msg": line}) + "\n" for line in LINES)
    )
    return plain, packed, records


def test_steps_of_a_packed_log_are_those_of_the_plain_one(tmp_path: Path) -> None:
    plain, packed, _ = write(tmp_path)
    assert read(plain) == read(packed)


def test_what_is_too_large_to_be_kept_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, packed, records = write(tmp_path)
    kept = [read(packed), read(records)]
    monkeypatch.setattr(input_streams, "KEPT", 100)
    assert kept == [read(packed), read(records)]
    assert all(len(steps) == len(LINES) for _, steps, _ in kept)


def test_only_a_stream_that_was_read_to_its_end_is_there_again() -> None:
    stream = KeptStream(io.BytesIO(b"one line\nanother"))
    assert stream.read(9) == b"one line\n"
    assert stream.again() is None
    assert stream.read(100) + stream.read(100) == b"another"
    again = stream.again()
    assert again is not None
    assert again.read(100) == b"one line\nanother"


def test_a_log_of_json_over_several_lines_that_tells_of_nothing_is_a_log(tmp_path: Path) -> None:
    records = [{"event": "Test passed", "level": "info", "timestamp": f"2026-05-07T12:00:0{at}Z"} for at in range(3)]
    (tmp_path / "check.json").write_text("\n".join(json.dumps(record, indent=2) for record in records) + "\n")
    report, _, problems = analyze.analyze([str(tmp_path / "check.json")])

    assert ["text"] == [one.kind for one in report.inputs]
    assert [] == problems
