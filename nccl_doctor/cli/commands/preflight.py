"""`nccl-doctor preflight`: is this node fit for the job."""

import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_doctor.cli import prologue
from nccl_doctor.cli.fail_open import DRAIN, JOB, syslog
from nccl_doctor.cli.output import complain, emit, write_file
from nccl_doctor.cli.site import preflight_rules, refuse
from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.node.runtime.root import Root

# Paths are of the type Path: click.Path looks at the file, which may lie on a mount that hangs.
STATUS = {"fit": 0, "drain": DRAIN, "job": JOB, "unknown": 3}
FORMATS = ("text", "json", "prometheus", "facts")
WIDTH = 100  # of text that goes into a file
TEMPORARY = "/tmp"  # for root, whatever TMPDIR of a job says


@click.command("preflight")
@click.option(
    "--for", "caller", type=click.Choice(list(prologue.PROLOGUES)), help="Exit status and words for this caller."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write there, replaced in one step.")
@click.option("--expect", type=Path, metavar="FILE", help="What the site expects of this node.")
@click.option("--learn", type=Path, metavar="FILE", help="Write such a file from this node.")
@click.option("--timeout", type=click.FloatRange(0.1, 600), help="Seconds for all of it; 5 if nothing else says so.")
@click.option("--only", metavar="NAMES", help="Only these collectors, separated by commas.")
@click.option("--deep", is_flag=True, help="Also what takes minutes: writes to mounts, DCGM, bandwidth tests.")
@click.option("--peers", metavar="NODES", help="Log in to these nodes with ssh, as mpirun would.")
@click.option("--root", type=Path, metavar="DIR|FILE", help="Read a tree of a node that --save kept.")
@click.option("--save", type=Path, metavar="FILE.tar.zst", help="Keep what was read as such a tree.")
@click.option("--redact", is_flag=True, help="Without addresses, names of users and secrets in what --save keeps.")
@click.option("--state", type=Path, metavar="DIR", help="Folder of what is remembered; - for none.")
@click.option("--caller", "name", metavar="NAME", help="Whose counters are compared; of --for and --format otherwise.")
@click.option("--forget", metavar="RULE|all", help="Forget a finding that was to stay until a reset, and stop.")
@click.option("--with-connection", is_flag=True, hidden=True, help="End when the standard input ends.")
@click.option("--nodes", metavar="NODES", help="Ask these nodes and compare them.")
@click.option(
    "--via", default="ssh", show_default=True, help="ssh, srun, or a command in which %host stands for a node."
)
@click.option(
    "--observe",
    "--no-drain",
    "observe",
    is_flag=True,
    help="Report what would be done; drain nothing, fail no job, end with 0.",
)
@click.option(
    "--settings",
    "settings_file",
    type=Path,
    metavar="FILE",
    help="The site's settings; /etc/nccl-doctor/preflight.toml if not given.",
)
@click.option("--explain-config", is_flag=True, help="Show each setting, its value, where it comes from, and stop.")
@click.option("--resume", is_flag=True, help="With --for slurm: give back a fit node that we drained.")
@click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Further rules; may be repeated.")
@click.option("--config", type=Path, metavar="FILE", help="Parameters, severities, rules off.")
@click.option("-v", "--verbose", is_flag=True, help="Notes too, all evidence, and why it matters.")
def command(
    caller: str | None, form: str, output: Path | None, expect: Path | None, learn: Path | None, timeout: float | None,
    only: str | None, deep: bool, peers: str | None, root: Path | None, save: Path | None, redact: bool,
    state: Path | None, name: str | None, forget: str | None, with_connection: bool, nodes: str | None, via: str, observe: bool,
    settings_file: Path | None, explain_config: bool, resume: bool, rules_dirs: tuple[str, ...], config: Path | None,
    verbose: bool,
) -> int:  # fmt: skip
    """Check whether this node is fit for the job, in about a second.

    One of: fit; drain (the node is broken); job (the node is fine, this job cannot work as launched); unknown (it could
    not look). Exit status 0 fit, 90 drain, 91 job, 2 wrong usage, 3 unknown or our own failure. With --for a scheduler only
    a verdict ends with 90 or 91: whatever else goes wrong ends with 0 and one line in syslog, so that the job runs.
    """
    from nccl_doctor.app import preflight, preflight_config
    from nccl_doctor.cli import drain
    from nccl_doctor.facts import wire
    from nccl_doctor.facts.tables import Collection
    from nccl_doctor.node.runtime import expectations
    from nccl_doctor.node.runtime import state as remembered
    from nccl_doctor.node.runtime.collect import ConnectionEnded
    from nccl_doctor.rules import loader, schema
    from nccl_doctor.rules.site_config import Config

    if name is not None and not remembered.is_name(name):
        raise UsageProblem("--caller takes small letters, digits and hyphens")
    if forget is not None:
        return _forget(forget, state or remembered.place())
    given = {"observe": observe or None, "timeout": timeout, "expect": expect and str(expect), "config": config and str(config),
             "rules": rules_dirs or None}  # fmt: skip
    site = preflight_config.load(settings_file).with_options(given)
    holds = site.settings
    if deep and timeout is None:
        holds = replace(holds, timeout=holds.deep_timeout)
    if explain_config:
        emit(preflight_config.explain(site))
        return 0
    for problem in site.problems:
        _warn(problem, caller)
    settings = Config.read(refuse(holds.config, "--config")) if holds.config else None
    names = _collectors(only)
    wanted = expectations.read(refuse(holds.expect, "--expect")) if holds.expect else {}
    if nodes is not None:
        from nccl_doctor.app import fleet

        facts = fleet.collect(fleet.names(nodes), via, _command(holds.timeout, only, deep, via), holds.timeout)
    else:
        with ExitStack() as stack:
            options = {
                "deep": holds.deep_level if deep else 0,
                "peers": _peers(peers),
                "expect": wanted,
                "commands": holds.commands,
            }
            ranks = caller == "slurm" and root is None and save is None and str(state) != "-"
            try:
                facts = preflight.look(
                    _root(stack, root, save, redact, options), names, preflight.left(holds.timeout),
                    shared=state or remembered.place() if ranks else None, connection=0 if with_connection else None,
                )  # fmt: skip
            except ConnectionEnded:
                return STATUS["unknown"]
    if form == "facts":
        return _put(wire.dump(facts), output)
    folders, problems = preflight_rules(holds.rules)
    rules = loader.load_usable(folders, schema.NODE)
    for problem in (*problems, *rules.problems):
        _warn(f"rule left out: {problem}", caller)
    clean = 0
    if nodes is not None or (root is not None and state is None) or str(state) == "-":
        expectations.add(facts, wanted)
        report = preflight.report_of(facts, rules_dirs=folders, config=settings)
    else:
        decides = holds if caller is not None else replace(holds, grace=0.0, grace_checks=1, hung_checks=0)
        memory = preflight.Memory(
            state or remembered.place(), name or _caller(caller, form), decides, preflight.check_of(facts)
        )
        judged = preflight.judge(facts, wanted, rules_dirs=folders, config=settings, memory=memory)
        report, clean = judged.report, judged.clean
        if judged.problem and (state is not None or os.geteuid() == 0):
            _warn(judged.problem, caller)
    if learn is not None:
        _put(expectations.learn(facts), learn)
    if caller is None:
        _put(_text(form, report, verbose, output is not None), output)
        return 0 if holds.observe else STATUS[report.fitness]
    chosen = prologue.PROLOGUES[prologue.of_slurm(os.environ) if caller == "slurm" else caller]
    if report.fitness == "drain" and chosen.caller != "slurm-task":
        warn = partial(_warn, caller=caller)
        drain.hold_back(report, rules.rules, chosen.caller, holds, warn)
        report.fitness = preflight.fitness(report, facts.rows(Collection))
        if report.fitness == "drain" and chosen.caller in drain.SLURM and not holds.observe:
            drain.drain(report, rules.rules, chosen.caller, holds, warn)
            report.fitness = preflight.fitness(report, facts.rows(Collection))
    status = prologue.status(chosen, report)
    if holds.observe and status in (DRAIN, JOB):
        _put("" if chosen.says_all else chosen.say(report), output)
        _warn(f"observe: would {report.fitness}: {prologue.reason(report)}", caller)
        return 0
    _put(chosen.say(report), output)
    if resume and chosen.caller in drain.SLURM and not holds.observe and clean >= holds.clean_checks:
        drain.resume(holds, partial(_warn, caller=caller))
    return status


def _forget(text: str, folder: Path) -> int:
    """Forget what is remembered of a finding, or with `all` everything."""
    from nccl_doctor.app import drain_policy, preflight
    from nccl_doctor.node.runtime import state as remembered
    from nccl_doctor.rules import loader

    rule = None if text == "all" else loader.find_rule(text)
    if rule is None and text != "all":
        raise UsageProblem(f"--forget: {text} is not a rule; give a name, an id or `all`")
    with remembered.opened(folder) as kept:
        said = drain_policy.forget(kept, rule, drain_policy.Check(preflight.boot_id(), "", time.time()))
    if kept.problem:
        raise UsageProblem(kept.problem)
    emit(f"{said}\n")
    return 0


def _warn(problem: str, caller: str | None) -> None:
    """One line on stderr, and in syslog where a scheduler called."""
    complain(problem)
    if caller is not None:
        syslog(problem)


def _caller(caller: str | None, form: str) -> str:
    """Whose counters these are: each program that calls us sees every growth of a counter once."""
    if caller == "slurm":
        script = os.environ.get("SLURM_SCRIPT_CONTEXT", "").partition("_")[0]  # prolog_slurmd, epilog_slurmd
        return f"slurm-{script}" if script in ("prolog", "epilog") else "slurm"
    return caller or ("exporter" if form == "prometheus" else "hand")


def _collectors(only: str | None) -> list[str]:
    from nccl_doctor.node.runtime.collect import COLLECTORS, MODULES

    names = [name for name in (only or "").replace("-", "_").split(",") if name] or list(COLLECTORS)
    if unknown := set(names) - set(MODULES):
        raise UsageProblem(f"--only: no collector {', '.join(sorted(unknown))}; there are {', '.join(COLLECTORS)}")
    return names


def _peers(text: str | None) -> list[str]:
    if text is None:
        return []
    from nccl_doctor.app import fleet

    return fleet.names(text)


def _command(timeout: float, only: str | None, deep: bool, via: str) -> list[str]:
    """What is run on each of several nodes."""
    return [
        "preflight",
        "--format=facts",
        "--state=-",
        f"--timeout={timeout:g}",
        *([f"--only={only}"] if only else []),
        *(["--deep"] if deep else []),
        *(["--with-connection"] if via in ("ssh", "srun") else []),
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
    folder = Path(
        stack.enter_context(
            tempfile.TemporaryDirectory(prefix="nccl-doctor-", dir=TEMPORARY if os.geteuid() == 0 else None)
        )
    )
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
    if output.exists() and not output.is_file():  # a device or a pipe
        write_file(output, text.encode("utf-8", "replace"))
        return 0
    try:
        replace_file(output, text.encode("utf-8", "replace"), 0o644)
    except OSError as error:
        raise UsageProblem(f"cannot write {output}: {error.strerror}") from None
    return 0
