"""Shared by commands that print a report: options, exit status, terminal size and colour, progress bar."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from nccl_doctor.cli import terminal_size
from nccl_doctor.cli.value_types import PATH
from nccl_doctor.common import budgets
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.reporters import Options

PROGRESS_FROM = 50_000_000  # bytes of input
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def rule_options(more: str = "") -> Decorator:
    """Add the options `fail_on`, `rules_dirs` and `config`; `more` is appended to the help of --fail-on."""
    return _combined(
        click.option(
            "--fail-on",
            type=click.Choice([*SEVERITIES, "never"]),
            default="error",
            show_default=True,
            help=f"Exit with status 1 for findings of this severity or worse{more}.",
        ),
        click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Add rules; may be repeated."),
        click.option(
            "--config",
            type=PATH,
            metavar="FILE",
            help="Set parameters and severities of rules, or turn rules off.",
        ),
    )


def limit_option() -> Decorator:
    """Add the option `--limit`, which sets the budgets of this process."""
    names = ", ".join(f"{name} ({budget.value}: {budget.of})" for name, budget in budgets.BUDGETS.items())
    return click.option(
        "--limit", multiple=True, metavar="NAME=NUMBER", expose_value=False, callback=_set_limits,
        help=f"Read more of an input, or less, than is usual. The limits: {names}.",
    )  # fmt: skip


def _set_limits(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> None:
    budgets.reset()
    for value in values:
        name, _, number = value.partition("=")
        if not re.fullmatch(r"[0-9]{1,18}", number):
            raise click.BadParameter(f"{value!r} is not NAME=NUMBER")
        try:
            budgets.set_limit(name, int(number))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None


def display_options(verbose: str) -> Decorator:
    """Add the options `verbose`, with this help, `color` and `width`."""
    return _combined(
        click.option("-v", "--verbose", is_flag=True, help=verbose),
        click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
        click.option(
            "--width",
            type=click.IntRange(terminal_size.NARROWEST, terminal_size.WIDEST),
            help="Columns of a line; default: those of the terminal, else 80.",
        ),
    )


def _combined(*options: Decorator) -> Decorator:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def exit_status(verdict: str, fail_on: str) -> int:
    """Returns 1 if the verdict is a severity at or above `fail_on`, else 0."""
    return int(verdict in SEVERITIES[: SEVERITIES.index(fail_on) + 1 if fail_on in SEVERITIES else 0])


def terminal_options(width: int | None, verbose: bool, color: str) -> Options:
    """Returns reporter options for stdout: its size, whether it takes colour, and whether only ASCII."""
    lines = shutil.get_terminal_size((80, 24)).lines
    try:
        "·…".encode(sys.stdout.encoding or "utf-8")
        plain = False
    except (UnicodeEncodeError, LookupError):
        plain = True
    return Options(
        width or terminal_size.columns(), max(lines, 24), verbose, use_color(color, sys.stdout.isatty()), plain
    )


def use_color(choice: str, terminal: bool) -> bool:
    """Returns whether to colour: the option decides, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


def refuse_overwriting(target: Path, paths: Sequence[str]) -> None:
    """Raises UsageProblem if the output file is one of the inputs."""
    if any(is_same_file(target, Path(path)) for path in paths):
        raise UsageProblem(f"{target} is an input; choose another name for the output")


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file, or will be; also in a current folder that was removed, and of links in a circle."""
    with suppress(OSError):
        return one.samefile(other)
    with suppress(OSError):
        return one.name == other.name and one.parent.samefile(other.parent)
    return False


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Yields a callback that draws a progress bar on stderr for large inputs; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    with Progress(
        "reading", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = None

        def advance(done: int, total: int) -> None:
            nonlocal task
            if total >= PROGRESS_FROM:
                if task is None:
                    task = bar.add_task("reading", total=total)
                bar.update(task, completed=done)

        yield advance
