"""The live screen without a terminal."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from helpers.waiting import DEADLINE
from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.sources.playing import IdleSource

Play = Callable[[Pilot[None], Watch], Awaitable[None]]


def screen(app: Watch) -> list[str]:
    """What stands on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip) for strip in strips]
    assert len(lines) == app.size.height
    return lines


def text(app: Watch) -> str:
    return "\n".join(screen(app))


async def shows(pilot: Pilot[None], app: Watch, reached: Callable[[], object]) -> None:
    """Wait until `reached` is true, while the screen handles its messages."""
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end, text(app)
        await pilot.pause(0.02)


def demo(seconds: int, **options: Any) -> Watch:
    """A screen that the invented job has fed for so long, and that stands still."""
    app = Watch(lambda _: IdleSource(), interval=60.0, title="demo", invented=True, **options)
    invented = Demo()
    for _ in range(seconds):
        for record in invented.step():
            app.add_record(record)
    return app


def play(app: Watch, steps: Play, size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            app.diagnose_now()
            await pilot.pause()
            await steps(pilot, app)

    asyncio.run(run())
