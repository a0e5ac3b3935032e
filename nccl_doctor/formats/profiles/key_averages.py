"""The table that torch.profiler prints, `prof.key_averages().table()`, in a file or inside the log of a job."""

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProfileShare, ProfileSum
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.profiles.profile_summary import is_communication
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

TOOL = "torch.profiler"
_CELLS = re.compile(r" {2,}")
_TIME = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(s|ms|us)")
_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}
_TOTAL = re.compile(r"Self (?!CPU)\w{2,20} time total: +(\d{1,15}(?:\.\d{1,9})?)(s|ms|us)")
_DEVICE = re.compile(r"Self (?!CPU)(?!\w+ %|\w+ Mem)\w{2,20}")
_KERNEL = re.compile(r"(?i)kernel")  # beside it the operator that launched it tells the same time
_MOST = 1_000  # rows of a table
_SPAN = re.compile(
    r"\(dynamo_timed\)|^ProfilerStep|^Torch-Compiled Region|^## "
)  # around what operators and kernels tell
_OTHERS = 5  # longest rows that are kept beside those of communication


class _Row(NamedTuple):
    name: str
    calls: int
    time: float  # ms on the device
    number: int
    line: str


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the table of a file whose operators took longest on the device.

    Several tables are one profile in other orders, or profiles of other ranks and steps, whose sum is the time of nothing.

    Source: `torch/autograd/profiler_util.py`; of a GPU, an XPU or another device::

                           Name    Self CPU %      Self CPU  …     Self CUDA   Self CUDA %  …    # of Calls
        ncclDevKernel_AllReduce         0.00%       0.000us  …     452.100ms        45.21%  …            60
        Self CUDA time total: 1.000s
    """
    facts.mark_covered("profile_sum", "profile_share")
    titles: list[str] = []
    rows: list[_Row] = []
    understood = number = tables = 0
    longest: tuple[float, list[_Row]] = 0.0, []
    for number, _, line in plain_lines(stream):
        cells = _CELLS.split(line.strip())
        if cells[-1] == "# of Calls" or (cells[0] == "Name" and "# of Calls" in cells):
            titles, rows = cells, []
        elif titles and (total := _TOTAL.search(line)) is not None:
            longest = max(longest, (float(total[1]) * _MS[total[2]], rows), key=itemgetter(0))
            understood, tables = understood + len(rows) + 1, tables + 1
            titles = []
        elif len(cells) == len(titles) and len(rows) < _MOST and (row := _row(titles, cells, number, line)) is not None:
            rows.append(row)
    tool = TOOL if tables < 2 else f"{TOOL} (longest of {tables:,} tables)"
    facts.add(_facts(facts, name, tool, longest[1], longest[0]))
    return Reading(number, understood)


def _row(titles: list[str], cells: list[str], number: int, line: str) -> _Row | None:
    column = next((at for at, title in enumerate(titles) if _DEVICE.fullmatch(title)), None)
    calls = cells[titles.index("# of Calls")]
    found = _TIME.fullmatch(cells[column]) if column is not None else None
    if found is None or not calls.isdecimal() or len(calls) > 15:
        return None
    return _Row(cells[0], int(calls), float(found[1]) * _MS[found[2]], number, line.strip())


def _facts(facts: Facts, file: str, tool: str, rows: list[_Row], total: float) -> Iterator[ProfileShare | ProfileSum]:
    """Kernels of communication, and all others: a table shows the longest rows, and its last line the sum of all."""
    own = [row for row in rows if is_communication(row.name)]
    kernels = [row for row in own if _KERNEL.search(row.name)] or own
    if not rows or total <= 0:
        return
    sums = {"communication": (kernels, sum(row.time for row in kernels))}
    sums["compute"] = ([row for row in rows if row not in own], max(total - sums["communication"][1], 0.0))
    for kind, (of, time) in sums.items():
        if of:
            longest = max(of, key=lambda row: row.time)
            ref = facts.evidence(file, longest.number, longest.line)
            yield ProfileShare(file, tool, "kernels", kind, len(of), sum(row.calls for row in of), time, ref)
    others = sorted((row for row in rows if row not in own and not _SPAN.search(row.name)), key=lambda row: -row.time)[
        :_OTHERS
    ]
    for kind, row in [
        *(("communication", row) for row in sorted(kernels, key=lambda row: -row.time)),
        *(("compute", row) for row in others),
    ]:
        ref = facts.evidence(file, row.number, row.line)
        share = 100 * row.time / total
        yield ProfileSum(file, tool, "kernels", kind, row.name, row.calls, row.time, share, None, ref)
