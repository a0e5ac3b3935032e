"""`record` costs the job nothing: output and status are its own, whatever happens to the folder, the disk or the recorder."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.processes import runs
from helpers.waiting import until

from nccl_doctor.app.recorder.recorder import Recorder, new_run

RECORD = [sys.executable, "-m", "nccl_doctor", "record"]
FLOOD = "import sys\nfor n in range(200_000): print(f'line {n} of a job that prints much')\nsys.exit(7)"
LINES = "".join(f"line {n} of a job that prints much\n" for n in range(200_000))
SLOW = "import sys, time\nfor n in range(100_000):\n    print('line', n, flush=True)\n    time.sleep(0.02)"


def start(folder: Path, *job: str, options: tuple[str, ...] = (), **more: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*RECORD, "-o", str(folder), *options, "--", *job], stdout=subprocess.PIPE, text=True, **more
    )


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("run-*")
    return run


def copier_of(recorder: int) -> int:
    """The copying process: the first child of the recorder that has a session of its own; the sampler comes later."""
    children = psutil.Process(recorder).children()
    return min(child.pid for child in children if os.getsid(child.pid) == child.pid)


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    done = start(tmp_path, sys.executable, "-c", FLOOD, preexec_fn=small_files, stderr=subprocess.PIPE)
    out, err = done.communicate()
    assert 7 == done.returncode
    assert out == LINES
    kept = (only_run(tmp_path) / "output.log").read_text()
    assert LINES.startswith(kept)
    assert f"lacks {len(LINES) - len(kept)} bytes of the output: File too large" in err
    lacking = json.loads((only_run(tmp_path) / "end.json").read_text())["lacking"]
    assert {"output.log": {"dropped": len(LINES) - len(kept), "why": "File too large"}} == lacking


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can mount a small file system")
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_file_system_that_is_full_or_read_only(tmp_path: Path, trouble: str) -> None:
    turn = "mount -o remount,ro runs; " if trouble == "read-only" else ""
    script = (
        f"cd {tmp_path}; mkdir runs; mount -t tmpfs -o size=2m none runs; {turn}"
        f'{sys.executable} -m nccl_doctor record -o runs -- {sys.executable} -c "$JOB"; status=$?; cat runs/*/end.json >&2; exit $status'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "JOB": FLOOD},
        check=False,
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert (7, True) == (done.returncode, done.stdout == LINES)
    assert ("No space left on device" if trouble == "full" else "runs without a recording") in done.stderr
    assert (trouble == "full") == ('"status": 7' in done.stderr)


def test_a_folder_that_is_removed_meanwhile(tmp_path: Path) -> None:
    job = (
        "import time, pathlib\nprint('started', flush=True)\n"
        f"while pathlib.Path({str(tmp_path / 'runs')!r}).exists(): time.sleep(0.02)\nprint('ended')"
    )
    done = start(tmp_path / "runs", sys.executable, "-c", job)
    assert done.stdout is not None
    assert "started\n" == done.stdout.readline()
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    until(lambda: not (tmp_path / "runs").exists() or shutil.rmtree(tmp_path / "runs", ignore_errors=True))
    assert "ended\n" == done.communicate()[0]
    assert 0 == done.returncode


def killed(process: Callable[[int], int], tmp_path: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A recorder of which one process was killed while the job prints."""
    done = start(tmp_path, sys.executable, "-c", SLOW)
    assert done.stdout is not None
    assert "line 0\n" == done.stdout.readline()
    os.kill(process(done.pid), signal.SIGKILL)
    return done, only_run(tmp_path) / "output.log"


def test_a_recorder_that_is_killed_does_not_end_the_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    done = start(tmp_path, sys.executable, "-c", f"import os\nopen({str(job)!r}, 'w').write(str(os.getpid()))\n{SLOW}")
    assert done.stdout is not None
    assert "line 0\n" == done.stdout.readline()
    pid = int(job.read_text())
    done.kill()
    done.wait()
    seen = [done.stdout.readline() for _ in range(20)]
    assert [f"line {n}\n" for n in range(1, 21)] == seen
    assert runs(pid)
    log = only_run(tmp_path) / "output.log"
    until(lambda: "line 20\n" in log.read_text())
    os.kill(pid, signal.SIGKILL)
    assert "" == done.stdout.read().rpartition("\n")[2]


def test_a_copying_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    done, log = killed(copier_of, tmp_path)
    assert done.stdout is not None
    later = [int(done.stdout.readline().split()[1]) for _ in range(20)]
    assert later == sorted(later)
    until(lambda: f"line {later[-1]}\n" in log.read_text())
    done.terminate()
    assert 128 + signal.SIGTERM == done.wait()


def test_a_reader_that_leaves_does_not_end_the_job(tmp_path: Path) -> None:
    done = start(tmp_path, sys.executable, "-c", FLOOD)
    assert done.stdout is not None
    assert done.stdout.readline()
    done.stdout.close()
    assert 7 == done.wait()
    assert LINES == (only_run(tmp_path) / "output.log").read_text()


def test_both_streams_are_kept_apart_and_whole(tmp_path: Path) -> None:
    job = "import sys\nfor n in range(20_000):\n    print('out', n)\n    print('err', n, file=sys.stderr)"
    done = start(tmp_path, sys.executable, "-c", job, stderr=subprocess.PIPE)
    out, err = done.communicate()
    run = only_run(tmp_path)
    assert (out, err) == ((run / "output.log").read_text(), (run / "error.log").read_text())
    assert ("out 19999", "err 19999") == (out.splitlines()[-1], err.splitlines()[-1])


def test_a_process_that_outlives_the_job_still_has_its_output(tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = f"( while [ ! -e {go} ]; do sleep 0.05; done; echo late ) & echo early"
    done = start(tmp_path, "sh", "-c", job)
    assert 0 == done.wait()
    go.touch()
    assert done.stdout is not None
    assert "early\nlate\n" == done.stdout.read()
    until(lambda: "late" in (only_run(tmp_path) / "output.log").read_text())


def test_a_signal_to_the_recorder_is_told_apart_from_the_end_of_the_job(tmp_path: Path) -> None:
    done = start(tmp_path, sys.executable, "-c", SLOW)
    assert done.stdout is not None
    done.stdout.readline()
    done.send_signal(signal.SIGTERM)
    done.communicate()
    end = json.loads((only_run(tmp_path) / "end.json").read_text())
    assert [("SIGTERM", os.getpid())] == [(one["signal"], one["pid"]) for one in end["signals"]]
    assert (143, "SIGTERM") == (end["status"], end["signal"])


def test_the_output_is_compressed_in_pieces(tmp_path: Path) -> None:
    done = start(tmp_path, sys.executable, "-c", FLOOD, options=("--rotate", "1"))
    assert LINES == done.communicate()[0]
    run = only_run(tmp_path)
    assert (run / "output.log.1.gz").exists()
    packed = sorted(run.glob("output.log.*.gz"), key=lambda path: int(path.suffixes[-2][1:]))
    zcat = subprocess.run(["gzip", "-dc", *packed], capture_output=True, text=True, check=True).stdout
    assert LINES == zcat + ((run / "output.log").read_text() if (run / "output.log").exists() else "")


def test_a_report_at_the_end(tmp_path: Path) -> None:
    error = "RuntimeError: CUDA error: out of memory"
    job = f"raise {error.replace(': ', '(', 1).replace('(', '(' + chr(39), 1)}')"
    done = start(tmp_path, sys.executable, "-c", job, options=("--report",), stderr=subprocess.PIPE)
    _, err = done.communicate()
    assert 1 == done.returncode
    kept = (only_run(tmp_path) / "report.txt").read_text()
    assert kept in err
    assert kept.split(maxsplit=1)[0] in ("ERROR", "ERROR:")


def test_without_a_job_the_options_of_one_are_refused(tmp_path: Path) -> None:
    done = subprocess.run([*RECORD, "-o", str(tmp_path), "--report"], capture_output=True, text=True, check=False)
    assert (2, "nccl-doctor: --tty, --rotate and --report need a CMD to run\n") == (done.returncode, done.stderr)


def test_time_between_output_and_screen_is_short(tmp_path: Path) -> None:
    """A prompt without a line end is shown while the job still waits."""
    go = tmp_path / "go"
    job = f"printf 'password: '; while [ ! -e {go} ]; do sleep 0.02; done; echo thanks"
    done = start(tmp_path, "sh", "-c", job)
    assert done.stdout is not None
    assert "password: " == "".join(done.stdout.read(1) for _ in range(10))
    go.touch()
    assert "thanks\n" == done.stdout.read()
    assert 0 == done.wait()


def test_without_a_rank_it_says_what_it_waits_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RECORD, "-o", str(tmp_path), "--duration", "0.2"], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode
    assert "no rank of a job runs on this node yet" in done.stderr or "press Ctrl-C to stop" in done.stderr


def test_a_sampler_whose_recorder_ended_before_it_began_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nccl_doctor", "sample", "--into", str(tmp_path), "--while-parent", "1"]
    assert 0 == subprocess.run(command, check=False).returncode


@pytest.mark.parametrize("most", range(5, 15))
def test_a_machine_without_room_runs_the_whole_job_or_none(most: int, tmp_path: Path) -> None:
    """Where descriptors lack, no job is left that nobody waits for."""
    done = subprocess.run(
        [*RECORD, "-o", str(tmp_path), "--", "sh", "-c", "echo job; exit 7"],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) in ((2, ""), (7, "job\n"), (1, "")), done.stderr
    assert not list(tmp_path.glob("run-*/.reserve"))


def test_without_samples_the_job_runs_and_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    recorder = Recorder(new_run(tmp_path))
    monkeypatch.setattr(recorder, "sample", refuse)
    assert 7 == recorder.job(["sh", "-c", "exit 7"])
    assert [f"{recorder.run} lacks samples of the node: {os.strerror(errno.EAGAIN)}"] == recorder.lacking()
