"""Many runs as a Markdown table."""

from nccl_doctor.diagnosis.comparison import RunsTable
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.comparison import runs_words as words
from nccl_doctor.reporters.markdown import escaped


def render(table: RunsTable, options: Options) -> str:
    """Returns the table, what differs, and what the runs show that the first one does not."""
    heads = ["run", *map(words.name, table.measures), "changed"]
    lines = [f"## {escaped(words.headline(table))}", "", f"| {' | '.join(map(escaped, heads))} |"]
    lines += [f"|---|{'---:|' * len(table.measures)}---|"]
    for row in table.runs:
        cells = [row.name]
        for value in row.values:
            cells.append(" ".join(filter(None, [value.text if value else "", _in_brackets(words.share(value))])))
        cells.append(words.changed(row))
        lines.append(f"| {' | '.join(map(escaped, cells))} |")
    if table.varied:
        lines += ["", "**Differs**", "", *(f"- {escaped(one)}" for one in words.varied(table))]
    found = [f"- {escaped(f'{row.name}: {one}')}" for row in table.runs for one in words.found(row)]
    lines += ["", "**Found, and not in the first run**", "", *found] if found else []
    return "\n".join(lines) + "\n"


def _in_brackets(text: str) -> str:
    return f"({text})" if text else ""
