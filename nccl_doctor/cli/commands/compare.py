"""`nccl-doctor compare`: what changed between two runs."""

import importlib
from pathlib import Path
from typing import Any

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.options import fails, judged, keep_inputs, progressing, screen, shown
from nccl_doctor.cli.output import complain, emit, emit_bytes, write_file
from nccl_doctor.cli.site import site_rules
from nccl_doctor.reporters import Options

FORMATS = ("terminal", "json", "markdown")
SUFFIXES = {".json": "json", ".md": "markdown"}


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: what FILE ends in, else terminal.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the comparison there.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Smaller changes of a speed do not count.",
)
@judged("; a lower speed is a warning")
@shown("All changes, with the lines that show them.")
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
    """Say what changed between two runs: findings, speed, transports, versions, settings, nodes.

    A and B are what `analyze` reads: logs, folders, archives, kept facts, or trees that `preflight --save` kept of two
    nodes. A is the run that went well.
    """
    form = form or (SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal")
    if output is not None:
        keep_inputs(output, (before, after))
    with progressing() as progress:
        comparison, problems = backend.compared(
            (before, after), site_rules(rules_dirs), config, tolerance / 100, progress
        )
    for problem in problems:
        complain(problem)
    reporter: Any = importlib.import_module(f"nccl_doctor.reporters.comparison_{form}")
    if output is not None:
        options = Options(width=width or 80, verbose=verbose, color=color == "always")
        write_file(output, reporter.render(comparison, options).encode("utf-8", "replace"))
    elif form == "terminal":
        emit(reporter.render(comparison, screen(width, verbose, color)))
    else:
        emit_bytes(reporter.render(comparison, Options()).encode("utf-8", "replace"))
    return fails(comparison.verdict, fail_on)
