"""`nccl-doctor analyze`: reads logs and writes one report."""

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccl_doctor.cli import backend, interruption
from nccl_doctor.cli.options import (
    display_options,
    exit_status,
    is_same_file,
    limit_option,
    progress_bar,
    refuse_overwriting,
    rule_options,
)
from nccl_doctor.cli.output import complain, show
from nccl_doctor.cli.site import rule_folders
from nccl_doctor.cli.value_types import PATH, NumberRange
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.reporters import FORMATS, SUFFIXES, render

if TYPE_CHECKING:
    from nccl_doctor.diagnosis.report import Report
    from nccl_doctor.facts.store import Facts

SQLITE = b"SQLite format 3\0"


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), help="Default: by the suffix of FILE, else terminal."
)
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write the report to FILE.")
@click.option("--save", type=PATH, metavar="FILE.db", help="Save the facts as an SQLite file.")
@click.option(
    "--resume",
    type=PATH,
    metavar="FILE.db",
    help="Read only what was appended to logs since the last run with this FILE.db, and save the facts there as --save does.",
)
@limit_option()
@click.option(
    "--jobs",
    "apart",
    type=click.Choice(["auto", "one", "each", "last"]),
    default="auto",
    show_default=True,
    help="Inputs are of the jobs that they show, of one job, or each of its own; or only the last job that they show. "
    "--save and --resume take them for one.",
)
@click.option(
    "--expect",
    multiple=True,
    metavar="[OPERATION=]GB/s",
    help="Bus bandwidth that nccl-tests has to reach with large messages: 350, or all_gather=330. May be repeated.",
)
@click.option(
    "--dask",
    metavar="ADDRESS|local[:N]|slurm[:JOBS]",
    help="Read plain logs with the workers of a Dask cluster, which open them by the same names. Needs nccl-doctor[cluster].",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Read what is appended to the inputs, also to new files of a folder; report when the findings change, and at Ctrl-C.",
)
@click.option(
    "--until",
    type=click.Choice(["finding"]),
    help="With --follow: end when there is a finding at or above --fail-on.",
)
@click.option(
    "--idle",
    type=NumberRange(0),
    metavar="SECONDS",
    help="With --follow: end when nothing was appended for so long.",
)
@rule_options()
@display_options("Show all findings in full, not only one screen.")
def command(
    paths: tuple[str, ...],
    form: str | None,
    output: Path | None,
    fail_on: str,
    save: Path | None,
    resume: Path | None,
    apart: str,
    expect: tuple[str, ...],
    dask: str | None,
    follow: bool,
    until: str | None,
    idle: float | None,
    rules_dirs: tuple[str, ...],
    config: Path | None,
    verbose: bool,
    color: str,
    width: int | None,
) -> int:
    """Find the fault in logs: what, where, why, and what to do next.

    PATH is a log of any launcher, a folder of logs, an archive, a compressed file, facts saved with --save, or - for
    standard input. The kind is recognised by content.
    """
    form = form or (SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal")
    _check_targets(paths, output, save, resume)
    if not follow and (until or idle is not None):
        raise UsageProblem("--until and --idle need --follow")
    if follow and dask:
        raise UsageProblem("--follow and --dask do not go together")
    if resume is not None and (follow or dask):
        raise UsageProblem("--resume goes with neither --follow nor --dask")
    apart = "one" if save is not None or resume is not None else apart
    folders = rule_folders(rules_dirs)

    def tell(report: "Report") -> None:
        show(partial(render, form, report), form, output, verbose, color, width)

    if follow:
        ends = until and (lambda report: exit_status(report.verdict, fail_on) == 1)
        with interruption.stopping_reading():
            report, facts = backend.run_following(
                paths, folders, config, apart, form == "html", tell, ends or (lambda _: False), idle, expect
            )
    else:
        with progress_bar() as progress, interruption.stopping_reading():
            report, facts, problems = backend.run_analysis(
                paths, folders, config, progress, apart, form == "html", dask, expect, resume
            )
        for problem in problems:
            complain(problem)
    if save is not None:
        _save(facts, save)
    if not follow:
        tell(report)
        if interruption.was_received():
            return interruption.status()
    return exit_status(report.verdict, fail_on)


def _check_targets(paths: tuple[str, ...], output: Path | None, save: Path | None, resume: Path | None) -> None:
    """Raises UsageProblem where a file to be written is an input, one of another kind, or written twice."""
    named = {
        option: path for option, path in (("-o", output), ("--save", save), ("--resume", resume)) if path is not None
    }
    for option, target in named.items():
        refuse_overwriting(target, paths)
        if option != "-o":
            if str(target) == "-":
                raise UsageProblem(f"{option} takes the name of a file: a fact base is not a stream")
            _refuse_foreign_file(target)
    for (one, path), (other, second) in combinations(named.items(), 2):
        if is_same_file(path, second):
            raise UsageProblem(f"{one} and {other} both name {path}; choose two names")


def _save(facts: "Facts", target: Path) -> None:
    try:
        facts.save(target)
    except OSError as error:
        raise UsageProblem(f"cannot write {target}: {error.strerror}") from None
    except Exception as error:  # of SQLite
        raise UsageProblem(f"cannot write {target}: {error}") from None


def _refuse_foreign_file(target: Path) -> None:
    """Raises UsageProblem if `--save` would replace a file that is not an SQLite database, such as /dev/null."""
    if target.exists() and not target.is_file():
        raise UsageProblem(f"cannot write {target}: it is not a regular file")
    try:
        with target.open("rb") as stream:
            head = stream.read(len(SQLITE))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageProblem(f"cannot write {target}: {error.strerror}") from None
    if head and head != SQLITE:
        raise UsageProblem(f"{target} exists and is not an SQLite database; choose another name")
