"""A comparison for the terminal: the verdict, the two runs, new and gone findings, changes, what to do next."""

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nccl_doctor.diagnosis.comparison import Change, Comparison
from nccl_doctor.diagnosis.report import Place
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.comparison import pair_words as words
from nccl_doctor.reporters.terminal import ASCII, LABEL, STYLES
from nccl_doctor.reporters.words import clean, clean_block

MAX_CHANGES = 12  # changes shown without `verbose`
MAX_FINDINGS = 4  # findings of a kind shown without `verbose`
EVIDENCE = 3  # places of a finding with `verbose`
SUBJECT = 26  # columns for the name of what changed, at most
COLORS = {"worse": "bold red", "better": "bold green", "other": ""}


def render(comparison: Comparison, options: Options) -> str:
    """Returns the comparison for a screen of `options.width` columns; long lists are cut unless `options.verbose`."""
    out = StringIO()
    console = Console(
        file=out, width=max(options.width, 30), force_terminal=options.color, highlight=False, markup=False, emoji=False,
        color_system="standard" if options.color else None, no_color=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    head = words.HEADS[comparison.verdict]
    answer = Text(f"{head}: {words.headline(comparison)}", style="bold")
    answer.stylize(STYLES.get(comparison.verdict, "bold green"), 0, len(head))
    console.print(answer)
    console.print(_body(comparison, options.verbose))
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n")[:-1]) + "\n"
    return text.translate(ASCII).encode("ascii", "replace").decode("ascii") if options.ascii else text


def _body(comparison: Comparison, verbose: bool) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(style="bold", width=LABEL - 1)
    table.add_column(overflow="fold")
    blocks: tuple[tuple[str, Sequence[Text | Table]], ...] = (
        ("A", [Text(words.run(comparison.before))]),
        ("B", [Text(words.run(comparison.after))]),
        ("New", _findings(comparison, verbose, new=True)),
        ("Gone", _findings(comparison, verbose, new=False)),
        ("Changed", list((_changes_in_full if verbose else _changes)(comparison.changes))),
        ("Same", [Text(", ".join(comparison.same))] if comparison.same else []),
        ("Unknown", _unknown(comparison)),
        ("Next", [Text(clean_block(words.advice(comparison)))] if words.advice(comparison) else []),
    )
    for label, rows in blocks:
        for number, row in enumerate(rows):
            table.add_row("" if number else label, row)
    return table


def _findings(comparison: Comparison, verbose: bool, new: bool) -> list[Text]:
    findings = comparison.appeared if new else comparison.gone
    shown = findings if verbose or len(findings) <= MAX_FINDINGS else findings[: MAX_FINDINGS - 1]
    lines = []
    for one in shown:
        line = Text(words.finding(one, comparison))
        line.stylize(STYLES[one.severity] if new else "bold green", 0, len(one.severity))
        lines.append(line)
        if verbose:
            lines += map(_place, one.evidence[:EVIDENCE])
    more = len(findings) - len(shown)
    return [*lines, *([Text(f"{more} more: -v")] if more else [])]


def _changes(changes: Sequence[Change]) -> list[Text | Table]:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(max_width=SUBJECT, overflow="fold")
    table.add_column(overflow="fold")
    shown = changes if len(changes) <= MAX_CHANGES else changes[: MAX_CHANGES - 1]
    for change in shown:
        table.add_row(Text(clean(change.what)), Text(words.changed(change), style=COLORS[change.effect]))
    more = len(changes) - len(shown)
    return [table, *([Text(f"{more} more: -v")] if more else [])] if changes else []


def _changes_in_full(changes: Sequence[Change]) -> Iterator[Text]:
    for change in changes:
        yield Text(f"{clean(change.what)}: {words.changed(change)}", style=COLORS[change.effect])
        yield from map(_place, change.evidence)


def _place(place: Place) -> Text:
    where = f"{clean(place.file)}:{place.line}: "
    line = Text(where + clean(place.text), style="dim")
    line.stylize("not dim cyan", 0, len(where))
    return line


def _unknown(comparison: Comparison) -> list[Text]:
    return list(_topics_of("A", comparison.only_before)) + list(_topics_of("B", comparison.only_after))


def _topics_of(name: str, topics: list[str]) -> Iterator[Text]:
    if topics:
        yield Text(f"only in {name}: {', '.join(topics)}")
