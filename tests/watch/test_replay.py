"""Recordings that are torn, and the time line of a replay."""

import json
import os
from pathlib import Path

from helpers.screens import play, screen, shows, text
from textual.pilot import Pilot

from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.sources.demo import HEATS, START, STOPS, Demo
from nccl_doctor.watch.sources.playing import IdleSource
from nccl_doctor.watch.sources.replay import Replay, find_marks


def recording(folder: Path, seconds: int) -> Path:
    """Writes what `record` writes of the invented job."""
    invented = Demo()
    lines: dict[str, list[str]] = {}
    for _ in range(seconds):
        for record in invented.step():
            lines.setdefault(record["kind"], []).append(json.dumps(record))
    for kind, rows in lines.items():
        (folder / f"{kind}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def replay_screen(folder: Path) -> Watch:
    app: Watch
    replay = Replay(lambda record: app.add_record(record), folder)
    app = Watch(lambda _: IdleSource(), interval=60.0, title="run", replay=replay, readonly=True)
    return app


def test_what_was_skipped_is_said(tmp_path: Path) -> None:
    recording(tmp_path, 10)
    with (tmp_path / "host.jsonl").open("a") as file:
        file.write('{"dropped": 4096, "why": "No space left on device"}\nnot json\n{"kind": "host"}\n{"kind": "ho')
    (tmp_path / "broken.jsonl").mkdir()

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("right_curly_bracket")
        await pilot.pause()
        seen = " ".join(text(app).split())
        assert (
            "host.jsonl: 3 lines are not records, the first is line 22; 4096 bytes were not recorded (No space left"
            in seen
        )
        assert "skipped broken.jsonl: cannot be read: not a regular file" in seen

    play(replay_screen(tmp_path), steps, (160, 50))


def test_marks_lead_to_the_findings(tmp_path: Path) -> None:
    app = replay_screen(recording(tmp_path, 200))
    assert app.replay is not None
    *_, marks = find_marks(app.replay.records, lambda: True)
    heat = min(at for at, severity in marks if severity == "warning") - START
    assert HEATS < heat < STOPS
    assert (START + STOPS, "error") in marks

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        app.marks = marks
        await pilot.press("n")
        await pilot.pause()
        assert START + heat == app.state.now
        assert "gpu-thermal-throttle" in text(app)
        assert "!" in screen(app)[2]
        await pilot.press("n", "N")
        await pilot.pause()
        assert START + heat == app.state.now
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert "x2" in screen(app)[2]
        app._tick()
        assert START + heat + 120 == app.replay.time  # type: ignore[union-attr]
        await shows(pilot, app, lambda: "JOB STOPPED" in screen(app)[1])

    play(app, steps, (120, 30))


def test_the_hole_of_a_recording_is_not_read(tmp_path: Path) -> None:
    recording(tmp_path, 3)
    expected = len(Replay(lambda _: None, tmp_path).records)
    gpu = tmp_path / "gpu.jsonl"
    size = gpu.stat().st_size
    with gpu.open("r+b") as file:
        file.seek(1 << 40)
        file.write(b"\n" + gpu.read_bytes()[:size])
    os.truncate(tmp_path / "host.jsonl", 1 << 40)

    assert expected + 6 == len(Replay(lambda _: None, tmp_path).records)
