"""Pictures of the main screens as text, which a person has looked at: docs/screens.

`NCCL_DOCTOR_SCREENS=write pytest tests/watch/test_screens.py` makes them anew, and SVG images beside them.
"""

import os
import time
from collections.abc import Iterator

import pytest
from helpers.places import ROOT
from helpers.screens import demo, play, screen
from textual.pilot import Pilot

from nccl_doctor.watch.app import TABS, Watch

SCREENS = ROOT / "docs" / "screens"
SIZES = [(160, 50), (120, 35), (80, 24), (60, 24)]
WRITE = os.environ.get("NCCL_DOCTOR_SCREENS") == "write"
OPENED = {"GPUs": "chart", "findings": "finding"}  # what Enter shows


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def compare(app: Watch, name: str) -> None:
    """The screen is the picture that is kept, apart from what this program costs."""
    width, height = app.size
    file = SCREENS / f"{width}x{height}-{name.lower()}.txt"
    lines = [line.rstrip() for line in screen(app)]
    seen = "\n".join(lines) + "\n"
    if WRITE:
        SCREENS.mkdir(exist_ok=True)
        file.write_text(seen)
        if (picture := os.environ.get("NCCL_DOCTOR_PICTURES")) is not None:
            app.save_screenshot(f"{width}x{height}-{name.lower()}.svg", picture)
    assert file.read_text() == seen


@pytest.mark.parametrize("size", SIZES)
def test_screens_are_those_that_were_looked_at(size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None], app: Watch) -> None:
        for number, name in enumerate(TABS, 1):
            await pilot.press(str(number))
            await pilot.pause()
            compare(app, name)
            if name in OPENED:
                await pilot.press("enter")
                await pilot.pause()
                compare(app, OPENED[name])
                await pilot.press("escape")
        await pilot.press("question_mark")
        await pilot.pause()
        compare(app, "help")

    play(demo(200), steps, size)
