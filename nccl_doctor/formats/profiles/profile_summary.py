"""Summaries of Nsight Systems (`nsys stats`, as CSV or as columns) and of nvprof, in files of their own or inside a job's log.

The sums are of kernel times: kernels that run side by side count each, and a kernel of NCCL also waits for its peers.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProfileShare, ProfileSum
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001, "µs": 0.001, "ns": 1e-6}
_TITLE = re.compile(r'^ *"?Time ?\(%\)"?(?:,| {2,})"?(?:Total )?Time\b')
_NVPROF = re.compile(r"^(?:==\d+== )? *(?:Type +)?Time\(%\) +Time +Calls +Avg +Min +Max +Name$")
_NVPROF_CSV = re.compile(r'^"?Type"?,"?Time\(%\)"?,"?Time"?,"?Calls"?,')
_NVPROF_ROW = re.compile(
    r"^ *(?:(?P<type>GPU activities|API calls|OpenACC[ \w()]*): *)?(?P<share>[\d.]+)% +(?P<time>[\d.]+)(?P<unit>m?s|us|ns) +"
    r"(?P<n>\d+) +[\d.]+(?:m?s|us|ns) +[\d.]+(?:m?s|us|ns) +(?P<max>[\d.]+)(?P<max_unit>m?s|us|ns) +(?P<name>\S.*)$"
)
_UNIT = re.compile(r"\((s|ms|us|µs|ns)\)")
_COMMUNICATION = re.compile(r"(?:nccl|rccl|msccl)\w*Kernel|nvshmem\w*(?:kernel|reduce|bcast)|^nccl:", re.IGNORECASE)
_LONGEST = 20  # rows of each report that are kept beside those of communication and copies
_MOST = 200  # of those


@dataclass
class _Sum:
    rows: int = 0
    n: int = 0
    total: float = 0.0  # ms
    longest: tuple[float, int, str] = (-1.0, 0, "")


@dataclass
class _Report:
    """Where we are in the file, and what the tables held."""

    tool: str = "nsys"
    report: str | None = None  # None outside of a table
    columns: list[str] = field(default_factory=list)
    comma: bool = False
    units: list[str] = field(default_factory=list)
    sums: dict[tuple[str, str, str], _Sum] = field(default_factory=dict)
    kept: dict[tuple[str, str], list[tuple[float, ProfileSum, str]]] = field(default_factory=dict)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read all tables of a file."""
    facts.look("profile_sum", "profile_share")
    state = _Report()
    understood = number = 0
    for number, _, line in plain_lines(stream):
        understood += _line(state, name, number, line)
    facts.add(_rows(facts, name, state))
    return Reading(number, understood, None if state.sums else "holds no row of a summary")


def _line(state: _Report, file: str, number: int, line: str) -> int:
    if _NVPROF.match(line):
        state.tool, state.report, state.comma, state.columns = "nvprof", "kernels", False, []
        return 1
    if _TITLE.match(line) or _NVPROF_CSV.match(line):
        state.comma = "," in line
        state.columns = next(csv.reader([line.strip()])) if state.comma else re.split(r" {2,}", line.strip())
        state.tool = "nvprof" if state.columns[0].strip() == "Type" else "nsys"
        state.report = _report(state.columns)
        state.units = []
        return 1
    if state.report is None:
        return 0
    if not line.strip():
        state.report = None
        return 0
    row = _nvprof_row(state, line) if state.tool == "nvprof" and not state.comma else _nsys_row(state, line)
    if row is None:
        return 0
    report, label, count, total, share, longest = row
    kind = _kind(report, label)
    one = ProfileSum(file, state.tool, report, kind, label, count, total, share, longest, number)
    sums = state.sums.setdefault((state.tool, report, kind), _Sum())
    sums.rows += 1
    sums.n += count
    sums.total += total
    sums.longest = max(sums.longest, (total, number, line.strip()))
    kept = state.kept.setdefault((report, kind), [])
    kept.append((total, one, line.strip()))
    if len(kept) > 2 * _MOST:
        state.kept[report, kind] = sorted(kept, key=lambda item: -item[0])[
            : _MOST if kind in ("communication", "copy") else _LONGEST
        ]
    return 1


def _report(columns: list[str]) -> str:
    last = columns[-1].strip().lower()
    names = {column.strip().lower() for column in columns}
    if "num calls" in names or "calls" in names:
        return "api"
    if "style" in names or last == "range":
        return "ranges"
    return "copies" if last == "operation" and "category" not in names else "kernels"


_Row = tuple[str, str, int, float, float | None, float | None]  # report, name, n, total ms, per cent, longest ms


def _nvprof_row(state: _Report, line: str) -> _Row | None:
    match = _NVPROF_ROW.match(line)
    if match is None:
        return None
    if match["type"]:
        state.report = "kernels" if match["type"] == "GPU activities" else "api"
    longest = float(match["max"]) * _MS[match["max_unit"]]
    total = float(match["time"]) * _MS[match["unit"]]
    report = _gpu_report(match["name"]) if state.report == "kernels" else "api"
    return report, match["name"], int(match["n"]), total, float(match["share"]), longest


def _nsys_row(state: _Report, line: str) -> _Row | None:
    if state.comma:
        cells = next(csv.reader([line.strip()]), [])
    else:
        cells = re.split(r" {2,}", line.strip(), maxsplit=len(state.columns) - 1)
    if state.tool == "nvprof" and len(cells) == len(state.columns) and cells[1] == "%":
        state.units = cells
        return None
    if len(cells) != len(state.columns):
        return None
    found = {
        column.strip().split(" (")[0].lower(): cell.strip() for column, cell in zip(state.columns, cells, strict=True)
    }
    total = _number(found.get("total time") or found.get("time"))
    if state.tool == "nsys":
        total = _number(found.get("total time"))
    count = _number(found.get("instances") or found.get("count") or found.get("num calls") or found.get("calls"))
    if total is None or count is None or not cells[-1].strip():
        return None
    title = next((c for c in state.columns if c.strip().lower().startswith("total time")), "")
    unit = state.units[state.columns.index("Time")] if state.units else (_UNIT.findall(title) or ["ns"])[0]
    factor = _MS.get(unit, 1e-6)
    longest = _number(found.get("max") or found.get("maximum"))
    report, label = state.report or "kernels", cells[-1].strip()
    if state.tool == "nvprof":
        report = "api" if found.get("type", "").startswith("API") else "kernels"
        own = state.units[state.columns.index("Max")] if state.units and "Max" in state.columns else unit
        longest = None if longest is None else longest * _MS.get(own, 1e-6) / factor
    if report == "kernels":
        report = _gpu_report(label)
    share = _number(cells[1] if state.tool == "nvprof" else cells[0])
    return report, label, int(count), total * factor, share, None if longest is None else longest * factor


def _gpu_report(label: str) -> str:
    """nvprof and one table of nsys mix kernels and copies."""
    return "copies" if label.startswith("[CUDA") else "kernels"


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None


def _kind(report: str, label: str) -> str:
    if report == "copies":
        return "memset" if "memset" in label.lower() else "copy"
    if _COMMUNICATION.search(label):
        return "communication"
    return "compute" if report == "kernels" else "other"


def _rows(facts: Facts, file: str, state: _Report) -> Iterator[object]:
    for (tool, report, kind), sums in state.sums.items():
        _, number, line = sums.longest
        ref = facts.evidence(file, number, line)
        yield ProfileShare(file, tool, report, kind, sums.rows, sums.n, sums.total, ref)
    for (_, kind), kept in state.kept.items():
        most = _MOST if kind in ("communication", "copy") else _LONGEST
        for _, one, line in sorted(kept, key=lambda item: -item[0])[:most]:
            yield one._replace(ref=facts.evidence(file, one.ref, line))
