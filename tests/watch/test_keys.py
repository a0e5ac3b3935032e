"""Every key and every pane of the screen, driven as a person would."""

import os
import subprocess
import sys
from typing import Any

import pytest
from helpers.screens import demo, play, screen, text
from helpers.watching import live
from textual.pilot import Pilot

from nccl_doctor.watch.app import TABS, Watch
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.sources.playing import IdleSource
from nccl_doctor.watch.view.cells import Look
from nccl_doctor.watch.view.screens import Chart, Page
from nccl_doctor.watch.view.widgets import Grid, Lines

SIZES = [(160, 50), (80, 24), (60, 24)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_pane_fits_every_screen(size: tuple[int, int], ascii_only: bool) -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for number, name in enumerate(TABS, 1):
            await pilot.press(str(number))
            await pilot.pause()
            lines = screen(app)
            assert name == app.active
            assert all(len(line) == size[0] for line in lines)
            assert all(line.isascii() for line in lines) or not ascii_only
            assert "help" in lines[-1]
        assert 2 == len(app.tables.by_tab["nodes"].shown)

    play(demo(200, look=Look(ascii_only)), steps, size)


def test_the_first_pane_shows_everything_at_once() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        seen = text(app)
        for wanted in (
            "2 nodes",
            "16 GPUs",
            "mlx5_0/1",
            "402/2015 GiB",
            "gpu-thermal-throttle",
            "HW thermal",
            "utilisation, mean",
            "H100",
        ):
            assert wanted in seen

    play(demo(100), steps, (160, 50))


def test_findings_with_why_and_fix_and_their_history() -> None:
    app = demo(119)

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        more = Demo()
        for _ in range(119):
            more.step()
        for _ in range(81):
            for record in more.step():
                app.add_record(record)
        app.diagnose_now()
        await pilot.press("5")
        await pilot.pause()
        found = [episode.finding.name for episode in app.tables.by_tab["findings"].shown]
        assert "spinning-in-collective" == found[0]
        assert "gpu-thermal-throttle" in found
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Page)
        for word in ("Why", "Next", "NCCL", "SYN123", "since", "8 of 8 GPUs of gpu-a", "7 of 8 GPUs of gpu-b"):
            assert word in text(app)
        await pilot.press("escape", "1")
        await pilot.pause()
        assert "ERROR gpu-a,gpu-b spinning-in-collective" in text(app)

    play(app, steps)


def test_a_finding_that_is_over_stays_in_the_history() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for episode in app.diagnosis.episodes:
            episode.over = True
        await pilot.press("5")
        await pilot.pause()
        assert "over" in screen(app)[4]
        assert ":" in screen(app)[4]
        await pilot.press("1")
        await pilot.pause()
        assert "WARNING" not in text(app)
        assert screen(app)[1].startswith("SLOWER  533 ms/step")

    play(demo(100), steps)


def test_cursor_and_chart_of_a_gpu() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("2", "down", "down", "up", "end", "home", "pagedown", "pageup", "down")
        await pilot.pause()
        assert 1 == app.query_one(Grid).cursor
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Chart)
        seen = text(app)
        for word in ("gpu-a GPU1", "utilisation 9", "power 6", "temperature", " 0 %", "20:27:"):
            assert word in seen
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(app.screen, Chart)

    play(demo(50), steps)


def test_the_filter_works_while_it_is_typed() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("2", "slash", *"gpu-")
        await pilot.pause()
        assert 16 == len(app.tables.by_tab["GPUs"].shown)
        await pilot.press("b")
        await pilot.pause()
        assert {"gpu-b"} == {row[0].name for row in app.tables.by_tab["GPUs"].shown}
        assert "filter /gpu-b" in screen(app)[-1]
        await pilot.press("enter", "down")
        await pilot.pause()
        assert "/gpu-b" in screen(app)[0]
        assert 1 == app.query_one(Grid).cursor
        await pilot.press("slash", *"xyz")
        await pilot.pause()
        assert "no row contains gpu-bxyz" in text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "help" in screen(app)[-1]
        assert 16 == len(app.tables.by_tab["GPUs"].shown)

    play(demo(50), steps)


def test_sorting_by_letter_by_title_and_back() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        def powers() -> list[float]:
            return [gpu.last("power") or 0.0 for _, gpu in app.tables.by_tab["GPUs"].shown]

        await pilot.press("2", "o", "p")
        await pilot.pause()
        assert "sorted by power" in screen(app)[-1]
        assert "power▼" in screen(app)[3 - 0]
        assert powers() == sorted(powers(), reverse=True)
        await pilot.press("O")
        await pilot.pause()
        assert powers() == sorted(powers())
        await pilot.press("o", "Z")
        await pilot.pause()
        assert "no column has the letter Z" in screen(app)[-1]
        await pilot.click("#grid", offset=(screen(app)[3].index("temp"), 0))
        await pilot.pause()
        assert "temp▼" in screen(app)[3]
        await pilot.press("o", "escape")
        await pilot.pause()
        assert app.tables.by_tab["GPUs"].sort is None

    play(demo(50), steps)


def test_every_column_of_every_pane_sorts() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for number, name in enumerate(TABS, 1):
            await pilot.press(str(number))
            columns = app.tables.by_tab[name].columns()
            assert len(columns) == len({column.letter for column in columns} - {""})
            for column in columns:
                await pilot.press("o", column.letter)
                await pilot.pause()
                assert column.key == app.tables.by_tab[name].sort

    play(demo(130), steps)


def test_processes_tree_own_and_numa() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("t")
        await pilot.pause()
        assert "processes" == app.active
        shown = [(row[1].get("rank"), row[1]["depth"]) for row in app.tables.by_tab["processes"].shown]
        ranks = [(rank, 1) for rank in range(16)]
        assert [(None, 0), *ranks[:8], (None, 0), (None, 0), *ranks[8:]] == shown
        assert "torchrun" in text(app)
        assert "guest" in text(app)
        assert "GPU6 FAR" in text(app)
        assert 15 == text(app).count(" near")
        await pilot.press("u")
        await pilot.pause()
        assert [] == app.tables.by_tab["processes"].shown
        assert "no rank of a job and no process on a GPU was found" in text(app)

    play(demo(10), steps, (100, 24))


def test_nodes_drill_down() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        app.add_record({"kind": "gone", "hostname": "gpu-a", "error": "Connection refused"})
        await pilot.press("6")
        await pilot.pause()
        assert ["gpu-a", "gpu-b"] == [node.name for node in app.tables.by_tab["nodes"].shown]
        assert "gone: Connection refused" in text(app)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "GPUs" == app.active
        assert {"gpu-b"} == {row[0].name for row in app.tables.by_tab["GPUs"].shown}

    play(demo(10), steps)


def test_pause_holds_the_picture_but_nothing_is_lost() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("space")
        before = screen(app)
        assert "PAUSED" in before[0]
        app.add_record({"kind": "gone", "hostname": "gpu-c", "error": "x"})
        app.draw()
        await pilot.press("down", "up")
        await pilot.pause()
        assert before == screen(app)
        await pilot.press("space")
        await pilot.pause()
        assert "gpu-c" in text(app)

    play(demo(10), steps)


def test_interval_and_next_pane() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        await pilot.press("plus")
        assert 5.0 == app.interval
        await pilot.press("minus", "minus")
        assert 10.0 == app.interval
        await pilot.press("tab", "tab")
        assert "network" == app.active
        await pilot.press("shift+tab", "shift+tab", "shift+tab")
        assert "nodes" == app.active

    play(demo(3), steps)


def test_help_fits_and_closes() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for key in ("question_mark", "h", "f1"):
            await pilot.press(key)
            await pilot.pause()
            assert "keys (Esc closes)" in text(app)
            assert "PgUp PgDn" in text(app)
            await pilot.press("end")
            await pilot.pause()
            assert "of one core" in text(app)
            await pilot.press("escape")
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running or app._exit

    play(demo(3), steps)


def test_the_mouse_selects_and_changes_panes() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        at = screen(app)[2].index("5 findings") + 2
        await pilot.click("#tabs", offset=(at, 0))
        assert "findings" == app.active
        await pilot.click("#tabs", offset=(3, 0))
        await pilot.click("#grid", offset=(5, 4))
        assert 3 == app.query_one(Grid).cursor
        await pilot.click("#grid", offset=(5, 4))
        await pilot.pause()
        assert isinstance(app.screen, Chart)

    play(demo(20), steps)


def test_a_command_cannot_write_to_the_terminal() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        app.tables.by_tab["processes"].rows()[0][1]["command"] = "\x1b]0;title\x07[red]x[/red] 漢字漢字"
        await pilot.press("4")
        await pilot.pause()
        assert "?]0;title?[red]x[/red]" in text(app)
        assert "\x1b" not in text(app)

    play(live(os.getpid()), steps, (160, 24))


def test_only_lines_that_changed_are_drawn() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        drawn: list[Any] = []
        for widget in (*app.query(Lines), app.query_one(Grid)):
            widget.refresh = lambda *regions, **_: drawn.extend(regions or ["all"])  # type: ignore[method-assign]
        app.draw()
        assert [] == drawn
        app.state.nodes["gpu-a"].gpus[2].now["clocks.sm"] = 5
        app.state.nodes["gpu-a"].gpus[2].series["clock"].add(5.0)
        app.draw()
        assert 1 == len(drawn)

    play(demo(20), steps, (160, 50))


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        colours = {
            segment.style.color
            for strip in app.screen._compositor.render_strips() for segment in strip if segment.style
        }  # fmt: skip
        assert all(colour is None or colour.is_default or colour.triplet in (None, (0, 0, 0)) for colour in colours)

    play(demo(80), steps)


def test_sixteen_colours_are_enough() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                colour = segment.style.color if segment.style else None
                assert colour is None or colour.is_default or (colour.number is not None and colour.number < 16)

    play(demo(80), steps)


def test_an_empty_screen_says_why() -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for number, words in enumerate(("no GPU", "no GPU", "no network port", "no rank", "no finding", "no node"), 1):
            await pilot.press(str(number))
            await pilot.pause()
            assert words in text(app)

    play(Watch(lambda _: IdleSource(), interval=60.0), steps)


def test_the_terminal_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nccl_doctor", "watch"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n")
    assert "--once" in done.stderr
