"""Output of the OSU micro-benchmarks (`osu_bw`, `osu_latency`, `osu_mbw_mr`, `osu_allreduce` …) between ranks of MPI."""

import re
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(rb"# OSU [A-Z]")
_TITLE = re.compile(r"# OSU (\w{2,12}(?:-\w{2,12})?) (\S.{2,60}?)(?: Test)?(?: v\d[\w.]{0,10})?$")
_COLUMNS = re.compile(
    r"# (Size +)?(?:(Bandwidth|Bi-Bandwidth|Aggregate)? ?\(?MB/s\)?|(?:Avg )?(?:Latency|Comm\.?) ?\(us\))"
)
_ROW = re.compile(r"(?:(\d{1,15})[ \t]+)?(\d{1,12}(?:\.\d{1,6})?)(?:[ \t]+[\d.]{1,20}){0,8}$")
_KEEP = 500  # lines between a title and a row: what MPI warns of at the first message
_MOST = 20_000


class _Run(NamedTuple):
    test: str
    unit: str | None = None
    sized: bool = True  # the first column is the size of a message
    best: tuple[float, int, str] | None = None  # value of the row that counts, its line


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read each table: of bandwidths the highest counts, of latencies that of the smallest message.

    Source: osu-micro-benchmarks 3.1 to 7.5 (`c/util/osu_util*.c`)::

        # OSU MPI Bandwidth Test v5.9
        # Size      Bandwidth (MB/s)
        4194304             24311.05
    """
    facts.mark_covered("active_test")
    sections = Sections(stream, _HEADS, _KEEP)
    open_: dict[str | None, _Run] = {}
    rows: list[ActiveTest] = []
    used = 0
    note = None
    for first, label, texts in sections.batches():
        run, last = open_.get(label.host), 0
        for number, text in enumerate(texts, first):
            line = text.strip()
            if (title := _TITLE.match(line)) is not None:
                rows += _rows(facts, name, label.host, run)
                run = _Run(f"{title[1]} {title[2]}")
            elif run is None:
                continue
            elif line.startswith("#"):
                if (columns := _COLUMNS.match(line)) is None:
                    continue
                run = run._replace(unit="MB/s" if "MB/s" in columns[0] else "us", sized=columns[1] is not None)
            elif run.unit is not None and (row := _ROW.match(line)) is not None and (row[1] is not None) == run.sized:
                value = float(row[2])
                if run.best is None or (run.unit == "MB/s" and value > run.best[0]):
                    run = run._replace(best=(value, number, line))
            else:
                continue
            used, last = used + 1, number
        if run is not None:
            open_[label.host] = run
        if last:
            sections.used(last)
        if len(rows) > _MOST:
            note = f"holds more than {_MOST:,} results; the others were left out"
            break
    for host, run in open_.items():
        rows += _rows(facts, name, host, run)
    facts.add(rows)
    return Reading(sections.lines, used, note)


def _rows(facts: Facts, file: str, host: str | None, run: _Run | None) -> list[ActiveTest]:
    if run is None or run.best is None:
        return []
    value, number, text = run.best
    return [
        ActiveTest(
            host=host, tool="osu", test=run.test, device=None, outcome="other", value=value, unit=run.unit, text=None,
            ref=facts.evidence(file, number, f"{run.test}: {text}"),
        )
    ]  # fmt: skip
