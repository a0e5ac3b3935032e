"""Many runs as CSV: a row for each run, a column for each measure and for each thing that differs."""

from nccl_doctor.diagnosis.comparison import RunsTable
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.comparison import runs_words as words
from nccl_doctor.reporters.csv_text import csv_text
from nccl_doctor.reporters.words import clean


def render(table: RunsTable, options: Options) -> str:
    """Returns one row for each run, best first; an unknown number is an empty cell."""
    heads = ["run", "path", "named", "verdict", *map(words.name, table.measures), *(one.what for one in table.varied)]
    rows = [
        [
            row.name,
            row.path,
            row.number,
            row.verdict,
            *(None if value is None else value.value for value in row.values),
            *(one.values[row.number - 1] for one in table.varied),
        ]
        for row in table.runs
    ]
    return csv_text([clean(one) for one in heads], [[clean(c) if isinstance(c, str) else c for c in r] for r in rows])
