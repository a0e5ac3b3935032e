"""What the screen remembers, and the options that restrict its rows."""

from pathlib import Path

import pytest
from helpers.screens import demo, play, screen
from textual.pilot import Pilot

from nccl_doctor.cli.main import main
from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.settings import Settings, read_settings, write_settings
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.tables import Filter


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "nccl-doctor" / "watch.toml"
    assert (Settings(), "") == read_settings(file)
    kept = Settings("nodes", 2.0, light=True, tree=True, sort={"GPUs": "power"}, reverse={"GPUs": True})
    write_settings(file, kept)
    assert (kept, "") == read_settings(file)


@pytest.mark.parametrize(
    "text",
    [
        'interval = "fast"',
        "interval = 0",
        "interval = nan",
        "tree = 1",
        "sort = 5",
        "reverse = {a = 1}",
        "unknown = 1",
        "[",
        "\0",
    ],
)
def test_settings_that_make_no_sense_are_said_and_not_used(tmp_path: Path, text: str) -> None:
    file = tmp_path / "watch.toml"
    file.write_text(text)
    settings, problem = read_settings(file)
    assert Settings() == settings
    assert problem.startswith(f"{file}")
    file.write_bytes(b"\xff\xfe")
    assert read_settings(file)[1]


def test_the_screen_takes_over_and_returns_its_settings() -> None:
    app = demo(20, look=Look(light=True))
    app.apply(Settings("processes", sort={"processes": "cpu", "gone": "x"}, reverse={"processes": True}, tree=True))

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        assert "processes" == app.active
        assert "CPU %▼" in screen(app)[3]
        await pilot.press("6")
        await pilot.pause()
        after = app.settings()
        assert ("nodes", True, True) == (after.tab, after.light, after.tree)
        assert {"processes": "cpu"} == after.sort

    play(app, steps, (120, 30))


def test_light_colours_are_readable_on_white() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        colours = {
            segment.style.color.name
            for strip in app.screen._compositor.render_strips() for segment in strip if segment.style and segment.style.color
        }  # fmt: skip
        assert not {"yellow", "cyan"} & colours
        assert "magenta" in colours

    play(demo(100, look=Look(light=True)), steps)


def test_rows_of_chosen_gpus_and_of_one_user() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        assert {2, 5} == {row[1].now["index"] for row in app.tables.by_tab["overview"].shown}
        assert "only GPUs 2,5" in screen(app)[0]
        await pilot.press("4")
        await pilot.pause()
        assert ["guest"] == [row[1]["user"] for row in app.tables.by_tab["processes"].shown]

    play(demo(20, rows=Filter(gpus=frozenset({2, 5}), user="guest")), steps, (120, 30))


def test_a_wrong_list_of_gpus_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert 2 == main(["watch", "--demo", "--only", "first"])
    assert 1 == capfd.readouterr().err.count("\n")
