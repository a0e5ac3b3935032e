"""What `nccl-doctor preflight` does with its options, step by step."""

import os
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_doctor.app import preflight, preflight_config
from nccl_doctor.cli import prologue, terminal_size
from nccl_doctor.cli.fail_open import DRAIN, JOB, ended_after, syslog
from nccl_doctor.cli.output import complain, emit, write_file
from nccl_doctor.cli.site import preflight_rules, refuse
from nccl_doctor.common.atomic_write import replace_file
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts import wire
from nccl_doctor.facts.tables import Collection
from nccl_doctor.node.runtime import expectations
from nccl_doctor.node.runtime import state as remembered
from nccl_doctor.node.runtime.collect import ConnectionEnded
from nccl_doctor.rules import loader, schema
from nccl_doctor.rules.site_config import Config

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.facts.store import Facts
    from nccl_doctor.node.runtime.root import Root

STATUS = {"fit": 0, "drain": DRAIN, "job": JOB, "unknown": 3}
WIDTH = 100  # of text that goes into a file
TEMPORARY = "/tmp"  # for root, whatever TMPDIR of a job says


@dataclass(frozen=True)
class Request:
    """The options of the command, as click read them."""

    caller: str | None
    form: str
    output: Path | None
    expect: Path | None
    learn: Path | None
    timeout: float | None
    only: str | None
    deep: bool
    peers: str | None
    root: Path | None
    save: Path | None
    redact: bool
    state: Path | None
    name: str | None
    forget: str | None
    with_connection: bool
    nodes: str | None
    via: str
    observe: bool
    settings_file: Path | None
    explain_config: bool
    resume: bool
    rules_dirs: tuple[str, ...]
    config: Path | None
    verbose: bool

    @property
    def memory(self) -> Path:
        """The state folder of this node."""
        return self.state or remembered.place()

    @property
    def forgets(self) -> bool:
        """Whether nothing is remembered: several nodes, a kept tree without a folder of its own, or `--state -`."""
        return self.nodes is not None or (self.root is not None and self.state is None) or str(self.state) == "-"

    def warn(self, problem: str) -> None:
        """One line on stderr, and in syslog where a scheduler called; on stderr not for callers that read what is printed."""
        if self.caller not in prologue.READ:
            complain(problem)
        if self.caller is not None:
            syslog(problem)


def run(request: Request) -> int:
    """The exit status: see the help of the command. Raises UsageProblem on wrong options."""
    if request.name is not None and not remembered.is_name(request.name):
        raise UsageProblem("--caller takes small letters, digits and hyphens")
    if request.forget is not None:
        return _forget(request.forget, request.memory)
    site = _site(request)
    if request.explain_config:
        emit(preflight_config.explain(site))
        return 0
    for problem in site.problems:
        request.warn(problem)
    holds = site.settings
    if request.deep and request.timeout is None:
        holds = replace(holds, timeout=holds.deep_timeout)
    config = Config.read(refuse(holds.config, "--config")) if holds.config else None
    names = _collectors(request.only)
    wanted = expectations.read(refuse(holds.expect, "--expect")) if holds.expect else {}
    is_one_node = request.nodes is None and request.root is None
    with ended_after(holds.timeout, request.caller) if is_one_node else nullcontext():
        facts = _look(request, holds, names, wanted)
        if facts is None:
            return STATUS["unknown"]
        if request.form == "facts":
            return _put(wire.dump(facts), request.output)
        return _answer(request, holds, facts, wanted, config)


def _site(request: Request) -> preflight_config.Loaded:
    """The site's settings under the options that replace some of them."""
    given = {
        "observe": request.observe or None,
        "timeout": request.timeout,
        "expect": request.expect and str(request.expect),
        "config": request.config and str(request.config),
        "rules": request.rules_dirs or None,
    }
    return preflight_config.load(request.settings_file).with_options(given)


def _look(
    request: Request, holds: preflight_config.Settings, names: list[str], wanted: dict[str, Any]
) -> "Facts | None":
    """The facts of this node, of a kept tree, or of several nodes; None where the connection that asked ended."""
    if request.nodes is not None:
        from nccl_doctor.app import fleet

        far = _command(holds.timeout, request.only, request.deep, request.via)
        return fleet.collect(fleet.names(request.nodes), request.via, far, holds.timeout)
    options = {
        "deep": holds.deep_level if request.deep else 0,
        "peers": _peers(request.peers),
        "expect": wanted,
        "commands": holds.commands,
    }
    shares = request.caller == "slurm" and request.root is None and request.save is None and str(request.state) != "-"
    with ExitStack() as stack:
        try:
            return preflight.look(
                _root(stack, request.root, request.save, request.redact, options), names, preflight.left(holds.timeout),
                shared=request.memory if shares else None, connection=0 if request.with_connection else None,
            )  # fmt: skip
        except ConnectionEnded:
            return None


def _answer(
    request: Request, holds: preflight_config.Settings, facts: "Facts", wanted: dict[str, Any], config: Config | None
) -> int:
    """Run the rules, update the state and write the answer in the caller's format."""
    folders, problems = preflight_rules(holds.rules)
    rules = loader.load_usable(folders, schema.NODE)
    for problem in (*problems, *rules.problems):
        request.warn(f"rule left out: {problem}")
    clean = 0
    if request.forgets:
        expectations.add(facts, wanted)
        report = preflight.report_of(facts, rules_dirs=folders, config=config)
    else:
        decides = holds if request.caller is not None else replace(holds, grace=0.0, grace_checks=1, hung_checks=0)
        name = request.name or _caller(request.caller, request.form)
        memory = preflight.Memory(request.memory, name, decides, preflight.check_of(facts))
        judged = preflight.judge(facts, wanted, rules_dirs=folders, config=config, memory=memory)
        report, clean = judged.report, judged.clean
        if judged.problem and (request.state is not None or os.geteuid() == 0):
            request.warn(judged.problem)
    if request.learn is not None:
        _put(expectations.learn(facts), request.learn)
    if request.caller is None:
        _put(_text(request.form, report, request.verbose, request.output is not None), request.output)
        return 0 if holds.observe else STATUS[report.fitness]
    return _answer_scheduler(request, holds, report, rules.rules, facts, clean)


def _answer_scheduler(
    request: Request, holds: preflight_config.Settings, report: "Report", rules: tuple[schema.Rule, ...], facts: "Facts",
    clean: int,
) -> int:  # fmt: skip
    """Drain, hold back or give back as the site's settings say; the status is what this scheduler understands."""
    from nccl_doctor.cli import drain

    chosen = prologue.PROLOGUES[prologue.of_slurm(os.environ) if request.caller == "slurm" else str(request.caller)]
    if holds.slurm_conf and chosen.caller in drain.SLURM:
        os.environ.setdefault("SLURM_CONF", holds.slurm_conf)
    if report.fitness == "drain" and chosen.caller != "slurm-task":
        drain.hold_back(report, rules, chosen.caller, holds, request.warn)
        report.fitness = preflight.fitness(report, facts.rows(Collection))
        if report.fitness == "drain" and chosen.caller in drain.SLURM and not holds.observe:
            drain.drain(report, rules, chosen.caller, holds, request.warn)
            report.fitness = preflight.fitness(report, facts.rows(Collection))
    status = prologue.status(chosen, report)
    if holds.observe and status in (DRAIN, JOB):
        _put("" if chosen.says_all else chosen.say(report), request.output)
        request.warn(f"observe: would {report.fitness}: {prologue.reason(report)}")
        return 0
    if status in (DRAIN, JOB):
        syslog(f"{report.fitness}: {prologue.reason(report)}")  # LSF drops what is printed, others keep it with the job
    _put(chosen.say(report), request.output)
    if request.resume and chosen.caller in drain.SLURM and not holds.observe and clean >= holds.clean_checks:
        drain.resume(holds, request.warn)
    return status


def _forget(text: str, folder: Path) -> int:
    """Forget the remembered state of a finding, or with `all` the whole state."""
    from nccl_doctor.app import drain_policy

    rule = None if text == "all" else loader.find_rule(text)
    if rule is None and text != "all":
        raise UsageProblem(f"--forget: {text} is not a rule; give a name, an id or `all`")
    with remembered.opened(folder) as kept:
        said = drain_policy.forget(kept, rule, drain_policy.Check(preflight.boot_id(), "", time.time()))
    if kept.problem:
        raise UsageProblem(kept.problem)
    emit(f"{said}\n")
    return 0


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
    """The command to run on each of several nodes."""
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
    import tempfile

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
    width = terminal_size.columns() if not file else WIDTH
    text: str = importlib.import_module(f"nccl_doctor.reporters.{module}").render(
        report, Options(width=width, verbose=verbose, color=color)
    )
    return text


def _put(text: str, output: Path | None) -> int:
    """Write to stdout, or replace a file in one step, as Prometheus wants it."""
    if output is None or str(output) == "-":
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
