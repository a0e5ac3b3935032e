"""What readers of the facts see: host names resolved, no kernel lines from before the job, counters beside their earlier value."""

from collections import defaultdict

from nccl_doctor.derive.host_names import host_columns
from nccl_doctor.facts.schema import by_name, column_types
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import InferredHost

_WITHOUT_EARLIER = ("xid", "message", "known_message")


def settle(facts: Facts) -> None:
    """Let readers see the tables of sources as `host_alias`, `inferred_host`, `earlier` and `counter_before` say.

    The rows that were added stay as they are; a table that none of the four concerns is not copied.
    """
    columns: dict[str, list[str]] = defaultdict(list)
    for table, column in host_columns(facts):
        if table != "host_alias":
            columns[table].append(column)
    aliases = facts.query("SELECT EXISTS (SELECT 1 FROM host_alias)")[0][0]
    inferred: dict[str, set[str]] = defaultdict(set)
    for row in facts.rows(InferredHost):
        inferred[row.rows_of].add("file" if row.pci is None else "pci")
    earlier = facts.query("SELECT EXISTS (SELECT 1 FROM earlier)")[0][0]
    covered = facts.covered()
    for table, of_table in columns.items():
        renamed = [column for column in of_table if aliases and _has_alias(facts, table, column)]
        left_out = earlier and table in _WITHOUT_EARLIER
        compared = table == "node_counter" and "counter_before" in covered
        class_ = by_name()[table]
        if class_ not in facts.restated and (renamed or table in inferred or left_out or compared):
            facts.restate(class_, _reading(table, renamed, inferred[table], left_out, compared))


def _has_alias(facts: Facts, table: str, column: str) -> bool:
    return bool(
        facts.query(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {column} IN (SELECT name FROM host_alias))")[0][0]
    )


def _reading(table: str, renamed: list[str], inferred: set[str], left_out: bool, compared: bool) -> str:
    """The query for the rows of a table as readers should see them."""
    values = {column: f"t.{column}" for column in column_types(by_name()[table])}
    joins: list[str] = []
    for column in renamed:
        joins.append(f"LEFT JOIN host_alias a_{column} ON a_{column}.name = t.{column}")
        values[column] = f"coalesce(a_{column}.host, t.{column})"
    if "file" in inferred:
        joins.append(
            "LEFT JOIN evidence e ON e.id = t.ref"
            f" LEFT JOIN inferred_host f ON f.rows_of = '{table}' AND f.pci IS NULL AND f.file = e.file"
        )
        values["host"] = f"coalesce({values['host']}, f.host)"
    if "pci" in inferred:
        joins.append(f"LEFT JOIN inferred_host p ON p.rows_of = '{table}' AND p.pci = t.pci")
        values["host"] = f"coalesce({values['host']}, p.host)"
    if compared:
        joins.append("LEFT JOIN counter_before b ON b.device = t.device AND b.name = t.name")
        values["before"] = "b.value"
    where = "WHERE t.ref NOT IN (SELECT ref FROM earlier)" if left_out else ""
    return f"SELECT {', '.join(values.values())} FROM main.{table} t {' '.join(joins)} {where}"
