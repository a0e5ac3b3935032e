"""`nccl-doctor watch`: the live screen."""

import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_doctor.cli import standard_input, terminal_size
from nccl_doctor.cli.output import complain, emit
from nccl_doctor.cli.value_types import PATH, NumberRange
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccl_doctor.diagnosis.report import Finding
    from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
    from nccl_doctor.watch.settings import Settings
    from nccl_doctor.watch.sources.feed import NodeFeeds
    from nccl_doctor.watch.sources.logs import LogSource
    from nccl_doctor.watch.state import State
    from nccl_doctor.watch.view.cells import Look
    from nccl_doctor.watch.view.tables import Filter

ONCE_EVERY = 0.25  # seconds between two samples with --once
FIRST_SAMPLES = 6.0  # seconds to wait for the samples of every node with --once
LOOKS = 15.0  # seconds to wait for two looks at a job whose ranks do not move, with --once
_METRICS_FILE = ".prom"
DEMO_SECONDS = 200  # of the demo that --once shows


@dataclass(frozen=True)
class Asked:
    """What to watch: this node where no other is named, a recording or the demo."""

    nodes: tuple[str, ...]
    via: str
    logs: tuple[str, ...]
    replay: Path | None
    demo: bool
    interval: float | None  # seconds; None where the user did not say
    auto: bool  # look at the stacks of jobs that stand still

    @property
    def recorded(self) -> bool:
        """Whether the records and their times are not of now."""
        return self.replay is not None or self.demo


@click.command("watch")
@click.option("--nodes", metavar="NODES", help="Watch these nodes, one child process each.")
@click.option("--job", metavar="ID", help="Watch the nodes of this Slurm job through srun --overlap.")
@click.option("--via", default="ssh", show_default=True, help="ssh, srun, or a command with %host for the node.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="PATH",
    help="Follow this log or folder too: its steps and what `analyze` finds in it. May be repeated.",
)
@click.option("--replay", type=PATH, metavar="DIR", help="Replay a recording of `record`.")
@click.option("--demo", is_flag=True, help="Show an invented job of two nodes in which a fault develops.")
@click.option("--once", is_flag=True, help="Print one page to stdout, or write the file of --export, and exit.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="With --once."
)
@click.option(
    "--export",
    metavar="prometheus[:[HOST:]PORT]|FILE.prom",
    help="Serve metrics (on 127.0.0.1 unless HOST is given) or write them, instead of a screen.",
)
@click.option("--interval", type=NumberRange(0.2, 60), metavar="SECONDS", help="Between two samples.  [default: 1]")
@click.option("--only", metavar="GPUS", help="Show these GPUs only: 0,2-5.")
@click.option("--user", metavar="NAME", help="Show the processes of this user only.")
@click.option("--light/--dark", default=None, help="Colours for a light or a dark background.  [default: as last time]")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--readonly", is_flag=True, help="Disable signals and stacks.")
@click.option("--no-auto", is_flag=True, help="Do not look at the stacks of jobs that stand still.")
@click.option("--no-mouse", is_flag=True, help="Do not use the mouse, so that the terminal can select text.")
def command(
    nodes: str | None, job: str | None, via: str, logs: tuple[str, ...], replay: Path | None, demo: bool, once: bool,
    form: str, export: str | None,
    interval: float | None, only: str | None, user: str | None, light: bool | None, ascii_only: bool, readonly: bool,
    no_auto: bool, no_mouse: bool,
) -> int:  # fmt: skip
    """Watch GPUs, network ports, hosts and ranks live, with the findings of the rules. `?` lists the keys.

    Works without a GPU driver. A node that does not answer does not delay the others.
    """
    sources = [
        name for name, given in (("--nodes", nodes), ("--job", job), ("--replay", replay), ("--demo", demo)) if given
    ]
    if len(sources) > 1:
        raise UsageProblem(f"{' and '.join(sources)} exclude each other")
    if logs and (replay is not None or demo):
        raise UsageProblem("--log follows files of a job that runs, so not with --replay or --demo")
    if missing := [path for path in logs if not Path(path).is_file() and not Path(path).is_dir()]:
        raise UsageProblem(f"--log: there is no file or folder {', '.join(missing)}")
    names, via = _node_names(nodes, job, via)
    asked = Asked(tuple(names), via, logs, replay, demo, interval, auto=not no_auto)
    if once and export is not None and not export.endswith(_METRICS_FILE):
        raise UsageProblem(f"--once writes metrics to a file: --export FILE{_METRICS_FILE}")
    if once or export is not None:
        return _run_without_screen(asked, form, export, ascii_only, once=once)
    if not standard_input.is_terminal() or not sys.stdout.isatty():
        raise UsageProblem("the screen needs a terminal; --once prints one page, --export serves metrics")
    from nccl_doctor.watch.settings import read_settings, settings_file
    from nccl_doctor.watch.view.cells import Look
    from nccl_doctor.watch.view.tables import Filter

    rows = Filter(gpus=_gpu_numbers(only), user=user or "", job=job or "")
    settings, problem = read_settings(settings_file())
    if problem:
        complain(problem)
    look = Look(ascii_only or settings.ascii or _ascii_terminal(), settings.light if light is None else light)
    settings.interval = interval or settings.interval
    return _run_screen(asked, settings, look, rows, readonly=readonly, mouse=not no_mouse)


def _gpu_numbers(text: str | None) -> frozenset[int]:
    """Returns the numbers of `0,2-5`; none for all GPUs. Raises UsageProblem."""
    from nccl_doctor.watch.view.processes import cpu_set

    numbers = cpu_set(text)
    if text is not None and not numbers:
        raise UsageProblem(f"--only takes numbers of GPUs such as 0,2-5, not {text}")
    return numbers


def _ascii_terminal() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower() or os.environ.get("TERM") == "linux"


def _node_names(nodes: str | None, job: str | None, via: str) -> tuple[list[str], str]:
    """Returns the nodes to watch and the transport to them; no nodes means this node only."""
    if job is None and nodes is None:
        return [], via
    from nccl_doctor.app import fleet

    if job is not None:
        return fleet.of_job(job)
    return fleet.names(nodes or ""), via


def _run_screen(
    asked: Asked, settings: "Settings", look: "Look", rows: "Filter", *, readonly: bool, mouse: bool
) -> int:
    from nccl_doctor.watch.app import Watch
    from nccl_doctor.watch.settings import settings_file, write_settings
    from nccl_doctor.watch.sources.demo import AHEAD
    from nccl_doctor.watch.sources.feed import NodeFeeds
    from nccl_doctor.watch.sources.playing import DemoSource, IdleSource
    from nccl_doctor.watch.sources.replay import Replay

    app: Watch
    interval = settings.interval
    if asked.replay is not None:
        played = Replay(lambda record: app.add_record(record), asked.replay)
        app = Watch(
            lambda _: IdleSource(),
            interval=interval,
            look=look,
            readonly=True,
            title=asked.replay.name,
            replay=played,
            rows=rows,
        )
    elif asked.demo:
        source = DemoSource(lambda record: app.receive(record), interval, AHEAD)
        app = Watch(
            lambda _: source,
            interval=interval,
            look=look,
            readonly=True,
            title="demo",
            invented=True,
            rows=rows,
            answer=source.demo.answer,
        )
    else:
        app = Watch(
            lambda put: NodeFeeds(put, asked.nodes, asked.via, interval, [] if asked.auto else ["--no-auto"]),
            interval=interval, look=look, readonly=readonly, via=asked.via, nodes=asked.nodes, rows=rows, logs=asked.logs,
        )  # fmt: skip
    app.apply(settings)
    app.run(mouse=mouse)
    after = replace(app.settings(), ascii=settings.ascii)
    if after != settings:
        try:
            write_settings(settings_file(), after)
        except OSError as error:
            complain(f"the settings were not saved: {error.strerror}")
    return app.return_code or 0


def _run_without_screen(asked: Asked, form: str, export: str | None, ascii_only: bool, *, once: bool) -> int:
    """Prints one page or writes the metrics once, or exports metrics until stopped; returns the exit status."""
    ready = threading.Event()
    lock = threading.Lock()  # of the state, which a thread fills while others read it

    def add_record(record: dict[str, Any]) -> None:
        ready.wait()
        with lock:
            state.add_record(record)
            diagnosis.add_record(record)

    def judge() -> "list[Finding] | None":
        with lock:
            if not diagnosis.due(state):
                return None
            spins, now = diagnosis.spinning_nodes(state), state.now
        return diagnosis.run_rules(spins, now)

    # First, so that the children start while we import the rest.
    started = None if asked.recorded else _start_feeds(add_record, asked, once=once)
    from nccl_doctor.watch import metrics
    from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
    from nccl_doctor.watch.state import State

    state, diagnosis = State(), LiveDiagnosis()
    ready.set()
    followed = _follow(asked.logs, add_record, diagnosis, threads=not once)
    if started is None:
        _play(add_record, asked.replay)
    else:
        diagnosis.prepare()
        _wait_for_samples(state, lock, started[1], len(asked.nodes))
    clock: Callable[[], float] = (lambda: state.now) if asked.recorded else time.time
    if export is not None and not once:
        _export(export, state, lock, judge, asked.interval or 1.0, clock)
        return 0
    if started is not None and asked.auto:
        _wait_for_looks(state, lock)
    if followed is not None:
        followed.look_once()
    with lock:
        findings = diagnosis.diagnose(state)
        if export is None:
            status = _print_page(state, findings, clock(), form, ascii_only)
        else:
            status = 0
            _write_metrics(export, metrics.render_metrics(state, findings, clock(), judged=True))
    if started is not None:
        started[0].stop()
    return status


def _wait_for_samples(state: "State", lock: threading.Lock, complete: set[tuple[str, str]], nodes: int) -> None:
    """Wait until two samples of each kind arrived, and ranks were seen for long enough to know whether they move."""
    end = time.monotonic() + FIRST_SAMPLES + (10 if nodes else 0)
    while time.monotonic() < end:
        with lock:
            if len(complete) >= 4 * max(nodes, 1) and state.watched_ranks():
                return
        time.sleep(0.02)


def _wait_for_looks(state: "State", lock: threading.Lock) -> None:
    """Wait until the jobs whose ranks do not move were looked at twice."""
    end = time.monotonic() + LOOKS
    while time.monotonic() < end:
        with lock:
            if not state.still_ranks():
                return
        time.sleep(0.05)


def _print_page(state: "State", findings: "list[Finding]", now: float, form: str, ascii_only: bool) -> int:
    """Prints the state and the findings; returns 1 where a job stopped or an error was found."""
    from nccl_doctor.watch import snapshot

    width = terminal_size.columns()
    emit(
        snapshot.render_json(state, findings, now)
        if form == "json"
        else snapshot.render_text(state, findings, now, width, ascii_only)
    )
    stopped = any(job.state == "stopped" for job in state.jobs.values())
    return int(stopped or any(finding.severity == "error" for finding in findings))


def _follow(logs: tuple[str, ...], put: Any, diagnosis: "LiveDiagnosis", *, threads: bool) -> "LogSource | None":
    """Returns what follows the logs, started where it goes on in threads; None where there are none."""
    if not logs:
        return None
    from nccl_doctor.watch.sources.logs import LogSource

    source = LogSource(put, diagnosis.set_log_findings, complain, logs)
    if threads:
        source.start()
    return source


def _play(add_record: "Callable[[dict[str, Any]], None]", replay: Path | None) -> None:
    """Add all records of a recording, or of the demo."""
    from nccl_doctor.watch.sources.demo import Demo
    from nccl_doctor.watch.sources.replay import Replay

    if replay is not None:
        recording = Replay(add_record, replay)
        for problem in recording.problems:
            complain(f"skipped {problem}")
        recording.seek(recording.end_time)
        return
    invented = Demo()
    for _ in range(DEMO_SECONDS):
        for record in invented.step():
            add_record(record)


def _start_feeds(
    add_record: "Callable[[dict[str, Any]], None]", asked: Asked, *, once: bool
) -> "tuple[NodeFeeds, set[tuple[str, str]]]":
    """Start the feeds; returns them, and the nodes and kinds of which two samples arrived, a set that grows.

    Two samples are needed because counters become rates.
    """
    from nccl_doctor.watch.sources.feed import NodeFeeds

    seen: set[tuple[str, str]] = set()
    twice: set[tuple[str, str]] = set()

    def add_and_count(record: dict[str, Any]) -> None:
        add_record(record)
        key = (str(record.get("hostname")), str(record.get("kind")))
        if key in seen:
            twice.add(key)
        seen.add(key)
        if record.get("kind") == "gone":
            twice.update((key[0], kind) for kind in ("gpu", "port", "host", "process"))

    interval = min(asked.interval or 1.0, ONCE_EVERY if once else 1.0)
    options = ["--no-auto"] if not asked.auto else ["--eager"] if once else []
    source = NodeFeeds(add_and_count, asked.nodes, asked.via, interval, options)
    source.start()
    return source, twice


def _write_metrics(target: str, page: str) -> None:
    from nccl_doctor.watch import exporter

    try:
        exporter.write_file(Path(target), page)
    except OSError as error:
        raise UsageProblem(f"cannot write {target}: {error.strerror}") from None


def _export(
    target: str,
    state: "State",
    lock: threading.Lock,
    judge: "Callable[[], list[Finding] | None]",
    interval: float,
    clock: "Callable[[], float]",
) -> None:
    """Serve or write metrics until stopped; `clock` is that of the records."""
    from nccl_doctor.watch import exporter, metrics

    findings: list[Finding] = []
    judged = [False]

    def page() -> str:
        with lock:
            return metrics.render_metrics(state, findings, clock(), judged=judged[0])

    name, _, where = target.partition(":")
    server = None
    if name == "prometheus":
        try:
            address = exporter.parse_address(where)
            server = exporter.serve(address, page)
        except (OSError, ValueError, OverflowError) as error:
            raise UsageProblem(
                f"cannot listen on {where or exporter.PORT}: {getattr(error, 'strerror', None) or error}"
            ) from None
        complain(f"metrics on http://{address[0]}:{address[1]}/metrics; press Ctrl-C to stop")
    elif not target.endswith(_METRICS_FILE):
        raise UsageProblem(f"--export takes prometheus, prometheus:PORT or a file that ends in {_METRICS_FILE}")
    try:
        while True:
            try:
                if (found := judge()) is not None:
                    findings[:], judged[0] = found, True
            except Exception as error:  # a node can send anything; the values must go on
                judged[0] = False
                complain(f"the rules failed: {type(error).__name__}: {error}")
            if server is None:
                _write_metrics(target, page())
            time.sleep(max(interval, 5.0))
    except KeyboardInterrupt:
        return
