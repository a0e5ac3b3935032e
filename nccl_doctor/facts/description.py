"""What tables and columns mean, as `nccl-doctor facts` lists them."""

import inspect
import re
from typing import NamedTuple

from nccl_doctor.facts import views
from nccl_doctor.facts.saved import SQL_TYPES
from nccl_doctor.facts.schema import column_types, table_name
from nccl_doctor.facts.tables import TABLES


class Column(NamedTuple):
    name: str
    type: str
    meaning: str


def describe() -> list[tuple[str, str, list[Column]]]:
    """(table, what a row means, columns) of every table; column meanings are the comments in `tables`."""
    described = []
    for table in TABLES:
        comments = dict(re.findall(r"^    (\w+): [^#\n]+#\s{0,9}(.+)$", inspect.getsource(table), re.MULTILINE))
        columns = [Column(n, SQL_TYPES[t].lower(), comments.get(n, "")) for n, t in column_types(table).items()]
        described.append((table_name(table), inspect.cleandoc(table.__doc__ or ""), columns))
    described += [
        (view.name, f"(view) {view.meaning}", [Column(name, "", text) for name, text in view.columns.items()])
        for view in views.VIEWS
    ]
    return described
