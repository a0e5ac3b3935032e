"""The screen in real terminals: filmed as text by tmux, and with a driver that answers, then blocks."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.film import Film
from helpers.nvml import STUB, NvmlStub
from helpers.screens import shows, text

from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.sources.feed import NodeFeeds

filmed = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here; install the package tmux")


TABS = "2 GPUs  3 network"


@pytest.fixture
def film(request: pytest.FixtureRequest) -> Iterator[Film]:
    columns, rows, words = request.param
    found = Film(columns, rows, f"{sys.executable} -m nccl_doctor watch {words}; echo left; sleep 1000")
    yield found
    found.close()


@filmed
@pytest.mark.parametrize("film", [(100, 30, "--demo --interval 0.2")], indirect=True)
def test_the_demo_develops_its_fault(film: Film) -> None:
    film.wait("2 nodes", "16 GPUs", "RDMA")
    hang = film.wait("ERROR gpu-a,gpu-b spinning-in-collective")
    assert all(len(line) <= 100 for line in hang.splitlines())
    film.keys("5")
    film.wait("severity", "since", "gpu-thermal-throttle")  # judged before or after the hang, as the machine is fast
    film.keys("Enter")
    film.wait("Why", "Next", "(Esc closes)")
    film.keys("Escape")
    film.wait(TABS)
    film.keys("q")
    film.wait("left")


@filmed
@pytest.mark.parametrize("film", [(80, 24, "--demo --ascii")], indirect=True)
def test_ascii_is_ascii_in_a_terminal(film: Film) -> None:
    for key, word in (("1", TABS), ("?", "keys (Esc"), ("Escape", TABS), ("/", "filter /"), ("Escape", "? help")):
        film.keys(key)
        assert film.wait(word).isascii()


def in_folder(stub: NvmlStub, state: dict[str, object], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stub.environ(state, folder / "state").items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)


def live(*words: str) -> str:
    """The screen of this node, as soon as it shows all these words."""

    async def run() -> str:
        app = Watch(lambda put: NodeFeeds(put, interval=0.3), interval=0.3)
        async with app.run_test(size=(100, 30)) as pilot:
            await shows(pilot, app, lambda: all(word in text(app) for word in words))
            before = app.query_one("#grid").cursor  # type: ignore[attr-defined]
            await pilot.press("down", "5", "1")
            assert before == 0
            return text(app)

    return asyncio.run(run())


def test_the_screen_shows_what_nvml_serves(
    nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder(nvml_stub, STUB, tmp_path, monkeypatch)
    seen = live("97 %", "412/700 W")
    rows = [line.split() for line in seen.splitlines() if "412/700" in line]
    assert ["0", "97", "%"] == rows[0][:3]
    assert ["1", "3", "%"] == rows[1][:3]
    for value in ("1.0/80G", "61", "1755", "thermal"):
        assert value in " ".join(rows[0])
    assert "88" in rows[1]


def test_a_driver_that_blocks_leaves_the_screen_alive(
    nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder(nvml_stub, {**STUB, "nvmlDeviceGetUtilizationRates.hang": 1}, tmp_path, monkeypatch)
    seen = live("gpu: no answer for", "CPU")
    assert "memory" in seen
