"""`nccl-doctor sample`: writes samples of this node to stdout or files, for `record` and `watch`."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_doctor.cli.value_types import NumberRange

if TYPE_CHECKING:
    from nccl_doctor.app.hang.monitor import HangMonitor, Put


@click.command("sample", hidden=True)
@click.option("--interval", type=NumberRange(0.1, 3600), default=1.0, show_default=True, metavar="SECONDS")
@click.option(
    "--into", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write files there, not stdout."
)
@click.option("--only", metavar="KINDS", help="Comma-separated: gpu, port, host, process.")
@click.option("--auto/--no-auto", default=True, help="Look at the ranks of jobs that stand still.")
@click.option("--eager", is_flag=True, help="Look as soon as a job seems to stand still: for one page.")
@click.option("--own", is_flag=True, help="Look only at ranks that run under the recording of --into.")
@click.option("--while-parent", type=int, metavar="PID", help="Exit when the parent, this process, exits.")
def command(
    interval: float, into: Path | None, only: str | None, auto: bool, eager: bool, own: bool, while_parent: int | None
) -> None:
    """Sample this node until stopped; write one JSON object a line."""
    from nccl_doctor.app.sample import KINDS, Files, Sampler, make_feeds

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN if into is not None else lambda *_: stopped.set())
    kinds = set((only or ",".join(KINDS)).split(","))
    lock = threading.Lock()

    def write_line(kind: str, record: dict[str, Any]) -> None:
        with lock:
            try:
                sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")
                sys.stdout.flush()
            except OSError:
                stopped.set()

    put = Files(into).put if into is not None else write_line
    monitored: list[HangMonitor] = []  # by this one, once it is imported
    ready = threading.Event()

    def put_and_watch(kind: str, record: dict[str, Any]) -> None:
        put(kind, record)
        ready.wait()
        for monitor in monitored:
            monitor.add(record)

    sampler = Sampler(put_and_watch, interval, {kind: feed for kind, feed in make_feeds().items() if kind in kinds})
    sampler.start()
    if auto:  # after the start of the sampler, because it is long to import and the first samples do not need it
        monitored.append(_monitor(put, into, eager=eager, own=own))
        monitored[0].start()
    ready.set()
    while not stopped.wait(0.5):
        if while_parent is not None and os.getppid() != while_parent:  # it may have ended before we began
            break
    sampler.stop()
    os._exit(0)  # do not wait for a thread that blocks in a driver


def _monitor(put: "Put", into: Path | None, *, eager: bool, own: bool) -> "HangMonitor":
    from nccl_doctor.app.hang.monitor import HangMonitor

    return HangMonitor(put, into, eager=eager, own=own)
