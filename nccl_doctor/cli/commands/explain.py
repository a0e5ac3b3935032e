"""`nccl-doctor explain`: prints the text of a rule, or the meaning of pasted text."""

import click

from nccl_doctor.cli import standard_input
from nccl_doctor.cli.output import emit
from nccl_doctor.common.errors import UsageProblem

ASK = "the id or name of a rule, a whole line of a log, a variable, `Xid N`, `status=N`, `-> N` or a transport"


class _Pasted(click.Command):
    """Accepts pasted text that starts with a dash, such as `-> 3`; options never contain a blank."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and (" " in args[0].strip() or args[0].startswith("->")):
            args = ["--", *args]
        return super().parse_args(ctx, args)


@click.command("explain", cls=_Pasted)
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
def command(text: tuple[str, ...]) -> None:
    """Explain a rule, a log line, a variable or a code.

    TEXT is the id or name of a rule, a line of a log, a variable such as NCCL_IB_HCA, an Xid, a completion status or a
    result code. - reads it from standard input.
    """
    from nccl_doctor.app.explain import explain, nearest

    pasted = standard_input.pasted_text() if text == ("-",) else " ".join(text)
    answer = explain(pasted)
    if answer is None:
        shown = pasted.strip()
        if not shown:
            raise UsageProblem(f"nothing to explain: give {ASK}")
        near = nearest(shown)
        meant = f"did you mean {' or '.join(near)}?" if near else f"give {ASK}"
        raise UsageProblem(f"nothing is known about {shown if len(shown) <= 60 else shown[:60] + '...'}; {meant}")
    emit(answer.rstrip("\n") + "\n")
