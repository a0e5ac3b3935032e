"""From samples to looks: when a job is suspicious, what is said of it, and when that is withdrawn."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app.hang import evidence, monitor
from nccl_doctor.app.hang.evidence import trigger_flight_recorder
from nccl_doctor.app.hang.monitor import HangMonitor
from nccl_doctor.app.hang.signs import Signs
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.derived.hang import JobStop
from nccl_doctor.formats.recording import recorded_files
from nccl_doctor.formats.recording.hang_records import parse_ranks
from nccl_doctor.watch.state import State

START = 1_780_000_000.0
HEAD = 'Process {0}: python train.py\nPython v3.11\n\nThread {0} (idle): "MainThread"\n'
WAITING = HEAD + "    all_reduce (torch/distributed/distributed_c10d.py:3252)\n"
LOADING = HEAD + "    load (data.py:8)\n"


def process(rank: int, since: float, **changes: Any) -> dict[str, Any]:
    return {
        "pid": 4000 + rank, "rank": rank, "local_rank": rank, "world": 4, "job": None, "name": "job", "since": since,
        "state": "sleeping", "quiet": None, "command": "python train.py", **changes,
    }  # fmt: skip


def sample(now: float, since: float, **changes: Any) -> dict[str, Any]:
    return {"kind": "process", "processes": [process(rank, since, **changes) for rank in range(4)]}


class Scene:
    """A monitor whose clock and looks the test sets."""

    def __init__(self, folder: Path | None) -> None:
        self.now = START
        self.bad: int | None = 2
        self.switches = 100
        self.records: list[dict[str, Any]] = []
        self.monitor = HangMonitor(lambda _, record: self.records.append(record), folder, clock=lambda: self.now)

    def look(self, ranks: Any, number: int, **_: Any) -> list[dict[str, Any]]:
        texts = {one.pid: LOADING if one.rank == self.bad else WAITING for one in ranks}
        found = [
            {"rank": one.rank, "pid": one.pid, "state": "sleeping", "cpu": 1.0, "switches": self.switches, "place": texts[one.pid],
             "site": "load (data.py:8)" if one.rank == self.bad else "train (train.py:40)", "since": START,
             "op": None if one.rank == self.bad else "all_reduce", "text": texts[one.pid].format(one.pid)}
            for one in ranks
        ]  # fmt: skip
        stamp = f"2026-05-28T20:{26 + int(self.now - START) // 60:02}:{int(self.now - START) % 60:02}+00:00"
        return [
            {"kind": "hang", "hostname": "node01", "query_time": stamp, "job": "job", "look": number, "world": 4, "ranks": found,
             "sockets": []}
        ]  # fmt: skip

    def second(self, since: float, **changes: Any) -> None:
        self.now += 1
        self.monitor.add(sample(self.now, since, **changes))
        self.monitor.step()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path)
    monkeypatch.setattr(monitor, "look", made.look)
    return made


def looks(scene: Scene) -> list[Any]:
    return [record.get("look", "over") for record in scene.records]


def test_a_stop_is_looked_at_twice_and_withdrawn_when_the_job_moves(scene: Scene, tmp_path: Path) -> None:
    for _ in range(12):
        scene.second(START)
    assert [1, 2] == looks(scene)
    said = (tmp_path / evidence.HEADLINE).read_text()
    assert "3 of 4 ranks wait in all_reduce; rank 2 (node01, pid 4002) is in load (data.py:8)" in said
    assert "job" == evidence.job_of(said)
    state = State()
    for record in scene.records:
        state.add_record(record)
    assert [2] == [suspect.rank for suspect in state.jobs["job"].suspects]
    scene.second(scene.now)
    assert [1, 2, "over"] == looks(scene)
    assert not (tmp_path / evidence.HEADLINE).exists()
    state.add_record(scene.records[-1])
    assert {} == state.jobs


def test_a_job_that_moves_between_the_looks_is_no_stop(scene: Scene) -> None:
    for _ in range(12):
        scene.switches += 50
        scene.second(START)
    assert [1, 2, "over"] == looks(scene)


def test_ranks_that_compute_alike_are_looked_at_ever_less_often(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def look(ranks: Any, number: int, **_: Any) -> list[dict[str, Any]]:
        asked.append(scene.now - START)
        (record,) = scene.look(ranks, number)
        for one in record["ranks"]:
            one["text"] = LOADING.format(one["pid"])
        return [record]

    monkeypatch.setattr(monitor, "look", look)
    for _ in range(100):
        scene.second(START)
    assert [] == scene.records
    assert [5.0, 15.0, 35.0, 75.0] == asked


def test_the_end_of_a_stopped_job_does_not_change_why_it_stopped(scene: Scene) -> None:
    for _ in range(12):
        scene.second(START)
    scene.now += 60
    scene.monitor.add({"kind": "process", "processes": [process(rank, START) for rank in range(2)]})
    scene.monitor.step()
    assert [1, 2] == looks(scene)


def test_another_node_of_the_folder_is_looked_at_too(scene: Scene, tmp_path: Path) -> None:
    own, other = tmp_path / "run-a", tmp_path / "run-b"
    own.mkdir()
    other.mkdir()
    scene.monitor = HangMonitor(lambda _, record: scene.records.append(record), own, clock=lambda: scene.now)
    (other / evidence.HEADLINE).write_text("JOB job STOPPED 12 s: 3 of 4 ranks wait; nothing is known of the other 1\n")
    os.utime(other / evidence.HEADLINE, (START, START))
    scene.second(START + 1)
    assert [1] == looks(scene)


def test_a_recording_is_read_back_without_what_was_withdrawn(scene: Scene, tmp_path: Path) -> None:
    for _ in range(12):
        scene.second(START)
    for over, ranks in ((False, [2]), (True, [])):
        lines = [*scene.records, {"kind": "hang", "hostname": "node01", "job": "job", "over": True}][: 3 if over else 2]
        file = tmp_path / f"{over}.jsonl"
        file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        facts = Facts()
        with file.open("rb") as stream:
            recorded_files.read_format(stream, file.name, facts)
        derive_all(facts)
        assert ranks == [one.rank for one in facts.rows(JobStop)]


GPU = {
    "utilization.gpu": 100, "power.draw": 118.0, "enforced.power.limit": 700.0, "pcie_rx": 1e6, "pcie_tx": 1e6,
    "nvlink_rx": 0.0, "nvlink_tx": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "since", "after", "suspicious"),
    [
        (GPU, None, 9.0, True),  # spins, though the main threads poll
        (GPU, None, 5.0, False),
        ({**GPU, "power.draw": 600.0}, 0.0, 60.0, False),  # works, though the main threads wait for it
        ({**GPU, "nvlink_rx": 1e11}, 0.0, 60.0, False),
        ({**GPU, "utilization.gpu": 0}, 0.0, 6.0, True),
    ],
)
def test_gpus_tell_waiting_from_work(gpu: dict[str, Any], since: float | None, after: float, suspicious: bool) -> None:
    signs = Signs()
    for passed in (0.0, after):
        tasks = [{"pid": 4000 + rank} for rank in range(4)]
        signs.add({"kind": "gpu", "gpus": [{"index": 0, **gpu, "processes": tasks}]}, START + passed)
        signs.add(sample(0.0, START + (passed if since is None else since)), START + passed)
    assert suspicious == signs.jobs["job"].suspicious(START + after)


def test_a_recording_leaves_other_jobs_alone() -> None:
    signs = Signs(recording="run-1")
    others = sample(0, START)["processes"]
    signs.add({"kind": "process", "processes": [*others, process(0, START, name="own", recording="run-1")]}, START)
    assert ["own"] == list(signs.jobs)


def test_a_rank_that_ended_is_a_sign_and_one_that_was_started_again_is_none() -> None:
    signs = Signs()
    signs.add(sample(0, START), START)
    for passed in (1.0, 5.0):
        left = [process(rank, START + passed) for rank in range(3)]
        signs.add({"kind": "process", "processes": left}, START + passed)
    assert signs.jobs["job"].suspicious(START + 5)
    again = [*left, process(3, START + 6, pid=5003)]
    signs.add({"kind": "process", "processes": again}, START + 6)
    assert not signs.jobs["job"].suspicious(START + 6)


def test_the_flight_recorder_is_asked_through_its_pipe_only(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "root").symlink_to("/")
    (folder / "environ").write_bytes(b"A=1\0TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + os.fsencode(tmp_path / "fr_") + b"\0")
    assert not trigger_flight_recorder(7, 3, tmp_path)
    (tmp_path / "fr_3.pipe").write_text("")
    assert not trigger_flight_recorder(7, 3, tmp_path)
    assert "" == (tmp_path / "fr_3.pipe").read_text()
    (tmp_path / "fr_3.pipe").unlink()
    os.mkfifo(tmp_path / "fr_3.pipe")
    reader = os.open(tmp_path / "fr_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert trigger_flight_recorder(7, 3, tmp_path)
    assert b"1\n" == os.read(reader, 10)
    os.close(reader)


def test_a_main_thread_that_only_asks_for_the_lock_names_the_thread_that_holds_it() -> None:
    uploader = 'Thread 9 (idle): "uploader"\n    compress (upload.py:12)\nThread 8 (idle): "pin"\n    wait (threading.py:327)\n'

    def record(second: int, switches: int) -> dict[str, Any]:
        one = {
            "rank": 2,
            "pid": 4,
            "state": "sleeping",
            "cpu": 1.0,
            "switches": switches,
            "place": "a",
            "text": LOADING.format(4) + uploader,
        }
        return {"job": "job", "query_time": f"2026-05-28T20:26:{second:02}+00:00", "ranks": [one]}

    ((state, _),) = parse_ranks(record(5, 1900), record(0, 900))
    assert ("uploader at compress (upload.py:12)", 0) == (state.holder, state.moved)
    ((state, _),) = parse_ranks(record(5, 5000), record(0, 900))
    assert (None, 1) == (state.holder, state.moved)
