"""Compressed logs that other processes read ahead give what reading them here gives."""

import gzip
import json
from pathlib import Path

import pytest

from nccl_doctor.app.analyze import analyze
from nccl_doctor.app.reading import packed_logs
from nccl_doctor.reporters import json_report
from nccl_doctor.simulate.scenario import write_log
from nccl_doctor.simulate.spec import Spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job in compressed files: its log in parts, a broken part, records of JSON, samples of GPUs, an empty file."""
    lines = list(write_log(Spec(nodes=2, gpus=4, fault="xid-79-off-bus")))
    middle = len(lines) // 2
    records = "".join(json.dumps({"time": "2026-05-07T12:00:00Z", "log": line}) + "\n" for line in lines[:50])
    samples = "index, utilization.gpu [%]\n" + "0, 97 %\n1, 3 %\n" * 20
    texts = {"a.log": lines[:middle], "b.log": lines[middle:], "c.json": [records], "d.csv": [samples], "e.log": []}
    for name, text in texts.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress("\n".join([*text, ""]).encode() if text else b""))
    whole = (tmp_path / "a.log.gz").read_bytes()
    (tmp_path / "broken.log.gz").write_bytes(whole[: len(whole) // 2])
    return tmp_path


def reported(folder: Path) -> str:
    return json.dumps(json_report.document(analyze([str(folder)])[0]))


def test_reading_ahead_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_logs, "processors", lambda: 1)
    alone = reported(folder)
    assert "ends in the middle of its compressed data" in alone
    asked = []
    result = packed_logs.Ahead.result
    monkeypatch.setattr(
        packed_logs.Ahead, "result", lambda self, key: asked.append(found := result(self, key)) or found
    )
    monkeypatch.setattr(packed_logs, "processors", lambda: 2)
    monkeypatch.setattr(packed_logs, "_MANY", 1)
    monkeypatch.setattr(packed_logs, "_GROUP", 1)
    assert alone == reported(folder)
    assert 3 == sum(one is not None for one in asked)


def test_a_log_whose_reader_was_killed_is_read_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_logs, "processors", lambda: 1)
    alone = reported(folder)
    monkeypatch.setattr(packed_logs, "processors", lambda: 2)
    monkeypatch.setattr(packed_logs, "_MANY", 1)
    monkeypatch.setattr(packed_logs, "_GROUP", 1)
    monkeypatch.setattr(packed_logs, "_log", _killed)
    assert alone == reported(folder)


def _killed(_source: object) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
