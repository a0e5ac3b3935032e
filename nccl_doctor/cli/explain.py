"""`nccl-doctor explain`: the words of a rule, or the meaning of something pasted."""

import sys

import click

from nccl_doctor.cli.output import emit
from nccl_doctor.errors import UsageProblem


@click.command("explain")
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
def command(text: tuple[str, ...]) -> None:
    """Say what a rule, a log line, a variable or a code means.

    TEXT is the id or name of a rule, a line of a log, a variable such as NCCL_IB_HCA, an Xid, a completion status or a
    result code; - reads it from standard input.
    """
    from nccl_doctor.explain import explain

    wanted = sys.stdin.read() if text == ("-",) else " ".join(text)
    answer = explain(wanted)
    if answer is None:
        shown = wanted.strip()
        raise UsageProblem(f"nothing is known about {shown if len(shown) <= 60 else shown[:60] + '...'}")
    emit(answer.rstrip("\n") + "\n")
