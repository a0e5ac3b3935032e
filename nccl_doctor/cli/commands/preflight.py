"""`nccl-doctor preflight`: is this node fit for the job."""

import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_doctor.cli import prologue, slurm
from nccl_doctor.cli.output import complain, emit, write_file
from nccl_doctor.cli.site import site_rules
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.node.runtime.root import Root

STATUS = {"fit": 0, "drain": 1, "job": 1, "unknown": 3}
FORMATS = ("text", "json", "prometheus", "facts")
WIDTH = 100  # of text that goes into a file


@click.command("preflight")
@click.option(
    "--for", "caller", type=click.Choice(list(prologue.PROLOGUES)), help="Exit status and words for this caller."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write there, replaced in one step."
)
@click.option("--expect", type=click.Path(path_type=Path), metavar="FILE", help="What the site expects of this node.")
@click.option("--learn", type=click.Path(path_type=Path), metavar="FILE", help="Write such a file from this node.")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Seconds for all of it."
)
@click.option("--only", metavar="NAMES", help="Only these collectors, separated by commas.")
@click.option("--deep", is_flag=True, help="Also what takes longer: writes to mounts, asks build tools.")
@click.option("--peers", metavar="NODES", help="Log in to these nodes with ssh, as mpirun would.")
@click.option(
    "--root", type=click.Path(path_type=Path), metavar="DIR|FILE", help="Read a tree of a node that --save kept."
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE.tar.zst", help="Keep what was read as such a tree."
)
@click.option("--redact", is_flag=True, help="Without addresses, names of users and secrets in what --save keeps.")
@click.option(
    "--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder of what is remembered; - for none."
)
@click.option("--caller", "name", metavar="NAME", help="Whose counters are compared; of --for and --format otherwise.")
@click.option("--nodes", metavar="NODES", help="Ask these nodes and compare them.")
@click.option(
    "--via", default="ssh", show_default=True, help="ssh, srun, or a command in which %host stands for a node."
)
@click.option("--strict", is_flag=True, help="With --for: a job that cannot work, or what is unknown, fails too.")
@click.option("--no-drain", is_flag=True, help="With --for slurm: never call scontrol.")
@click.option("--resume", is_flag=True, help="With --for slurm: give back a fit node that we drained.")
@click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Further rules; may be repeated.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Parameters, severities, rules off.")
@click.option("-v", "--verbose", is_flag=True, help="Notes too, all evidence, and why it matters.")
def command(
    caller: str | None, form: str, output: Path | None, expect: Path | None, learn: Path | None, timeout: float,
    only: str | None, deep: bool, peers: str | None, root: Path | None, save: Path | None, redact: bool,
    state: Path | None, name: str | None, nodes: str | None, via: str, strict: bool, no_drain: bool, resume: bool,
    rules_dirs: tuple[str, ...], config: Path | None, verbose: bool,
) -> int:  # fmt: skip
    """Say whether this node is fit for the job, in about a second.

    One of: fit; drain (the node is broken); job (the node is fine, this job cannot work as launched); unknown (it could
    not look). Exit status 0 fit, 1 drain or job, 2 wrong usage, 3 unknown or our own failure; --for changes it to what
    that caller expects.
    """
    from nccl_doctor.app import preflight
    from nccl_doctor.facts import wire
    from nccl_doctor.node.runtime import expectations
    from nccl_doctor.node.runtime import state as remembered
    from nccl_doctor.rules import loader, schema
    from nccl_doctor.rules.site_config import Config

    if name is not None and not remembered.is_name(name):
        raise UsageProblem("--caller takes small letters, digits and hyphens")
    settings = Config.read(config) if config is not None else None
    names = _collectors(only)
    wanted = expectations.read(expect) if expect is not None else {}
    if nodes is not None:
        from nccl_doctor.app import fleet

        facts = fleet.collect(fleet.names(nodes), via, _command(timeout, only, deep), timeout)
    else:
        with ExitStack() as stack:
            options = {"deep": deep, "peers": _peers(peers), "expect": wanted}
            facts = preflight.look(_root(stack, root, save, redact, options), names, preflight.left(timeout))
    expectations.add(facts, wanted)
    if learn is not None:
        write_file(learn, expectations.learn(facts).encode())
    if form == "facts":
        return _put(wire.dump(facts), output)
    if nodes is None and root is None and str(state) != "-":
        with remembered.opened(state or remembered.place()) as memory:
            remembered.remember_counters(facts, memory, name or _caller(caller, form), preflight.boot_id())
        if memory.problem and state is not None:
            complain(memory.problem)
    folders = site_rules(rules_dirs)
    for problem in loader.load_usable(folders, schema.NODE).problems:
        complain(f"rule left out: {problem}")
    report = preflight.report_of(facts, rules_dirs=folders, config=settings)
    if caller is None:
        _put(_text(form, report, verbose, output is not None), output)
        return STATUS[report.fitness]
    chosen = prologue.PROLOGUES[prologue.of_slurm(os.environ) if caller == "slurm" else caller]
    _put(chosen.say(report), output)
    if chosen.caller in ("slurm", "slurm-health") and not no_drain:
        _tell_slurm(report, resume)
    return prologue.status(chosen, report, strict)


def _caller(caller: str | None, form: str) -> str:
    """Whose counters these are: each program that calls us sees every growth of a counter once."""
    if caller == "slurm":
        script = os.environ.get("SLURM_SCRIPT_CONTEXT", "").partition("_")[0]  # prolog_slurmd, epilog_slurmd
        return f"slurm-{script}" if script in ("prolog", "epilog") else "slurm"
    return caller or ("exporter" if form == "prometheus" else "hand")


def _tell_slurm(report: "Report", resume: bool) -> None:
    problem = None
    if report.fitness == "drain":
        problem = slurm.drain(slurm.node_name(os.environ), prologue.reason(report))
    elif report.fitness == "fit" and resume:
        problem = slurm.resume(slurm.node_name(os.environ))
    if problem:
        complain(problem)


def _collectors(only: str | None) -> list[str]:
    from nccl_doctor.node.runtime.collect import COLLECTORS

    names = [name for name in (only or "").replace("-", "_").split(",") if name] or list(COLLECTORS)
    if unknown := set(names) - {*COLLECTORS, "ssh"}:
        raise UsageProblem(f"--only: no collector {', '.join(sorted(unknown))}; there are {', '.join(COLLECTORS)}")
    return names


def _peers(text: str | None) -> list[str]:
    if text is None:
        return []
    from nccl_doctor.app import fleet

    return fleet.names(text)


def _command(timeout: float, only: str | None, deep: bool) -> list[str]:
    """What is run on each of several nodes."""
    return [
        "preflight",
        "--format=facts",
        "--state=-",
        f"--timeout={timeout:g}",
        *([f"--only={only}"] if only else []),
        *(["--deep"] if deep else []),
    ]


def _root(stack: ExitStack, root: Path | None, save: Path | None, redact: bool, options: dict[str, Any]) -> "Root":
    from nccl_doctor.node.runtime import tree
    from nccl_doctor.node.runtime.recording import Recorder
    from nccl_doctor.node.runtime.redact import redactor
    from nccl_doctor.node.runtime.root import Root

    if root is not None:
        if save is not None:
            raise UsageProblem("--save keeps a live node, --root reads a kept one; give one of them")
        if not root.exists():
            raise UsageProblem(f"{root}: no such file or folder")
        return Root(stack.enter_context(tree.opened(root)), **options)
    if save is None:
        return Root(**options)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nccl-doctor-")))
    stack.callback(tree.pack, folder, save)
    return Recorder(folder, redactor(os.urandom(16)) if redact else None, **options)


def _text(form: str, report: "Report", verbose: bool, file: bool) -> str:
    import importlib

    from nccl_doctor.reporters import Options

    module = {"text": "node", "json": "json_report", "prometheus": "prometheus"}[form]
    color = not file and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size((80, 24)).columns if not file else WIDTH
    text: str = importlib.import_module(f"nccl_doctor.reporters.{module}").render(
        report, Options(width=width, verbose=verbose, color=color)
    )
    return text


def _put(text: str, output: Path | None) -> int:
    """Write to stdout, or replace a file in one step, as Prometheus wants it."""
    if output is None:
        emit(text)
        return 0
    part = output.with_name(f".{output.name}.{os.getpid()}")
    write_file(part, text.encode("utf-8", "replace"))
    try:
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageProblem(f"cannot write {output}: {error.strerror}") from None
    return 0
