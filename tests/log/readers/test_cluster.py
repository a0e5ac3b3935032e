"""Reading with a Dask cluster: the same report as a serial run, whatever happens to the workers."""

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import same_report, slurm_cluster
from helpers.places import DEMO, FIXTURES
from helpers.waiting import until

import nccl_doctor
from nccl_doctor.app import analyze
from nccl_doctor.cli.main import main
from nccl_doctor.log import parallel
from nccl_doctor.log.readers import cluster
from nccl_doctor.reporters import render
from nccl_doctor.simulate import FAULTS, Spec, fit, write_log

ON_INTERRUPT = signal.getsignal(signal.SIGINT)
try:
    import dask
    import dask_jobqueue  # noqa: F401
    import distributed  # noqa: F401
except ImportError:
    pytest.skip("the extra `cluster` is not installed: pip install 'nccl-doctor[cluster]'", allow_module_level=True)
signal.signal(signal.SIGINT, ON_INTERRUPT)  # importing dask_jobqueue sets another one

SAID: list[str] = []


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A scheduler and two workers, processes of their own that talk over TCP."""
    with cluster.connected("local:2", SAID.append) as found:
        yield found


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of many parts, small ones, a compressed one, and output of another kind."""
    monkeypatch.setattr(cluster, "TASK", 50_000)
    monkeypatch.setattr(parallel, "processors", lambda: 1)
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = list(write_log(Spec(nodes=2, gpus=4, fault="collective-desync", steps=300)))
    (folder / "job.log").write_text("\n".join(lines))
    for number in range(3):
        (folder / f"small{number}.log").write_bytes(DEMO.read_bytes()[: 5_000 * (number + 1)])
    (folder / "old.log.gz").write_bytes(gzip.compress(DEMO.read_bytes()))
    (folder / "gpus.csv").write_text("timestamp, index, utilization.gpu [%]\n2026/05/07 12:00:00.000, 0, 98 %\n")
    return folder


def report(folder: Path, client: Any = None) -> str:
    ahead = parallel.ReadAhead if client is None else partial(cluster.ClusterReader, client, SAID.append)
    return render("json", analyze.analyze([str(folder)], read_ahead=ahead)[0])


def test_the_report_is_that_of_a_serial_run(client: Any, logs: Path) -> None:
    SAID.clear()
    assert report(logs) == report(logs, client)
    assert [] == SAID


SHIPPED = sorted(path for path in FIXTURES.rglob("*") if path.suffix in (".log", ".out", ".txt"))[::8]
SIMULATED = [
    fit(Spec(nodes=2, gpus=2, fault=name, seed=number, steps=20)) for number, name in enumerate(sorted(FAULTS)[::7])
]


@pytest.mark.parametrize("given", [*SHIPPED, *SIMULATED], ids=lambda one: getattr(one, "fault", None) or one.name)
def test_one_process_several_and_workers_make_one_report(client: Any, given: Path | Spec, tmp_path: Path) -> None:
    path = tmp_path / "job.log" if isinstance(given, Spec) else given
    if isinstance(given, Spec):
        path.write_text("\n".join(write_log(given)), "utf-8")
    assert [] == same_report.differences([path], client)


def test_a_worker_that_is_killed_loses_nothing(
    client: Any, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, read_parts = tmp_path / "mark", cluster.read_parts

    def dies_once(*given: Any) -> list[bytes]:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return read_parts(*given)
        os.kill(os.getpid(), 9)
        raise AssertionError

    expected = report(logs)
    monkeypatch.setattr(cluster, "read_parts", dies_once)
    SAID.clear()

    assert expected == report(logs, client)
    assert (True, []) == (mark.exists(), SAID)


@pytest.mark.parametrize("other", ["version", "file"])
def test_what_no_worker_can_read_is_read_here(
    client: Any, logs: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    expected = report(logs)
    if other == "version":
        monkeypatch.setattr(nccl_doctor, "__version__", "0")
    else:
        real = cluster._parts
        monkeypatch.setattr(cluster, "_parts", lambda *given: [part._replace(mark=b"?" * 9) for part in real(*given)])
    SAID.clear()

    assert expected == report(logs, client)
    assert 1 == len(SAID)
    assert "NotTheSame" in SAID[0]


def test_workers_of_our_own_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with cluster.connected("local:1", SAID.append):
        assert [*tmp_path.iterdir()]
    assert [] == [*tmp_path.iterdir()]


def test_an_address_of_nobody_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cluster, "CONNECTED", "1s")
    assert 2 == main(["analyze", "--dask", "tcp://127.0.0.1:1", str(DEMO)])
    assert "--dask tcp://127.0.0.1:1: " in capfd.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert 2 == main(["analyze", "--dask", "local", str(DEMO)])
    assert "pip install 'nccl-doctor[cluster]'" in capfd.readouterr().err


@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing() or "-")
def test_jobs_of_slurm_read(
    logs: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = report(logs)
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as slurm:
        for name, value in slurm.environ.items():
            monkeypatch.setenv(name, value)
        for script in slurm_cluster.SCRIPTS:
            slurm.script(script, "exit 0")
        slurm.idle()
        monkeypatch.chdir(tmp_path_factory.mktemp("jobs"))
        scratch = tmp_path_factory.mktemp("scratch")
        monkeypatch.setenv("TMPDIR", str(scratch))
        SAID.clear()
        little = dask.config.set({"jobqueue.slurm.job-mem": "20MB"})  # of what each node of the test has
        with little, cluster.connected("slurm:2", SAID.append) as client:
            assert expected == report(logs, client)
            assert [] == SAID[1:]
        slurm.idle()  # the jobs have ended; their daemons would wait for them
        until(lambda: not list(scratch.iterdir()))  # also what cancelled workers kept


@pytest.mark.parametrize(
    "sbatch", ["echo 'sbatch: error: invalid partition' >&2; exit 1", None], ids=["refuses", "none"]
)
def test_slurm_that_takes_no_job_is_one_line(
    sbatch: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if sbatch is not None:
        (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{sbatch}\n")
        (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 2 == main(["analyze", "--dask", "slurm:2", str(DEMO)])
    why = "there is no sbatch" if sbatch is None else "invalid partition"
    assert f"nccl-doctor: --dask slurm:2: {why}\n" == capfd.readouterr().err


def test_jobs_that_slurm_refuses_are_told_and_the_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path
) -> None:
    """`sbatch` runs the first script itself and refuses the second."""
    (tmp_path / "sbatch").write_text(
        "#!/bin/sh\n"
        f'mkdir {tmp_path}/taken || {{ echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }}\n'
        f"cp $1 {tmp_path}/job; setsid sh {tmp_path}/job >/dev/null 2>&1 &\n"
        "echo Submitted batch job 7\n"
    )
    (tmp_path / "scancel").write_text("#!/bin/sh\n")
    for name in ("sbatch", "scancel"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    SAID.clear()

    with cluster.connected("slurm:2", SAID.append) as client:
        assert report(logs) == report(logs, client)
        assert ["nccl-doctor-"] == [path.name[:12] for path in scratch.iterdir()]
    until(lambda: not list(scratch.iterdir()))  # the job has removed what its worker kept
    assert "1 of 2 jobs were refused: QOSMaxSubmitJobPerUserLimit" == SAID[0]


def test_ctrl_c_does_what_it_did_before_slurm_was_asked(tmp_path: Path) -> None:
    code = (
        "import contextlib, signal; from nccl_doctor.log.readers import cluster\n"
        "before = signal.signal(signal.SIGINT, lambda *_: None) and signal.getsignal(signal.SIGINT)\n"
        "with contextlib.suppress(RuntimeError, OSError): cluster._started('slurm:1', print, contextlib.ExitStack())\n"
        "import sys; assert 'dask_jobqueue.runner' in sys.modules\n"
        "print(signal.getsignal(signal.SIGINT) is before)"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(Path(nccl_doctor.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "True\n" == done.stdout, done.stderr
