"""Many runs for the terminal: which is best, a table, what differs."""

from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nccl_doctor.diagnosis.comparison import Measured, RunsTable
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.comparison import runs_words as words
from nccl_doctor.reporters.comparison.pair_terminal import COLORS
from nccl_doctor.reporters.terminal import ASCII, STYLES
from nccl_doctor.reporters.words import clean

NAME, NUMBER, CHANGED = (
    22,
    15,
    24,
)  # columns of a run's name, of a number with its share, and what the last column needs
MAX_RUNS = 30  # shown without `verbose`
MAX_VARIED = 6


def render(table: RunsTable, options: Options) -> str:
    """Returns the table for a screen of `options.width` columns; columns that do not fit are named below it."""
    out = StringIO()
    width = max(options.width, 30)
    console = Console(
        file=out, width=width, force_terminal=options.color, highlight=False, markup=False, emoji=False,
        color_system="standard" if options.color else None, no_color=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    head = words.headline(table)
    answer = Text(head, style="bold")
    answer.stylize(STYLES.get(table.verdict, "bold green"), 0, head.index(":"))
    console.print(answer)
    names = min(NAME, max(len(clean(row.name)) for row in table.runs))
    fit = max(1, (width - names - CHANGED) // NUMBER)
    shown = table.runs if options.verbose else table.runs[:MAX_RUNS]
    console.print(_rows(table, shown_measures := min(fit, len(table.measures)), len(shown)))
    for line in _below(table, shown_measures, len(shown), options.verbose):
        console.print(Padding(Text(line.lstrip()), (0, 0, 0, len(line) - len(line.lstrip()))))
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n")[:-1]) + "\n"
    return text.translate(ASCII).encode("ascii", "replace").decode("ascii") if options.ascii else text


def _rows(table: RunsTable, measures: int, runs: int) -> Table:
    grid = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    grid.add_column("run", overflow="fold", max_width=NAME)
    for measure in table.measures[:measures]:
        name = words.name(measure)
        least = min(NUMBER, max(map(len, name.split())))
        grid.add_column(Text(name), justify="right", min_width=least, max_width=NUMBER, overflow="fold")
    grid.add_column("changed", overflow="fold")
    for row in table.runs[:runs]:
        grid.add_row(Text(clean(row.name)), *map(_number, row.values[:measures]), Text(words.changed(row)))
    return grid


def _number(value: Measured | None) -> Text:
    if value is None:
        return Text("")
    share = words.share(value)
    text = Text(value.text)
    if share:
        text.append(" ").append(share, style=COLORS[value.effect])
    return text


def _below(table: RunsTable, measures: int, runs: int, verbose: bool) -> list[str]:
    """What differs, what was found, and what did not fit."""
    lines: list[str] = []
    rows, varied = len(table.runs) - runs, words.varied(table)
    shown = varied if verbose else varied[:MAX_VARIED]
    found = [f"{clean(row.name)}: {one}" for row in table.runs for one in words.found(row)]
    lines += ["", "Differs", *(f"  {one}" for one in shown)] if shown else []
    lines += [f"  {len(varied) - len(shown)} more: -v"] if len(varied) > len(shown) else []
    lines += ["", "Found, and not in the first run", *(f"  {one}" for one in found)] if found else []
    hidden = [words.name(measure) for measure in table.measures[measures:]]
    if hidden and verbose:
        lines += ["", "Other measures"]
        for row in table.runs[:runs]:
            told = [f"{name} {value.text}" for name, value in zip(hidden, row.values[measures:], strict=True) if value]
            lines += [f"  {clean(row.name)}: {'; '.join(told)}"] if told else []
    elif hidden:
        lines += ["", f"Not shown: {'; '.join(hidden)} (-v, --format csv)"]
    lines += [f"{rows} more runs: -v"] if rows else []
    return lines
