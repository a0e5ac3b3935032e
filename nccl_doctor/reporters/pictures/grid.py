"""A grid as a table: colours for the eye, signs and sentences for those who do not see them."""

from nccl_doctor.diagnosis.picture import Cell, Grid
from nccl_doctor.reporters.words import escaped


def grid(shown: Grid) -> str:
    """The table with its legend."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in shown.columns)
    rows = "".join(
        f'<tr><th scope="row">{escaped(name)}</th>{"".join(map(_cell, cells))}</tr>' for name, cells in shown.rows
    )
    legend = "".join(f'<span class="{state}">{escaped(words)}</span>' for state, words in shown.legend)
    return (
        f'<div class="scroll"><table class="grid"><caption hidden>{escaped(shown.title)}</caption>'
        f"<thead><tr><th>{escaped(shown.corner)}</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="legend">{legend}</p>'
    )


def _cell(cell: Cell) -> str:
    says = f' title="{escaped(cell.says)}"' if cell.says else ""
    return f'<td class="{cell.state}"{says}>{escaped(cell.text)}</td>' if cell.state else f"<td{says}></td>"
