"""What the screen shows of nodes that are silent, of rules that fail, and what it leaves behind when it is ended."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.film import Film
from helpers.screens import demo, play, screen, shows, text
from textual.pilot import Pilot

from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.view.cells import DIM, Look, short_time
from nccl_doctor.watch.view.nodes import node_columns


def late(seconds: float) -> Watch:
    """The invented job, of which gpu-b has sent nothing for so long."""
    app = demo(30)
    node = app.state.nodes["gpu-b"]
    node.last_received = {kind: at - seconds for kind, at in node.last_received.items()}
    return app


def test_rows_of_a_silent_node_are_dim_and_show_their_age() -> None:
    app = late(42)
    rows = app.tables.draw("GPUs", Look(), 160).rows
    old, fresh = rows[:8], rows[8:]
    assert {DIM} == {style for line in old for text, style in line if text.strip()}
    assert all("-42s" in "".join(text for text, _ in line) for line in old)
    assert not any("-42s" in "".join(text for text, _ in line) for line in fresh)


def test_a_node_that_is_gone_is_dim_at_once() -> None:
    app = demo(30)
    app.add_record({"kind": "gone", "hostname": "gpu-b", "error": "Connection refused"})
    old = app.tables.draw("GPUs", Look(), 160).rows[:8]
    assert {DIM} == {style for line in old for text, style in line if text.strip()}


def test_sums_of_a_silent_node_are_unknown() -> None:
    app = late(42)
    node, now = app.state.nodes["gpu-b"], app.now()
    values = {column.title: column.cell(node, Look()).plain for column in node_columns(now, {})}
    assert ["-"] * 6 == [values[title] for title in ("util", "low", "watt", "hottest", "net Gb/s", "CPU")]
    assert "no answer for 42 s" in values["why"]


def test_ages_are_short() -> None:
    assert ["0s", "99s", "2m", "100m", "2h", "5d"] == [short_time(x) for x in (0.2, 99.4, 100, 5999, 7200, 400_000)]


def test_rules_that_fail_are_said_and_not_taken_for_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("no such column")

    async def steps(pilot: Pilot[None], app: Watch) -> None:
        def says(words: str) -> bool:
            app._rules_due = 0.0  # again and again: a run may be under way
            app._tick()
            return words in text(app)

        monkeypatch.setattr(LiveDiagnosis, "due", lambda *_: True)
        monkeypatch.setattr(LiveDiagnosis, "run_rules", broken)
        await shows(pilot, app, lambda: says("the rules failed, so findings are out of date: KeyError"))
        assert "nothing was judged: KeyError" in app.tables.by_tab["findings"].empty()
        monkeypatch.undo()
        await shows(pilot, app, lambda: not says("the rules failed"))
        assert screen(app)

    play(demo(3), steps, (120, 35))


@pytest.fixture
def shell() -> Iterator[Film]:
    film = Film(100, 30, "sh")
    yield film
    film.close()


BROKEN = """
from nccl_doctor.cli.main import main
from nccl_doctor.watch.view.painter import Painter
Painter.body = lambda self: 1 / 0 if self._app.state.nodes else None
main(["watch", "--demo"])
"""


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here; install the package tmux")
def test_a_crash_leaves_the_terminal_clean_and_says_why(tmp_path: Path, shell: Film) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    shell.keys(f"{sys.executable} {file}; echo back-at''-prompt", "Enter")
    shell.wait("ZeroDivisionError", "back-at-prompt")
    shell.keys("clear; stty -a | tr ' ' '\\n' | grep -c '^icanon'; echo cle''an", "Enter")
    shell.wait("1\nclean")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here; install the package tmux")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_clean(tmp_path: Path, shell: Film, number: signal.Signals) -> None:
    pid = tmp_path / "pid"
    shell.keys(
        f"sh -c 'echo $$ > {pid}; exec {sys.executable} -m nccl_doctor watch --demo'; echo back-at''-prompt", "Enter"
    )
    shell.wait("gpu-b")
    os.kill(int(pid.read_text()), number)
    shell.wait("back-at-prompt")  # until then, what is typed is lost with the screen
    shell.keys("stty -a | tr ' ' '\\n' | grep -c '^icanon'; echo cle''an", "Enter")
    assert "gpu-b" not in shell.wait("1\nclean")
