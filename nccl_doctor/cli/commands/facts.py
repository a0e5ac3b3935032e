"""`nccl-doctor facts`: lists tables of facts, their columns and rows."""

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.options import limit_option
from nccl_doctor.cli.output import emit
from nccl_doctor.cli.table import FORMATS, render
from nccl_doctor.common.errors import UsageProblem


@click.command("facts")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--table", metavar="NAME", help="Print the rows of this table; without PATH, its columns.")
@click.option("--live", is_flag=True, help="Collect the facts of this node, as `preflight` does.")
@limit_option()
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(paths: tuple[str, ...], table: str | None, live: bool, form: str) -> None:
    """List the facts that were read from logs.

    Without PATH, list all tables. With PATH, list the tables that were filled and their number of rows.
    """
    from nccl_doctor.facts.description import describe

    tables = {name: (meaning, columns) for name, meaning, columns in describe()}
    if table is not None and table not in tables:
        raise UsageProblem(f"no table is called {table}; the tables are {', '.join(tables)}")
    if live and paths:
        raise UsageProblem("--live reads this node and takes no PATH")
    if not paths and not live:
        if table is None:
            emit(render(("table", "a row is"), [(n, m.split(". ")[0]) for n, (m, _) in tables.items()], form))
        else:
            emit(render(("column", "type", "meaning"), tables[table][1], form))
        return
    facts = backend.collect_node_facts() if live else backend.load_facts(paths)
    if table is not None:
        columns, rows = facts.sql(f"SELECT * FROM {table}")
        emit(render(columns, rows, form))
    else:
        counted = [(name, number, tables[name][0].split(". ")[0]) for name, number in facts.counts().items() if number]
        emit(render(("table", "rows", "a row is"), counted, form))
