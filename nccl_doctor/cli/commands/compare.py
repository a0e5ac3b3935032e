"""`nccl-doctor compare`: shows what changed between two runs."""

import importlib
from pathlib import Path
from typing import Any

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.options import (
    display_options,
    exit_status,
    limit_option,
    progress_bar,
    refuse_overwriting,
    rule_options,
    terminal_options,
)
from nccl_doctor.cli.output import complain, emit, emit_bytes, write_file
from nccl_doctor.cli.site import rule_folders
from nccl_doctor.reporters import Options

FORMATS = ("terminal", "json", "markdown")
SUFFIXES = {".json": "json", ".md": "markdown"}


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: by the suffix of FILE, else terminal.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the comparison to FILE.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Ignore smaller changes of a speed.",
)
@limit_option()
@rule_options("; a lower speed is a warning")
@display_options("Show all changes, with the lines that show them.")
def command(
    before: str,
    after: str,
    form: str | None,
    output: Path | None,
    tolerance: float,
    fail_on: str,
    rules_dirs: tuple[str, ...],
    config: Path | None,
    verbose: bool,
    color: str,
    width: int | None,
) -> int:
    """Show what changed between two runs: findings, speed, transports, versions, settings, nodes.

    A and B are inputs of `analyze`: logs, folders, archives, saved facts, or node trees from `preflight --save`.
    A is the good run.
    """
    form = form or (SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal")
    if output is not None:
        refuse_overwriting(output, (before, after))
    with progress_bar() as progress:
        comparison, problems = backend.run_comparison(
            (before, after), rule_folders(rules_dirs), config, tolerance / 100, progress
        )
    for problem in problems:
        complain(problem)
    reporter: Any = importlib.import_module(f"nccl_doctor.reporters.comparison_{form}")
    if output is not None:
        options = Options(width=width or 80, verbose=verbose, color=color == "always")
        write_file(output, reporter.render(comparison, options).encode("utf-8", "replace"))
    elif form == "terminal":
        emit(reporter.render(comparison, terminal_options(width, verbose, color)))
    else:
        emit_bytes(reporter.render(comparison, Options()).encode("utf-8", "replace"))
    return exit_status(comparison.verdict, fail_on)
