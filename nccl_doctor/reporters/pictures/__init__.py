"""Pictures of a report as parts of an HTML page: grids are tables, charts are SVG; neither needs a script."""

from nccl_doctor.diagnosis.picture import Chart, Grid, Picture, TimeLine
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


def _drawn(shown: Grid | Chart | TimeLine, prefix: str) -> str:
    if isinstance(shown, Grid):
        return grid(shown)
    from nccl_doctor.reporters.pictures import chart

    return chart.chart(shown, prefix) if isinstance(shown, Chart) else chart.time_line(shown, prefix)
