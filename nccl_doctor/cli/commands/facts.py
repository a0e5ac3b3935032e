"""`nccl-doctor facts`: lists tables of facts, their columns and rows."""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccl_doctor.cli import backend
from nccl_doctor.cli.options import limit_option
from nccl_doctor.cli.output import emit, write_file
from nccl_doctor.cli.table import FORMATS, render
from nccl_doctor.cli.value_types import PATH
from nccl_doctor.common.errors import UsageProblem

if TYPE_CHECKING:
    from nccl_doctor.facts.store import Facts


@click.command("facts")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--table", metavar="NAME", help="Print the rows of this table; without PATH, its columns.")
@click.option("--live", is_flag=True, help="Collect the facts of this node, as `preflight` does.")
@limit_option()
@click.option(
    "--export",
    "folder",
    type=PATH,
    metavar="DIR",
    help="Write every table that was filled into this new folder, as CSV or, with --format parquet, as Parquet.",
)
@click.option("--format", "form", type=click.Choice((*FORMATS, "parquet")), default="table", show_default=True)
def command(paths: tuple[str, ...], table: str | None, live: bool, folder: Path | None, form: str) -> None:
    """List the facts that were read from logs.

    Without PATH, list all tables. With PATH, list the tables that were filled and their number of rows.
    """
    from nccl_doctor.facts.description import describe

    tables = {name: (meaning, columns) for name, meaning, columns in describe()}
    if table is not None and table not in tables:
        similar = get_close_matches(table[:100], tables, 3)
        raise UsageProblem(
            f"no table is called {table}; "
            + (f"similar: {', '.join(similar)}" if similar else "nccl-doctor facts lists the tables")
        )
    if live and paths:
        raise UsageProblem("--live reads this node and takes no PATH")
    if folder is None and form == "parquet":
        raise UsageProblem("--format parquet writes files: name a folder with --export")
    if folder is not None:
        if table is not None or form == "json" or not (paths or live):
            raise UsageProblem("--export takes PATH or --live, writes all tables, and --format csv or parquet")
        _export(backend.collect_node_facts() if live else backend.load_facts(paths), folder, form)
        return
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


def _export(facts: "Facts", folder: Path, form: str) -> None:
    """Write the tables and list them."""
    from nccl_doctor.app.export import export_tables

    def csv(name: str) -> bytes:
        return render(*facts.sql(f"SELECT * FROM {name}"), form="csv").encode("utf-8")

    files = export_tables(facts, folder, "parquet" if form == "parquet" else "csv", write_file, csv)
    emit("".join(f"{path}\n" for path in files))
