"""`nccl-doctor sample`: samples of this node on stdout or in files, for `record` and `watch`."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click


@click.command("sample", hidden=True)
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, metavar="SECONDS")
@click.option(
    "--into", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Files there, not stdout."
)
@click.option("--only", metavar="KINDS", help="gpu, port, host, process.")
@click.option("--while-parent", is_flag=True, help="End when the process that started this one ends.")
def command(interval: float, into: Path | None, only: str | None, while_parent: bool) -> None:
    """Sample this node until stopped: one JSON object a line."""
    from nccl_doctor.app.sample import FEEDS, Files, Sampler

    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: over.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN if into is not None else lambda *_: over.set())
    wanted = set((only or ",".join(FEEDS)).split(","))
    lock = threading.Lock()

    def say(kind: str, record: dict[str, Any]) -> None:
        with lock:
            try:
                sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")
                sys.stdout.flush()
            except OSError:
                over.set()

    put = Files(into).put if into is not None else say
    sampler = Sampler(put, interval, {kind: feed for kind, feed in FEEDS.items() if kind in wanted})
    parent = os.getppid()
    sampler.start()
    while not over.wait(0.5):
        if while_parent and os.getppid() != parent:
            break
    sampler.stop()
    os._exit(0)  # a thread that blocks in a driver must not keep us
