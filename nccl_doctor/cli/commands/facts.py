"""`nccl-doctor facts`: what was read, table by table."""

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.output import emit
from nccl_doctor.cli.table import FORMATS, render
from nccl_doctor.common.errors import UsageProblem


@click.command("facts")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--table", metavar="NAME", help="Print the rows of this table; without PATH its columns.")
@click.option("--live", is_flag=True, help="The facts of this node, as `preflight` collects them.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(paths: tuple[str, ...], table: str | None, live: bool, form: str) -> None:
    """List the facts that were read from logs.

    Without PATH: which tables there are. With PATH: how many rows each of them got.
    """
    from nccl_doctor.facts.store import describe

    tables = {name: (meaning, columns) for name, meaning, columns in describe()}
    if table is not None and table not in tables:
        raise UsageProblem(f"no table is called {table}; there are {', '.join(tables)}")
    if live and paths:
        raise UsageProblem("--live reads this node; leave out the paths, or leave out --live")
    if not paths and not live:
        if table is None:
            emit(render(("table", "a row is"), [(n, m.split(". ")[0]) for n, (m, _) in tables.items()], form))
        else:
            emit(render(("column", "type", "meaning"), tables[table][1], form))
        return
    facts = backend.facts_of_node() if live else backend.facts_of(paths)
    if table is not None:
        columns, rows = facts.sql(f"SELECT * FROM {table}")
        emit(render(columns, rows, form))
    else:
        counted = [(name, number, tables[name][0].split(". ")[0]) for name, number in facts.counts().items() if number]
        emit(render(("table", "rows", "a row is"), counted, form))
