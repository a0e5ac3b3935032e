"""Keys that act on processes, other programs and the replay."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.screens import demo, play, screen, shows, text
from helpers.watching import live
from textual.pilot import Pilot

from nccl_doctor.common.own_command import own_command
from nccl_doctor.watch import actions
from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.sources.demo import START, Demo
from nccl_doctor.watch.sources.playing import IdleSource
from nccl_doctor.watch.sources.replay import Replay
from nccl_doctor.watch.view.screens import SignalDialog


@pytest.mark.parametrize("key", ["s", "x"])
def test_a_demo_leaves_processes_alone(key: str) -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("4", key)
        await pilot.pause()
        assert "--readonly" in screen(app)[-1]

    play(demo(3, readonly=True), steps)


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("key", "number"), [("t", signal.SIGTERM), ("c", signal.SIGINT), ("9", signal.SIGKILL)])
def test_a_signal_is_sent_after_a_question(key: str, number: int) -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("x")
        await pilot.pause()
        assert "select a process first" in screen(app)[-1]
        await pilot.press("4", "x")
        await pilot.pause()
        assert isinstance(app.screen, SignalDialog)
        assert "python train.py" in text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert process.poll() is None
        await pilot.press("x")
        await shows(pilot, app, lambda: isinstance(app.screen, SignalDialog))
        await pilot.press("y")  # nothing is chosen yet
        await pilot.press(key)
        await shows(pilot, app, lambda: f"Send {signal.Signals(number).name}?" in text(app))
        assert process.poll() is None
        await pilot.press("y")
        await shows(pilot, app, lambda: f"sent to {process.pid}" in screen(app)[-1])
        await shows(pilot, app, lambda: process.poll() is not None)
        assert -number == process.returncode

    with sleeper() as process:
        play(live(process.pid), steps)


def test_no_signal_to_a_process_that_took_the_number_of_another() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("4", "x")
        await pilot.pause()
        process.kill()
        process.wait()
        await pilot.press("t", "y")
        await pilot.pause()
        assert f"process {process.pid} has ended" in screen(app)[-1]

    with sleeper() as process:
        play(live(process.pid), steps)


def test_no_signal_to_another_node() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("4", "x")
        await pilot.pause()
        assert "on this node only" in screen(app)[-1]

    play(demo(3), steps)


def test_stacks_ask_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "rank 3 is in its DataLoader\x1b[31m\n", "")

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for keys in (("s",), ("4", "s"), ("enter",)):
            await pilot.press(*keys)
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert "rank 3 is in its DataLoader?[31m" in text(app)
            await pilot.press("escape")
        one = [f"--pid={os.getpid()}"]
        stacks = [*own_command(), "stacks"]
        assert [stacks, stacks + one, stacks + one] == asked

    monkeypatch.setattr(actions.subprocess, "run", answer)
    play(live(os.getpid()), steps)


def test_ras_is_asked_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child would need a module path, which the single file does not have."""

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "2 communicators are missing a rank" in text(app)

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            assert b"VERBOSE STATUS" in connection.recv(1 << 16)
            connection.sendall(b"2 communicators are missing a rank\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        monkeypatch.setenv("NCCL_RAS_ADDR", f"127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setattr(actions.subprocess, "run", None)
        play(live(os.getpid()), steps)
        thread.join()


def test_ras_says_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_RAS_ADDR", "127.0.0.1:1")

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "no RAS service on" in text(app)
        assert "NCCL_RAS_ENABLE=1" in text(app)

    play(live(os.getpid()), steps)


def test_stacks_of_another_node_go_the_way_it_is_watched() -> None:
    app = demo(2)
    row = next(row for row in app.tables.by_tab["processes"].rows() if row[1].get("rank") == 9)
    asked = ["stacks", "--nodes=gpu-b", "--via=srun", "--pid=4001"]
    assert [*own_command(), *asked] == actions.stacks_command(row, "here", "srun")


def test_replay_seeks(tmp_path: Path) -> None:
    write(tmp_path, 100)
    app: Watch
    replay = Replay(lambda record: app.add_record(record), tmp_path)
    app = Watch(lambda _: IdleSource(), interval=60.0, title="run", replay=replay, readonly=True)

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("right")
        await shows(pilot, app, lambda: replay.start_time + 5 == replay.time)
        await pilot.press("full_stop", "left")
        await pilot.pause()
        await shows(pilot, app, lambda: replay.start_time + 30 == replay.time)
        await shows(pilot, app, lambda: START + 31 == app.state.now and "0:00:30 of 0:01:39" in screen(app)[2])
        await pilot.press("comma")
        await shows(pilot, app, lambda: replay.start_time == replay.time)
        await pilot.press("right_curly_bracket")
        await pilot.pause()
        await shows(pilot, app, lambda: replay.ended and "gpu-thermal-throttle" in text(app))
        await pilot.press("left_curly_bracket")
        await shows(pilot, app, lambda: replay.start_time == replay.time)
        await pilot.press("s")
        await pilot.pause()
        assert "replay" in screen(app)[-1]

    play(app, steps, (100, 30))


def write(folder: Path, seconds: int) -> None:
    """What `record` writes of the invented job."""
    import json

    invented = Demo()
    for _ in range(seconds):
        for record in invented.step():
            with (folder / f"{record['kind']}.jsonl").open("a") as file:
                file.write(json.dumps(record, separators=(",", ":")) + "\n")
