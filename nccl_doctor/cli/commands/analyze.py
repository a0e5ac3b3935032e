"""`nccl-doctor analyze`: logs in, one report out."""

from pathlib import Path

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.options import fails, judged, keep_inputs, progressing, screen, shown
from nccl_doctor.cli.output import complain, emit, emit_bytes, write_file
from nccl_doctor.cli.site import site_rules
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.reporters import FORMATS, SUFFIXES, Options, render

SQLITE = b"SQLite format 3\0"


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), help="Default: what FILE ends in, else terminal.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the report there.")
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE.db", help="Keep the facts as an SQLite file.")
@judged()
@shown("All findings in full, not only one screen.")
def command(
    paths: tuple[str, ...],
    form: str | None,
    output: Path | None,
    fail_on: str,
    save: Path | None,
    rules_dirs: tuple[str, ...],
    config: Path | None,
    verbose: bool,
    color: str,
    width: int | None,
) -> int:
    """Say which fault logs show, where, why, and what to do next.

    PATH is a log of any launcher, a folder of logs, an archive, a compressed file, facts that --save kept, or - for
    standard input. What it is, is recognised by its content.
    """
    form = form or (SUFFIXES.get(output.suffix.lower(), "terminal") if output else "terminal")
    for target in filter(None, (output, save)):
        keep_inputs(target, paths)
    if save is not None:
        _keep_foreign(save)
    with progressing() as progress:
        report, facts, problems = backend.analyzed(paths, site_rules(rules_dirs), config, progress)
    for problem in problems:
        complain(problem)
    if save is not None:
        try:
            facts.save(save)
        except Exception as error:  # SQLite's own kinds, and those of the file system
            raise UsageProblem(f"cannot write {save}: {error}") from None
    if output is not None:
        options = Options(width=width or 80, verbose=verbose, color=color == "always")
        write_file(output, render(form, report, options).encode("utf-8", "replace"))
    elif form == "terminal":
        emit(render(form, report, screen(width, verbose, color)))
    else:
        emit_bytes(render(form, report).encode("utf-8", "replace"))
    return fails(report.verdict, fail_on)


def _keep_foreign(target: Path) -> None:
    """Raises UsageProblem where `save` would replace a file that is no database."""
    try:
        with target.open("rb") as stream:
            head = stream.read(len(SQLITE))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageProblem(f"cannot write {target}: {error.strerror}") from None
    if head and head != SQLITE:
        raise UsageProblem(f"{target} exists and is no database; choose another name")
