"""What commands with a report share: options, the exit status, what a terminal shows, and the bar while they read."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.levels import SEVERITIES
from nccl_doctor.reporters import Options

PROGRESS_FROM = 50_000_000  # bytes of input
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def judged(more: str = "") -> Decorator:
    """The options `fail_on`, `rules_dirs` and `config`; `more` is said behind the help of the first."""
    return _all(
        click.option(
            "--fail-on",
            type=click.Choice([*SEVERITIES, "never"]),
            default="error",
            show_default=True,
            help=f"Exit with status 1 from this severity on{more}.",
        ),
        click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Further rules; may be repeated."),
        click.option(
            "--config", type=click.Path(path_type=Path), metavar="FILE", help="Parameters, severities, rules off."
        ),
    )


def shown(verbose: str) -> Decorator:
    """The options `verbose`, whose help is given, `color` and `width`."""
    return _all(
        click.option("-v", "--verbose", is_flag=True, help=verbose),
        click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
        click.option(
            "--width", type=click.IntRange(30, 500), help="Cells in a line; default: the terminal's, else 80."
        ),
    )


def _all(*options: Decorator) -> Decorator:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def fails(verdict: str, fail_on: str) -> int:
    """The exit status: 1 where the verdict is a severity at or above the one that fails."""
    return int(verdict in SEVERITIES[: SEVERITIES.index(fail_on) + 1 if fail_on in SEVERITIES else 0])


def screen(width: int | None, verbose: bool, color: str) -> Options:
    """What stdout can show."""
    size = shutil.get_terminal_size((80, 24))  # COLUMNS and LINES come first
    try:
        "·…".encode(sys.stdout.encoding or "utf-8")
        plain = False
    except (UnicodeEncodeError, LookupError):
        plain = True
    return Options(width or size.columns, max(size.lines, 24), verbose, colored(color, sys.stdout.isatty()), plain)


def colored(choice: str, terminal: bool) -> bool:
    """Whether to colour: the option, then NO_COLOR, then FORCE_COLOR, then whether a terminal looks."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


def keep_inputs(target: Path, paths: Sequence[str]) -> None:
    """Raises UsageProblem where an output would replace an input."""
    if target.resolve() in {Path(path).resolve() for path in paths}:
        raise UsageProblem(f"{target} is an input; choose another name for the output")


@contextmanager
def progressing() -> Iterator[Callable[[int, int], None] | None]:
    """A callback that draws a bar on stderr for large inputs; None where nobody would see it."""
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
