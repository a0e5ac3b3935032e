"""What the start and the end of a recording say: still running, ended by a signal to the recorder, output that was lost."""

import json
import os
from pathlib import Path
from typing import Any

from nccl_doctor.app import analyze
from nccl_doctor.common.process_identity import boot_id, start_ticks
from nccl_doctor.facts.tables.errors import ProcessEnd
from nccl_doctor.facts.tables.recorded import RecordedRun

START: dict[str, Any] = {"schema": "nccl-doctor/run/1", "host": "node01", "command": ["python"], "started": 1000.0}
END: dict[str, Any] = {
    "schema": "nccl-doctor/run/1",
    "host": "node01",
    "status": 143,
    "signal": "SIGTERM",
    "started": 1000.0,
}


def names(folder: Path, **files: dict[str, Any]) -> tuple[set[str], list[RecordedRun], list[ProcessEnd]]:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    report, facts, _ = analyze.analyze([str(folder)])
    return {finding.name for finding in report.findings}, facts.rows(RecordedRun), facts.rows(ProcessEnd)


def test_a_recorder_that_runs(tmp_path: Path) -> None:
    here = {"pid": os.getpid(), "boot": boot_id(), "start_ticks": start_ticks(os.getpid())}
    found, runs, _ = names(tmp_path, run={**START, **here})
    assert ({"recording-without-end"}, [1]) == (found, [run.running for run in runs])


def test_another_process_with_the_number_of_the_recorder(tmp_path: Path) -> None:
    _, runs, _ = names(tmp_path, run={**START, "pid": os.getpid(), "boot": boot_id(), "start_ticks": 1})
    assert [0] == [run.running for run in runs]


def test_a_recorder_of_another_boot_or_an_absurd_start(tmp_path: Path) -> None:
    for boot, ticks in (("another", 1), (None, 1), (boot_id(), "x"), (boot_id(), -1), (boot_id(), 1 << 70)):
        _, runs, _ = names(tmp_path, run={**START, "pid": os.getpid(), "boot": boot, "start_ticks": ticks})
        assert [None] == [run.running for run in runs]


def test_a_signal_to_the_recorder_accuses_no_rank(tmp_path: Path) -> None:
    sent = [{"signal": "SIGTERM", "time": 1012.0, "pid": 4711, "uid": 0}]
    found, runs, ends = names(tmp_path, run=START, end={**END, "signals": sent})
    assert ({"recorder-signalled"}, []) == (found, ends)
    assert [("SIGTERM", 4711, 12.0)] == [(run.sent, run.sent_by, run.sent_after) for run in runs if run.sent]


def test_a_signal_to_the_job_is_an_end_of_the_job(tmp_path: Path) -> None:
    found, _, ends = names(tmp_path, run=START, end={**END, "signals": []})
    assert "recorder-signalled" not in found
    assert ["SIGTERM"] == [end.signal for end in ends]


def test_lost_output_is_said(tmp_path: Path) -> None:
    lacking = {"output.log": {"dropped": 7, "why": "No space left on device"}, "error.log": {"dropped": 1, "why": ""}}
    found, runs, _ = names(tmp_path, run=START, end={**END, "status": 0, "signal": None, "lacking": lacking})
    assert "recording-lacks-output" in found
    assert [(8, "No space left on device")] == [(run.lost, run.lost_why) for run in runs if run.lost]
