"""`nccl-doctor bundle`: writes copies of inputs for a bug report, without names, addresses and secrets."""

import io
from pathlib import Path

import click

from nccl_doctor.cli import backend, standard_input
from nccl_doctor.cli.options import refuse_overwriting
from nccl_doctor.cli.output import complain, emit, write_file
from nccl_doctor.cli.value_types import PATH
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.common.printable import printable

SHOWN = 10  # replaced words of a kind


@click.command("bundle")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-o", "--output", type=PATH, metavar="FILE.tar.gz", required=True)
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("-v", "--verbose", is_flag=True, help="List everything that is replaced.")
def command(paths: tuple[str, ...], output: Path, yes: bool, verbose: bool) -> int:
    """Copy logs into an archive for others, with names, addresses and secrets replaced.

    Hosts, users, addresses, folders, serial numbers and secrets are replaced, equal ones by equal words, so that `analyze`
    finds the same in the copies. What is replaced is shown before anything is written; look through the archive
    before you send it. Text that a program printed in words of its own is not understood.
    """
    if str(output) == "-":
        raise UsageProblem("-o takes the name of a file: what was replaced is printed to standard output")
    refuse_overwriting(output, paths)
    bundle = backend.make_bundle(paths)
    try:
        emit(_listed(bundle.redactor.replaced, None if verbose else SHOWN))
        for problem in bundle.left_out:
            complain(f"left out: {problem}")
        if not yes:
            if not standard_input.is_terminal():
                raise UsageProblem("nothing was written; --yes writes without asking")
            click.confirm(f"Write {len(bundle.copies)} files to {output}?", abort=True, err=True)
        written = io.BytesIO()
        bundle.write(written)
        write_file(output, written.getvalue())
    finally:
        bundle.close()
    return 0


def _listed(replaced: dict[str, dict[str, str]], most: int | None) -> str:
    """What became what, by kind. Secrets are counted only."""
    lines = []
    for kind, words in replaced.items():
        lines.append(f"{kind}: {len(words)} replaced")
        if kind != "secret":
            shown = list(words.items())[:most]
            lines += [f"  {printable(old)} -> {new}" for old, new in shown]
            lines += [f"  … and {len(words) - len(shown)} more (-v)"] if len(shown) < len(words) else []
    return "\n".join(lines or ["nothing is to be replaced"]) + "\n"
