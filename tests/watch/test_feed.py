"""Children that stream records, recordings, one page, metrics, and wrong options."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.nvml import STUB, NvmlStub
from helpers.processes import runs
from helpers.waiting import DEADLINE, until

from nccl_doctor.app.hang import ras
from nccl_doctor.cli.main import main
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.watch import exporter, metrics
from nccl_doctor.watch.sources import feed
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.sources.feed import NodeFeeds
from nccl_doctor.watch.sources.replay import Replay
from nccl_doctor.watch.state import State

WATCH = [sys.executable, "-m", "nccl_doctor", "watch"]


class Heard:
    """What a source handed on."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def put(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def of(self, node: str, kind: str = "") -> list[dict[str, Any]]:
        return [one for one in list(self.records) if one.get("hostname") == node and kind in ("", one["kind"])]

    def wait(self, reached: Callable[[], bool]) -> None:
        until(reached, lambda: self.records[-5:])


@contextmanager
def watching(script: Path, *nodes: str, **options: Any) -> Iterator[Heard]:
    heard = Heard()
    source = NodeFeeds(heard.put, nodes, f"sh {script} %host", **options)
    source.start()
    try:
        yield heard
    finally:
        source.stop()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RETRY_AFTER", (0.2, 0.2))


LINE = """{"kind":"host","hostname":"x","query_time":"2026-01-01T00:00:00+00:00","host":{"cpu":5}}"""


def script(folder: Path, body: str) -> Path:
    file = folder / "node.sh"
    file.write_text(f"node=$1\nsay() {{ echo '{LINE}'; }}\n{body}\n")
    return file


def test_a_child_that_dies_comes_back(tmp_path: Path) -> None:
    with watching(script(tmp_path, "say; echo Connection closed >&2; exit 255"), "n1") as heard:
        heard.wait(lambda: len(heard.of("n1", "host")) >= 3)
    assert "Connection closed" == heard.of("n1", "gone")[0]["error"]


def test_a_dead_node_holds_up_no_other(tmp_path: Path) -> None:
    body = "case $node in dead) exec sleep 600;; gone) exit 3;; *) while :; do say; sleep 0.05; done;; esac"
    with watching(script(tmp_path, body), "dead", "n1", "gone", "n2") as heard:
        heard.wait(lambda: len(heard.of("n1")) > 5 and len(heard.of("n2")) > 5 and len(heard.of("gone")) > 1)
        assert [] == heard.of("dead")
    assert "exit status 3" == heard.of("gone")[0]["error"]


def test_garbage_between_records(tmp_path: Path) -> None:
    body = 'printf \'Loading modules...\\n[1,2]\\n{"kind":5}\\n\\377\\376\\n\'; say; printf \'{"kind":"host"\'; sleep 0.2; exit 1'
    with watching(script(tmp_path, body), "n1") as heard:
        heard.wait(lambda: bool(heard.of("n1", "gone")))
    assert 1 == len([one for one in heard.records[:2] if one["kind"] == "host"])


def test_no_number_of_a_record_is_larger_than_floats_can_hold() -> None:
    line = b'{"kind": "gpu", "gpus": [{"index": %d, "power.draw": -%d, "memory.used": 81559}]}' % (10**400, 10**400)
    assert {"kind": "gpu", "gpus": [{"index": None, "power.draw": None, "memory.used": 81559}]} == feed.parse_record(
        line
    )


def test_a_line_without_end_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_MAX_LINE", 1 << 16)
    with watching(script(tmp_path, "head -c 300000 /dev/zero; echo; say; sleep 600"), "n1") as heard:
        heard.wait(lambda: bool(heard.of("n1", "host")))


def test_a_child_that_is_silent_for_long_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "SILENCE_LIMIT", 2.0)
    with watching(script(tmp_path, "say; exec sleep 600"), "n1", interval=0.1) as heard:
        heard.wait(lambda: len(heard.of("n1", "host")) >= 2)
    assert "no output" == heard.of("n1", "gone")[0]["error"]


def test_a_program_that_is_not_there_is_said() -> None:
    heard = Heard()
    source = NodeFeeds(heard.put, ["n1"], "no-such-program-here %host")
    source.start()
    heard.wait(lambda: bool(heard.of("n1", "gone")))
    source.stop()
    assert "no-such-program-here: No such file or directory" == heard.of("n1", "gone")[0]["error"]


def test_children_end_with_the_screen(tmp_path: Path) -> None:
    heard = Heard()
    source = NodeFeeds(heard.put, ["n1"], f"sh {script(tmp_path, 'while :; do say; sleep 0.1; done')} %host")
    source.start()
    heard.wait(lambda: len(heard.records) > 2)
    (pid,) = source.pids()
    source.stop()
    heard.wait(lambda: not runs(pid))


def test_this_node_answers_in_all_kinds() -> None:
    heard = Heard()
    source = NodeFeeds(heard.put, interval=0.2)
    source.start()
    heard.wait(lambda: {one["kind"] for one in heard.records} == {"gpu", "port", "host", "process"})
    source.stop()
    assert {os.uname().nodename} == {one["hostname"] for one in heard.records}


def recording(folder: Path, seconds: int) -> Path:
    invented = Demo()
    for _ in range(seconds):
        for record in invented.step():
            with (folder / f"{record['kind']}.jsonl").open("a") as file:
                file.write(json.dumps(record, separators=(",", ":")) + "\n")
    return folder


def test_a_recording_of_record_is_replayed(tmp_path: Path) -> None:
    job = f"until [ $(cat {tmp_path}/run-*/host.jsonl | wc -l) -ge 4 ]; do sleep 0.1; done"
    command = [
        sys.executable,
        "-m",
        "nccl_doctor",
        "record",
        "-o",
        str(tmp_path),
        "--interval",
        "0.2",
        "--",
        "sh",
        "-c",
        job,
    ]
    subprocess.run(command, check=True)
    state = State()
    replay = Replay(lambda record: state.add_record(record), tmp_path)
    replay.seek(replay.end_time)
    assert replay.ended
    (node,) = state.nodes.values()
    assert os.uname().nodename == node.name
    assert replay.start_time < replay.end_time
    assert node.host.now["cpus"] == os.cpu_count()


def test_a_torn_recording_is_replayed_up_to_where_it_was_torn(tmp_path: Path) -> None:
    file = recording(tmp_path, 5) / "gpu.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - 100])
    (tmp_path / "port.jsonl").write_bytes(b"\0" * 4096 + (tmp_path / "port.jsonl").read_bytes())
    replay = Replay(lambda _: None, tmp_path)
    counts = [
        sum(record["kind"] == kind for _, record in replay.records) for kind in ("gpu", "port", "host", "process")
    ]
    assert [9, 9, 10, 10] == counts


def test_times_of_a_replay_are_in_order_and_seeking_is_repeatable(tmp_path: Path) -> None:
    recording(tmp_path, 20)
    heard = Heard()
    replay = Replay(heard.put, tmp_path)
    replay.forward(7.0)
    first = list(heard.records)
    heard.records.clear()
    replay.seek(replay.start_time + 7.0)
    assert first == heard.records
    times = [at for at, _ in replay.records]
    assert times == sorted(times)


def test_records_of_one_time_are_in_the_order_of_their_files(tmp_path: Path) -> None:
    record = next(iter(Demo().step()))
    for name in ("b", "a"):
        rows = (record | {"node": f"{name}{number}"} for number in range(50))
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    replay = Replay(lambda _: None, tmp_path)

    expected = [f"{name}{number}" for name in "ab" for number in range(50)]
    assert expected == [row["node"] for _, row in replay.records]


def test_a_recording_with_devices_pipes_and_long_lines_is_replayed(tmp_path: Path) -> None:
    recording(tmp_path, 5)
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with (tmp_path / "long.jsonl").open("wb") as file:
        file.truncate(40 << 20)

    assert Replay(lambda _: None, tmp_path).records


def test_a_folder_without_recording_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageProblem):
        Replay(lambda _: None, tmp_path)
    assert 2 == main(["watch", "--once", "--replay", str(tmp_path)])
    assert 1 == capfd.readouterr().err.count("\n")


def test_one_page_of_a_recording_as_text_and_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path, 200)
    assert 1 == main(["watch", "--once", "--replay", str(tmp_path), "--ascii"])
    shown = capfd.readouterr().out
    assert shown.isascii()
    assert "SYN123 spinning-in-collective" in shown
    assert 1 == main(["watch", "--once", "--replay", str(tmp_path), "--format", "json"])
    found = json.loads(capfd.readouterr().out)
    assert "nccl-doctor/watch/1" == found["schema"]
    assert [8, 8] == [len(node["gpus"]) for node in found["nodes"]]
    assert [9, 9] == [len(node["ports"]) for node in found["nodes"]]
    assert "spinning-in-collective" in {finding["name"] for finding in found["findings"]}


def test_one_page_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert 1 == main(["watch", "--once", "--demo"])
        rows = capfd.readouterr().out.splitlines()
        assert all(len(row) <= width for row in rows if not row.startswith(("ERROR", "WARNING")))


def test_one_page_of_nodes_of_which_one_is_dead(tmp_path: Path) -> None:
    body = f"case $node in dead) exit 9;; *) shift; exec {sys.executable} -m nccl_doctor sample --interval 0.2;; esac"
    via = f"sh {script(tmp_path, body)} %host"
    done = subprocess.run(
        [*WATCH, "--once", "--nodes", "n[1-2],dead", "--via", via, "--format", "json"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    states = {node["name"]: node["state"] for node in json.loads(done.stdout)["nodes"]}
    assert {"n1", "n2", "dead"} == set(states)
    assert "gone: exit status 9" == states["dead"]
    assert not states["n1"].startswith("gone")


def test_metrics_over_http() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    running = subprocess.Popen([*WATCH, "--demo", "--export", f"prometheus:{port}"], stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        assert f"metrics on http://127.0.0.1:{port}/metrics" in running.stderr.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            page = answer.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=DEADLINE) as answer:
            assert b"href=/metrics" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/secret", timeout=DEADLINE)
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.2", port))
        taken = subprocess.run(
            [*WATCH, "--demo", "--export", f"prometheus:{port}"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        running.terminate()
        running.wait()
    assert (2, 1) == (taken.returncode, taken.stderr.count("\n"))
    assert_metrics(page)


def assert_metrics(page: str) -> None:
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    names = {re.split("[{ ]", line)[0] for line in samples}
    typed = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert names == typed
    assert 'nccl_doctor_gpu_power_limit_watts{node="gpu-b",gpu="7"} 700' in samples
    assert 18 == sum(line.startswith("nccl_doctor_port_receive_bytes_total") for line in samples)
    for line in samples:
        float(line.rpartition(" ")[2])


def test_metrics_in_a_file_that_is_never_half(tmp_path: Path) -> None:
    file, page = tmp_path / "metrics.prom", "x 1\n" * 200_000
    torn: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            if file.exists() and (size := len(file.read_text())) != len(page):
                torn.append(size)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        exporter.write_file(file, page)
    over.set()
    reader.join()
    assert [] == torn
    assert [file] == list(tmp_path.iterdir())


def test_metrics_in_a_file_of_a_running_watch(tmp_path: Path) -> None:
    file = tmp_path / "metrics.prom"
    running = subprocess.Popen([*WATCH, "--demo", "--export", str(file)])
    try:
        Heard().wait(file.exists)
    finally:
        running.terminate()
        running.wait()
    assert_metrics(file.read_text())


def test_metrics_are_written_once(tmp_path: Path) -> None:
    file = tmp_path / "metrics.prom"
    assert 0 == main(["watch", "--demo", "--once", "--export", str(file)])
    assert_metrics(file.read_text())


def test_labels_cannot_break_the_page() -> None:
    state = State()
    state.add_record({"kind": "port", "hostname": 'a"\n\\', "ports": [{"name": "x", "kind": "ib", "rx": 1}]}, 0.0)
    rows = [line for line in metrics.render_metrics(state, [], 0.0).splitlines() if "receive_bytes_total{" in line]
    assert ['nccl_doctor_port_receive_bytes_total{node="a\\"\\n\\\\",port="x",kind="ib"} 1'] == rows


@pytest.mark.parametrize(
    "options",
    [
        ["--demo", "--nodes", "a"], ["--replay", "/no/such/folder", "--once"], ["--nodes", "a[", "--once"],
        ["--export", "nowhere"], ["--export", "prometheus:99999"], ["--export", "prometheus:x"], ["--interval", "0"],
        ["--export", "/no/such/folder/x.prom", "--demo"], ["--nodes", "-oProxyCommand=x", "--once"], ["--wrong"],
        ["--job", "4711", "--once"], ["--format", "xml"], ["--demo", "--once", "--export", "prometheus"],
    ],
)  # fmt: skip
def test_wrong_options_are_one_line(options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["watch", *options])
    said = capfd.readouterr()
    assert ("", 1) == (said.out, said.err.count("\n"))


@contextmanager
def ras_service(answer: bytes) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[:2]


def test_ras_is_asked() -> None:
    with ras_service(b"SERVER PROTOCOL 2\nOK\nrank 3 is missing\n") as address:
        assert "rank 3 is missing" in ras.query_status(address, 5.0)


def test_where_ras_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (
        ("", ("localhost", 28028)),
        ("node:5", ("node", 5)),
        (":7", ("localhost", 7)),
        ("x", ras.ADDRESS),
    ):
        monkeypatch.setenv("NCCL_RAS_ADDR", value)
        assert expected == ras.address()


def test_values_are_those_of_nvml(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    environ = nvml_stub.environ(STUB, tmp_path / "state")
    done = subprocess.run(
        [*WATCH, "--once", "--format", "json"], env=environ, capture_output=True, text=True, check=False
    )
    (node,) = json.loads(done.stdout)["nodes"]
    first, second = node["gpus"]
    expected = {
        "index": 0, "uuid": "GPU-1", "name": "NVIDIA H100 80GB HBM3", "utilization.gpu": 97, "memory.used": 1024.0,
        "memory.total": 81559.0, "power.draw": 412.345, "enforced.power.limit": 700.0, "temperature.gpu": 61,
        "clocks.sm": 1755, "clocks.mem": 2619, "clock_reasons": 0x40, "throttle": "HW thermal", "error": None,
    }  # fmt: skip
    assert expected == {name: first[name] for name in expected}
    assert ("GPU-2", 3, 88) == tuple(second[name] for name in ("uuid", "utilization.gpu", "temperature.gpu"))
