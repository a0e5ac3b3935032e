"""`nccl-doctor compare`: shows what changed between two runs."""

from functools import partial
from pathlib import Path

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.options import (
    display_options,
    exit_status,
    limit_option,
    progress_bar,
    refuse_overwriting,
    rule_options,
)
from nccl_doctor.cli.output import complain, show
from nccl_doctor.cli.site import rule_folders
from nccl_doctor.cli.value_types import PATH, NumberRange
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.reporters.comparison import PAIR, RUNS, SUFFIXES, render


@click.command("compare")
@click.argument("paths", nargs=-1, required=True, metavar="A B...")
@click.option(
    "--format",
    "form",
    type=click.Choice(RUNS),
    help="Default: by the suffix of FILE, else terminal. csv is a table of three runs or more.",
)
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write the comparison to FILE.")
@click.option(
    "--tolerance",
    type=NumberRange(0, 100),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Ignore smaller changes of a speed.",
)
@click.option(
    "--by",
    default="",
    metavar="NAME",
    help="Sort three runs or more by the measure with NAME in its name; default: speed.",
)
@limit_option()
@rule_options("; a lower speed is a warning")
@display_options("Show all changes, with the lines that show them.")
def command(
    paths: tuple[str, ...],
    form: str | None,
    output: Path | None,
    tolerance: float,
    by: str,
    fail_on: str,
    rules_dirs: tuple[str, ...],
    config: Path | None,
    verbose: bool,
    color: str,
    width: int | None,
) -> int:
    """Show what changed between runs: findings, speed, transports, versions, settings, nodes.

    A and B are inputs of `analyze`: logs, folders, archives, saved facts, or node trees from `preflight --save`.
    A is the good run. Three runs or more become a table: best first, with what was chosen otherwise than in A.
    """
    form = form or (SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal")
    if len(paths) < 2:
        raise UsageProblem("compare needs two runs or more")
    if len(paths) == 2 and form not in PAIR:
        raise UsageProblem(f"two runs have no {form}; the formats are {', '.join(PAIR)}")
    if len(paths) == 2 and by:
        raise UsageProblem("--by needs three runs or more")
    if output is not None:
        refuse_overwriting(output, paths)
    with progress_bar() as progress:
        comparison, problems = backend.run_comparison(
            paths, rule_folders(rules_dirs), config, tolerance / 100, by, form in ("html", "markdown"), progress
        )
    for problem in problems:
        complain(problem)
    show(partial(render, form, comparison), form, output, verbose, color, width)
    return exit_status(comparison.verdict, fail_on)
