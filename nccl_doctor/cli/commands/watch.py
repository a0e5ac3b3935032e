"""`nccl-doctor watch`: the live screen."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_doctor.cli.output import complain, emit
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.report import Finding
    from nccl_doctor.watch.state import State

FIRST_ANSWER = 6.0  # seconds to wait for every node with --once
HTTP = "9879"


@click.command("watch")
@click.option("--nodes", metavar="NODES", help="Watch these nodes, each through a child of its own.")
@click.option("--job", metavar="ID", help="Watch the nodes of this Slurm job, through srun --overlap.")
@click.option(
    "--via", default="ssh", show_default=True, help="ssh, srun, or a command in which %host stands for a node."
)
@click.option("--replay", type=click.Path(path_type=Path), metavar="DIR", help="Show what `record` kept.")
@click.option("--demo", is_flag=True, help="An invented job of two nodes in which a fault develops.")
@click.option("--once", is_flag=True, help="One page on stdout, no screen.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="With --once."
)
@click.option("--export", metavar="prometheus[:PORT]|FILE.prom", help="No screen: serve or write metrics.")
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, metavar="SECONDS")
@click.option("--ascii", "ascii_only", is_flag=True, help="No characters beyond ASCII.")
@click.option("--readonly", is_flag=True, help="No signals and no stacks.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, which then selects text.")
def command(
    nodes: str | None, job: str | None, via: str, replay: Path | None, demo: bool, once: bool, form: str, export: str | None,
    interval: float, ascii_only: bool, readonly: bool, no_mouse: bool,
) -> int:  # fmt: skip
    """Watch GPUs, network ports, the host and the ranks of jobs, with what the rules find. `?` lists the keys.

    Works without a GPU driver. Nodes that do not answer never hold up the others.
    """
    chosen = [
        name for name, given in (("--nodes", nodes), ("--job", job), ("--replay", replay), ("--demo", demo)) if given
    ]
    if len(chosen) > 1:
        raise UsageProblem(f"{' and '.join(chosen)} exclude each other")
    names, via = _names(nodes, job, via)
    if once or export is not None:
        return _plain(names, via, replay, demo, interval, form, export, ascii_only)
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageProblem("the screen needs a terminal; --once prints one page, --export serves metrics")
    return _screen(names, via, replay, demo, interval, ascii_only or _plain_terminal(), readonly, not no_mouse)


def _plain_terminal() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower() or os.environ.get("TERM") == "linux"


def _names(nodes: str | None, job: str | None, via: str) -> tuple[list[str], str]:
    from nccl_doctor.app import fleet

    if job is not None:
        return fleet.of_job(job)
    return (fleet.names(nodes) if nodes is not None else []), via


def _screen(
    names: list[str], via: str, replay: Path | None, demo: bool, interval: float, ascii_only: bool, readonly: bool,
    mouse: bool,
) -> int:  # fmt: skip
    from nccl_doctor.watch.app import Watch
    from nccl_doctor.watch.feed import Nodes, Replay
    from nccl_doctor.watch.sources import Played, Still
    from nccl_doctor.watch.view.cells import Look

    app: Watch
    look = Look(ascii_only)
    if replay is not None:
        played = Replay(lambda record: app.take(record), replay)
        app = Watch(lambda _: Still(), interval=interval, look=look, readonly=True, title=replay.name, replay=played)
    elif demo:
        app = Watch(
            lambda put: Played(put, interval), interval=interval, look=look, readonly=True, title="demo", invented=True
        )
    else:
        app = Watch(
            lambda put: Nodes(put, names, via, interval), interval=interval, look=look, readonly=readonly, via=via,
            nodes=tuple(names),
        )  # fmt: skip
    app.run(mouse=mouse)
    return app.return_code or 0


def _plain(
    names: list[str],
    via: str,
    replay: Path | None,
    demo: bool,
    interval: float,
    form: str,
    export: str | None,
    ascii_only: bool,
) -> int:
    from nccl_doctor.watch import snapshot
    from nccl_doctor.watch.live_diagnosis import Judge
    from nccl_doctor.watch.state import State

    state, judge = State(), Judge()

    def take(record: dict[str, Any]) -> None:
        state.take(record)
        judge.take(record)

    source = _collected(take, names, via, replay, demo, interval)
    if export is None:
        findings = judge.ask(state)
        now = state.now if replay is not None or demo else time.time()
        width = shutil.get_terminal_size((80, 24)).columns
        emit(
            snapshot.as_json(state, findings, now)
            if form == "json"
            else snapshot.text(state, findings, now, width, ascii_only)
        )
        if source is not None:
            source.stop()
        return int(any(finding.severity == "error" for finding in findings))
    _export(export, state, lambda: judge.ask(state), interval)
    return 0


def _collected(take: Any, names: list[str], via: str, replay: Path | None, demo: bool, interval: float) -> Any:
    """Fill the state: wholly from a recording or the demo, else until every node has said everything once."""
    from nccl_doctor.watch.demo import Demo
    from nccl_doctor.watch.feed import Nodes, Replay

    if replay is not None:
        recording = Replay(take, replay)
        recording.seek(recording.end_time)
        return None
    if demo:
        invented = Demo()
        for _ in range(200):
            for record in invented.step():
                take(record)
        return None
    seen: set[tuple[str, str]] = set()

    def noting(record: dict[str, Any]) -> None:
        key = (str(record.get("hostname")), str(record.get("kind")))
        if key in seen:
            twice.add(key)
        seen.add(key)
        if record.get("kind") == "gone":
            twice.update((key[0], kind) for kind in ("gpu", "port", "host", "process"))
        take(record)

    twice: set[tuple[str, str]] = set()
    source = Nodes(noting, names, via, min(interval, 1.0))
    source.start()
    end = time.monotonic() + FIRST_ANSWER + (10 if names else 0)
    while time.monotonic() < end and len(twice) < 4 * max(len(names), 1):
        time.sleep(0.05)
    return source


def _export(target: str, state: "State", ask: Any, interval: float) -> None:
    """Serve or write until stopped."""
    from nccl_doctor.watch import exporter, snapshot

    findings: list[Finding] = []
    name, _, port = target.partition(":")
    server = None
    if name == "prometheus":
        try:
            server = exporter.serve(("", int(port or HTTP)), lambda: snapshot.metrics(state, findings, time.time()))
        except (OSError, ValueError, OverflowError) as error:
            raise UsageProblem(
                f"cannot listen on port {port or HTTP}: {getattr(error, 'strerror', None) or error}"
            ) from None
        complain(f"metrics on port {port or HTTP}, path /metrics; Ctrl-C ends it")
    elif not target.endswith(".prom"):
        raise UsageProblem("--export takes prometheus, prometheus:PORT or a file that ends in .prom")
    try:
        while True:
            findings[:] = ask()
            if server is None:
                try:
                    exporter.write(Path(target), snapshot.metrics(state, findings, time.time()))
                except OSError as error:
                    raise UsageProblem(f"cannot write {target}: {error.strerror}") from None
            time.sleep(max(interval, 5.0))
    except KeyboardInterrupt:
        return
