"""Lets an hour pass on the live screen, faster than a clock does: resident memory and number of objects every ten minutes.

The records are those of the demo (2 nodes, 16 GPUs), one second after the other; rules run every ten seconds, tabs change.

python bench/watch_hour.py [--seconds 3600]
"""

import argparse
import asyncio
import gc
import time

import psutil

from nccl_doctor.watch.app import TABS, Watch
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.sources.playing import IdleSource


async def watch(seconds: int, every: int) -> None:
    """Prints a row of the table every so many seconds of the demo."""
    app = Watch(lambda _: IdleSource(), interval=3600.0, invented=True)
    invented = Demo()
    started = time.process_time()
    async with app.run_test(size=(160, 50)) as pilot:
        for second in range(1, seconds + 1):
            for record in invented.step():
                app.add_record(record)
            if second % 10 == 0:
                app.diagnosis.diagnose(app.state)
            app.draw()
            await pilot.pause()
            if second % 97 == 0:
                await pilot.press(str(1 + second // 97 % len(TABS)))
            if second % every == 0:
                gc.collect()
                memory = psutil.Process().memory_info().rss / (1 << 20)
                used = time.process_time() - started
                print(f"| {second // 60} min | {memory:.1f} MiB | {len(gc.get_objects())} | {used:.0f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--every", type=int, default=600)
    arguments = parser.parse_args()
    print("| after | resident | objects | CPU time |\n|---|---|---|---|")
    asyncio.run(watch(arguments.seconds, arguments.every))


if __name__ == "__main__":
    main()
