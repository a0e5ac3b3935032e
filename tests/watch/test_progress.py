"""What the screen says of the steps of a job, and logs that it follows."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from helpers.screens import play, screen, shows, text
from textual.pilot import Pilot

from nccl_doctor.cli.main import main
from nccl_doctor.facts.store import Facts
from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.progress import Progress, duration
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.sources.playing import IdleSource
from nccl_doctor.watch.state import State

NANOGPT = "iter {}: loss 2.1, time {:.2f}ms, mfu 31.2%\n"


def progress(*seconds: float | None) -> Progress:
    one = Progress("job")
    for number, value in enumerate(seconds, 1):
        one.add({"step": 10 * number, "seconds": value, "at": 1000.0 + 4 * number})
    return one


def test_time_of_a_step_and_its_number() -> None:
    assert ("412 ms/step, step 20", False) == progress(0.412, 0.412).sentence(1010.0)
    assert ("step 10", False) == progress(None).sentence(1010.0)
    assert ["5.0 ms", "412 ms", "1.8 s", "35 s"] == [duration(value) for value in (0.005, 0.412, 1.8, 35.2)]


def test_slower_than_before() -> None:
    assert ("600 ms/step, 400 ms before, step 200", True) == progress(*[0.4] * 10, *[0.6] * 10).sentence(1081.0)
    assert not progress(*[0.4] * 10, *[0.45] * 10).sentence(1081.0)[1]
    assert not progress(*[0.4] * 2, *[0.6] * 8).sentence(1041.0)[1]  # too little to compare with


def test_no_step_for_a_while() -> None:
    assert ("no step for 42 s, 400 ms/step before, step 100", True) == progress(*[0.4] * 10).sentence(1082.0)
    assert progress(*[8.0] * 10).silence(1090.0) is None  # six steps are not many


def test_hostile_values_are_ignored() -> None:
    state = State()
    for one in (
        {"name": "job"},
        {"name": "job", "step": "7", "at": 1},
        {"step": 3, "at": float("nan")},
        7,
        {"name": "x", "step": 2, "seconds": -1, "at": 5},
    ):
        state.add_record(
            {
                "kind": "process",
                "hostname": "n1",
                "query_time": "2026-05-28T20:26:00+00:00",
                "processes": [],
                "steps": [one],
            },
            1.0,
        )
    assert {"job": None, "None": None, "x": None} == {name: found.seconds for name, found in state.steps.items()}
    assert 2 == state.steps["x"].step


def test_the_headline_of_the_demo_has_the_time_of_a_step() -> None:
    app = Watch(lambda _: IdleSource(), interval=60.0, invented=True)
    invented = Demo()
    for _ in range(55):
        for record in invented.step():
            app.add_record(record)

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        assert screen(app)[1].startswith("RUNNING  4")
        assert "ms/step, step 48,1" in screen(app)[1]

    play(app, steps, (100, 24))


def test_a_log_that_grows_gives_steps_and_findings(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(NANOGPT.format(10, 412))
    app = Watch(lambda _: IdleSource(), interval=0.2, logs=(str(log),))

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        app.add_record(
            {"kind": "host", "hostname": "n1", "query_time": "2026-05-28T20:26:00+00:00", "host": {}}, app.now()
        )
        await shows(pilot, app, lambda: "412 ms/step, step 10" in text(app))
        with log.open("a") as file:
            file.write(
                NANOGPT.format(20, 300) + "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\n"
            )
        await shows(pilot, app, lambda: "step 20" in text(app))

    play(app, steps, (120, 30))


def test_a_log_that_is_a_damaged_base_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "job.db"
    Facts().save(base)
    with closing(sqlite3.connect(base)) as db:
        db.execute("DROP TABLE input")

    assert 0 == main(["watch", "--once", "--log", str(base)])
    assert f"nccl-doctor: {base} holds no table input\n" == capfd.readouterr().err
