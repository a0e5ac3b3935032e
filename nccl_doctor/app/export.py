"""Writes fact tables as files that spreadsheets, pandas, Arrow and DuckDB open."""

from collections.abc import Callable
from pathlib import Path

from nccl_doctor.common.atomic_write import filled
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.facts.schema import by_name, column_types
from nccl_doctor.facts.store import Facts

FORMATS = ("csv", "parquet")


def export_tables(
    facts: Facts, folder: Path, form: str, write: Callable[[Path, bytes], None], csv: Callable[[str], bytes]
) -> list[Path]:
    """Write every table that has rows into a new or empty folder, one file each, and return the files.

    `write` puts a file there and `csv` makes the text of a table. Raises UsageProblem where the folder or pyarrow is missing.
    """
    content = csv if form == "csv" else _parquet(facts)
    files = []
    with filled(folder):
        for name, number in facts.counts().items():
            if number:
                files.append(folder / f"{name}.{form}")
                write(files[-1], content(name))
    return files


def _parquet(facts: Facts) -> Callable[[str], bytes]:
    """Columns keep their types: a whole number that is not known is null, not NaN."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageProblem("parquet needs pyarrow: pip install 'nccl-doctor[parquet]'") from None
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string(), bool: pyarrow.bool_()}

    def content(name: str) -> bytes:
        columns, rows = facts.sql(f"SELECT * FROM {name}")
        declared = column_types(by_name()[name])
        arrays = [
            pyarrow.array([row[at] for row in rows], type=types[declared[column]]) for at, column in enumerate(columns)
        ]
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table(arrays, names=list(columns)), sink)
        return bytes(sink.getvalue())

    return content
