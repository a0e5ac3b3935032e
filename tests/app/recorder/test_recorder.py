"""`record` around real commands: status, signals, output, settings; a killed one leaves a folder that says what was."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.processes import runs
from helpers.waiting import until

from nccl_doctor.app import analyze
from nccl_doctor.app.recorder.settings import settings
from nccl_doctor.facts.tables.recorded import HostUse, PortError, PortUse, RankUse, RecordedRun

COMMAND = [sys.executable, "-m", "nccl_doctor", "record"]


def recorded(folder: Path, *job: str, options: tuple[str, ...] = (), **kinds: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "-o", str(folder), *options, "--", *job]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **kinds)


def samples(folder: Path, kind: str) -> int:
    """How many whole records of a kind a run has written."""
    return sum(file.read_bytes().count(b"\n") for file in folder.glob(f"run-*/{kind}.jsonl"))


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("run-*")
    return run


def said(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", textwrap.dedent(code))


def test_output_and_status_are_those_of_the_job(tmp_path: Path) -> None:
    done = recorded(tmp_path, "sh", "-c", "printf 'out\\377 no newline'; echo problem >&2; exit 7")
    assert (7, "problem\n") == (done.returncode, done.stderr)
    assert b"out\xff no newline" == (only_run(tmp_path) / "output.log").read_bytes()
    assert {"status": 7, "signal": None} == {k: said(only_run(tmp_path) / "end.json")[k] for k in ("status", "signal")}


def test_a_job_that_a_signal_ended(tmp_path: Path) -> None:
    done = recorded(tmp_path, "sh", "-c", "kill -SEGV $$")
    assert 128 + signal.SIGSEGV == done.returncode
    assert "SIGSEGV" == said(only_run(tmp_path) / "end.json")["signal"]


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    environ = {**os.environ, "NCCL_DEBUG": "WARN", "TORCH_FR_BUFFER_SIZE": "50"}
    environ.pop("NCCL_DEBUG_FILE", None)
    done = recorded(tmp_path, "env", options=("--torch", "--horovod"), env=environ)
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    run = only_run(tmp_path)
    assert ("WARN", "50") == (found["NCCL_DEBUG"], found["TORCH_FR_BUFFER_SIZE"])
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in found
    assert f"{run}/nccl.%h.%p.log" == found["NCCL_DEBUG_FILE"]
    assert f"{run}/timeline.json" == found["HOROVOD_TIMELINE"]
    assert "NCCL_DEBUG" not in said(run / "run.json")["added"]


def test_no_secret_is_kept(tmp_path: Path) -> None:
    recorded(tmp_path, "true", env={**os.environ, "TORCH_HUB_TOKEN": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2"})
    assert "hunter2" not in (only_run(tmp_path) / "run.json").read_text()


def test_signals_are_passed_on(tmp_path: Path) -> None:
    job = python(
        """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        print("ready", flush=True)
        while True:
            time.sleep(0.05)
        """
    )
    running = subprocess.Popen([*COMMAND, "-o", str(tmp_path), "--", *job], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert "ready\n" == running.stdout.readline()
    running.send_signal(signal.SIGUSR1)
    assert "usr1\n" == running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    assert 9 == running.wait()


def test_many_record_into_one_folder(tmp_path: Path) -> None:
    running = [subprocess.Popen([*COMMAND, "-o", str(tmp_path), "--", "sh", "-c", f"echo rank {n}"]) for n in range(3)]
    assert [0, 0, 0] == [one.wait() for one in running]
    assert ["rank 0\n", "rank 1\n", "rank 2\n"] == sorted(
        (run / "output.log").read_text() for run in tmp_path.glob("run-*")
    )


def test_old_runs_make_room_and_running_ones_stay(tmp_path: Path) -> None:
    for _ in range(2):
        recorded(tmp_path, "true")
    going_on = tmp_path / f"run-00000000-000000-{os.uname().nodename.split('.')[0]}-1"
    going_on.mkdir()
    recorded(tmp_path, "true", options=("--keep", "2"))
    left = sorted(tmp_path.glob("run-*"))
    assert 3 == len(left)
    assert going_on in left


def test_a_command_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    done = recorded(tmp_path, "no-such-program")
    assert (2, "") == (done.returncode, done.stdout)
    assert "nccl-doctor: cannot run no-such-program: No such file or directory\n" == done.stderr


def test_a_job_runs_without_a_recording_where_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = recorded(tmp_path / "file", "sh", "-c", "echo works; exit 7")
    assert (7, "works\n") == (done.returncode, done.stdout)
    assert [f"nccl-doctor: cannot record into {tmp_path}/file: File exists; the job runs without a recording"] == (
        done.stderr.splitlines()
    )


JOB = """
import os, sys, time
for step in range(1000):
    print(f"step {step} at {time.time():.3f}", flush=True)
    time.sleep(0.1)
"""


def test_killed_together_with_its_job_nothing_that_was_written_is_lost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JOB)
    environ = {**os.environ, "RANK": "3", "WORLD_SIZE": "4", "NCCL_SOCKET_IFNAME": "eth9"}
    job = [sys.executable, str(tmp_path / "train.py")]
    running = subprocess.Popen([*COMMAND, "-o", str(tmp_path / "runs"), "--", *job], env=environ,
                               stdout=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    until(lambda: samples(tmp_path / "runs", "host") >= 3 and samples(tmp_path / "runs", "process") >= 3)
    run = only_run(tmp_path / "runs")
    children = psutil.Process(running.pid).children(recursive=True)
    seen = {name: (run / name).read_bytes() for name in ("output.log", "host.jsonl", "process.jsonl")}
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    until(lambda: not any(runs(child.pid) for child in children), lambda: "the sampler outlived the recorder")
    assert not (run / "end.json").exists()
    assert [] == [name for name, text in seen.items() if not (run / name).read_bytes().startswith(text)]
    last = datetime.fromisoformat(json.loads(seen["host.jsonl"].splitlines()[-1])["query_time"]).timestamp()
    facts, problems = analyze.read_facts([str(tmp_path / "runs")])
    assert [] == problems
    (host,) = facts.rows(HostUse)
    assert host.first is not None
    assert host.seconds is not None
    assert host.first + host.seconds >= last - 0.001
    own = {child.pid for child in children}  # the machine may run ranks of others
    ranks = [rank for rank in facts.rows(RankUse) if rank.pid in own]
    assert [3] == [rank.rank for rank in ranks]
    assert ranks[0].last is not None
    assert ranks[0].last >= last - 10
    report = analyze.report_of(facts)
    assert "recording-without-end" in [finding.name for finding in report.findings]


def test_a_folder_that_is_being_written_is_read(tmp_path: Path) -> None:
    running = subprocess.Popen([*COMMAND, "-o", str(tmp_path), "--", "sleep", "1000"])
    until(lambda: samples(tmp_path, "host") >= 2)
    report, facts, problems = analyze.analyze([str(tmp_path)])
    running.terminate()
    assert 128 + signal.SIGTERM == running.wait()
    assert [] == problems
    assert [None] == [run.status for run in facts.rows(RecordedRun)]
    [found] = [finding for finding in report.findings if finding.name == "recording-without-end"]
    assert found.message.endswith("the job is still being recorded")
    assert report.verdict in ("nothing-found", "note"), [finding.name for finding in report.findings]


def lines(kind: str, key: str, values: list[Any]) -> str:
    stamps = [f"2026-03-01T10:00:{second:02}+00:00" for second in range(len(values))]
    rows = [
        {"kind": kind, "hostname": "node01", "query_time": t, "took": 0.001, key: v}
        for t, v in zip(stamps, values, strict=True)
    ]
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def test_ports_are_summed_up(tmp_path: Path) -> None:
    def port(second: int) -> list[dict[str, Any]]:
        state = "DOWN" if second in (4, 5) else "ACTIVE"
        errors = {"symbol_error": 7 if second < 3 else 57, "link_downed": int(second >= 4)}
        return [
            {
                "name": "mlx5_0/1",
                "kind": "ib",
                "state": state,
                "speed": 400.0,
                "rx": second * 25_000_000_000,
                "tx": 0,
                "errors": errors,
            }
        ]

    (tmp_path / "port.jsonl").write_text(lines("port", "ports", [port(s) for s in range(8)]) + '{"kind":"port","host')
    report, facts, problems = analyze.analyze([str(tmp_path)])
    assert [] == problems
    (use,) = facts.rows(PortUse)
    assert (8, 7.0, 200.0, 200.0, 2, "ACTIVE") == (
        use.samples,
        use.seconds,
        use.rx_mean,
        use.rx_max,
        use.downs,
        use.last_state,
    )
    assert {("symbol_error", 50), ("link_downed", 1)} == {(row.name, row.growth) for row in facts.rows(PortError)}
    assert {"port-down-during-job", "port-errors-during-job"} <= {finding.name for finding in report.findings}


def test_settings_count_only_what_is_new() -> None:
    run = Path("/runs/run-1")
    assert {} == settings(run, dict.fromkeys(settings(run, {}, True, True), "x"), True, True)


ODD = [
    True,
    1,
    "x",
    None,
    [1],
    [{}],
    {"a": []},
    [{"name": "p", "errors": [1], "rx": "x", "state": 3}],
    [{"rank": 1, "pid": 2, "cpu": "x"}],
]


@pytest.mark.parametrize("kind", ["port", "host", "process", "gpu"])
def test_hostile_records_do_no_harm(kind: str, tmp_path: Path) -> None:
    key = {"port": "ports", "host": "host", "process": "processes", "gpu": "gpus"}[kind]
    rows = [
        {"kind": kind, "hostname": host, "query_time": when, key: odd}
        for odd in ODD
        for host in ("node01", 7)
        for when in (5, "x")
    ]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (tmp_path / f"{kind}.jsonl").write_text(text)
    report, _, _ = analyze.analyze([str(tmp_path)])
    assert [] == [finding.name for finding in report.findings if finding.severity == "error"]
