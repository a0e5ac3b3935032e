"""Pictures of a report as parts of an HTML page: grids are tables, charts are SVG; neither needs a script."""

from nccl_doctor.diagnosis.picture import Chart, Grid, Picture, PicturePair, Shown
from nccl_doctor.reporters.pictures.grid import grid
from nccl_doctor.reporters.words import escaped


def figures(pictures: list[Picture], prefix: str = "") -> str:
    """All pictures, each with its sentence, its numbers and links to its findings. `prefix` keeps anchors of jobs apart."""
    return "\n".join(_figure(picture, prefix) for picture in pictures)


def _figure(picture: Picture, prefix: str) -> str:
    shown = picture.shown
    links = ", ".join(f'<a href="#{prefix}finding-{at}">{at}</a>' for at in picture.findings)
    linked = f"<p>Findings that it shows: {links}</p>" if links else ""
    return (
        f'<figure id="{prefix}{escaped(shown.name)}"><figcaption><h2>{escaped(shown.title)}</h2>'
        f"<p>{escaped(shown.summary)}</p>{linked}</figcaption>{_drawn(shown, prefix)}</figure>"
    )


def pair(one: PicturePair) -> str:
    """The same picture of two runs, side by side where the page is wide enough."""
    shown = one.before or one.after
    assert shown is not None
    sides = "".join(
        f"<section><h3>{letter}</h3>{_side(side, letter.lower())}</section>"
        for letter, side in (("A", one.before), ("B", one.after))
    )
    return f'<figure><figcaption><h2>{escaped(shown.title)}</h2></figcaption><div class="pair">{sides}</div></figure>'


def _side(shown: Shown | None, prefix: str) -> str:
    if shown is None:
        return "<p>This run has no facts for it.</p>"
    return f"<p>{escaped(shown.summary)}</p>{_drawn(shown, f'{prefix}-')}"


def _drawn(shown: Shown, prefix: str) -> str:
    if isinstance(shown, Grid):
        return grid(shown)
    from nccl_doctor.reporters.pictures import chart

    return chart.chart(shown, prefix) if isinstance(shown, Chart) else chart.time_line(shown, prefix)
