"""`nccl-doctor sql`: runs a query on the facts of a log."""

import click

from nccl_doctor.cli import backend, table
from nccl_doctor.cli.options import limit_option
from nccl_doctor.cli.output import emit
from nccl_doctor.common.errors import UsageProblem

STEPS = 5_000_000_000  # a minute or two


@click.command("sql")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.argument("query")
@limit_option()
@click.option("--format", "form", type=click.Choice(table.FORMATS), default="table", show_default=True)
def command(paths: tuple[str, ...], query: str, form: str) -> None:
    """Query the facts of a log with SQL.

    QUERY is one SELECT. `nccl-doctor facts` lists the tables, `nccl-doctor facts --table NAME` the columns of one.
    """
    from nccl_doctor.facts.guard import QueryProblem

    facts = backend.load_facts(paths)
    try:
        columns, rows = facts.sql(query, steps=STEPS)
    except QueryProblem as problem:
        raise UsageProblem(f"the query failed: {problem}") from None
    if not columns:  # blanks or a comment
        raise UsageProblem("the query is empty; write one SELECT")
    emit(table.render(columns, rows, form))
