"""Jobs in Slurm's accounting: the table of `sacct`, with columns of fixed width or a `--delimiter` between them, and `seff`.

Alone or inside the log of the job, whose script may end with one of them.
"""

import re
from functools import lru_cache

from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.cluster import slurm_jobs
from nccl_doctor.formats.cluster.slurm_ends import ANNOUNCED
from nccl_doctor.formats.cluster.slurm_jobs import Accounted, parse_clock
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_MOST = 50_000  # rows of one file
# Columns are in the order that `--format` asked for; `--format=ALL` prints more than a hundred.
_COLUMN_NAMES = re.compile(
    r" {0,80}(?:(?=.{0,4000}\bJobID(?:Raw)?\b)|(?=.{0,4000}\|State\b)(?=.{0,4000}\b(?:ReqTRES|ReqMem|CPUTimeRAW|TimelimitRaw|AllocTRES)\b))"
    r"[A-Z][A-Za-z]{1,40}"
    r"(?:(?: +[A-Z][A-Za-z]{1,40}){1,200} *|(?:[|,;\t^~#@&:]{1,2}[A-Z][A-Za-z]{1,40}){1,200}[|,;\t^~#@&:]{0,2})$"
)
_BETWEEN = re.compile(r"[|,;\t^~#@&:]{1,2}")
_RULE = re.compile(r"-+(?: +-+)+\s*$")
_STATES = (
    *ANNOUNCED, "COMPLETED", "FAILED", "RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING",
    "REVOKED", "BOOT_FAIL", "STOPPED",
)  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s?([KMGTP]?)i?[Bnc]?$")
_POWERS = {"": -2, "K": -1, "M": 0, "G": 1, "T": 2, "P": 3}  # of 1024, to MiB
_SEFF = re.compile(
    r"(Job ID|Array Job ID|Cluster|User/Group|State|Nodes|Cores(?: per node)?|Tasks"
    r"|CPU (?:Utilized|Efficiency)|Job Wall-clock time|Memory (?:Utilized|Efficiency)): (.{1,200})$"
)
_JOB = re.compile(r"\d{1,12}(?:[_+.\[]\S{0,80})?$")
_CODE = re.compile(r"\d{1,3}:\d{1,3}$")


class _Row:
    """One line of a table, or one answer of seff."""

    def __init__(self, fields: dict[str, str], number: int, text: str) -> None:
        self.fields = fields
        self.number = number
        self.text = text
        self.job = fields.get("JobID") or fields.get("JobIDRaw") or ""
        self.state = parse_state(fields.get("State", ""))


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every job of a file.

    Source: src/sacct/print.c of Slurm 20 to 24, contribs/seff::

        JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
        ------------ ---------- ---------- ---------- ---------- ---------- --------
        4711          train-llm        gpu   research        128 OUT_OF_ME+    0:125
    """
    facts.mark_covered("accounted_job", "message", "process_end")
    rows: list[_Row] = []
    head: list[str] = []
    spans: list[tuple[int, int]] = []
    between = " "
    number = understood = 0
    left_out = 0
    for number, _, line in plain_lines(stream):
        if line.startswith("$ "):
            continue
        if len(rows) >= _MOST:
            left_out += 1
            continue
        if not head and not rows and line[:1].isdigit() and (titles := _untitled(line)):
            head, between = titles, "|"
        if ("JobID" in line or "|State" in line) and _COLUMN_NAMES.match(line):
            between = found[0] if (found := _BETWEEN.search(line)) else " "
            head, spans = [title for title in line.strip().split(between) if title], []
        elif head and _RULE.match(line):
            spans = [match.span() for match in re.finditer(r"-+", line)]
        elif ": " in line and (found := _SEFF.match(line)):
            rows += [_Row({}, number, line)] if found[1] == "Job ID" else []
            if rows and not head:
                _seff(rows[-1], found[1], found[2], line)
        elif head and line.strip():
            cells = [line[start:end].strip() for start, end in spans] or _cells(line, between)
            row = _Row(dict(zip(head, cells, strict=False)), number, line.strip())
            is_job = _JOB.match(row.job) is not None or not {"JobID", "JobIDRaw"}.intersection(head)
            if len(cells) >= len(head) and is_job and ("State" not in head or row.state in _STATES):
                rows.append(row)
            elif "State" not in head:  # nothing else tells a row from a line of the log
                head = []
        else:
            continue
        understood += 1
    told = [row for row in rows if row.fields or row.state]  # a script may print `Job ID: 4711` for its reader
    facts.add(slurm_jobs.rows(facts, name, map(_accounted, told)))
    note = (
        f"only the first {_MOST:,} jobs and steps were read, {left_out:,} lines behind them were not"
        if left_out
        else None
    )
    return Reading(number, understood, note)


def _untitled(line: str) -> list[str]:
    """Titles for the cells of `sacct -P --noheader`, as far as one tells what it is; empty for another line."""
    cells = line.strip().split("|")
    state = next((at for at, cell in enumerate(cells) if at and parse_state(cell) in _STATES), 0)
    code = next((at for at, cell in enumerate(cells) if at and _CODE.match(cell)), 0)
    if not (state and code and _JOB.match(cells[0])):
        return []
    known = {0: "JobID", state: "State", code: "ExitCode"}
    return [known.get(at, str(at)) for at in range(len(cells))]


def _cells(line: str, between: str) -> list[str]:
    """The cells of a line; the commas of `node[01-02,05]` are between none."""
    if "[" not in line:
        return line.split(between)
    return re.split(rf"{re.escape(between)}(?![^\[\]]{{0,400}}\])", line)


def _seff(row: _Row, key: str, value: str, line: str) -> None:
    """`State: FAILED (exit code 1)`, `CPU Efficiency: 13.80% of 16:00:00 core-walltime`."""
    if key in ("Job ID", "Array Job ID"):
        row.job = value.strip()
    elif key == "State":
        row.state = parse_state(value)
        code = re.search(r"\(exit code (\d{1,3})\)", value)
        row.fields["ExitCode"] = f"{code[1]}:0" if code else ""
        row.text = f"Job ID: {row.job} {line.strip()}"
    else:
        row.fields[key] = value.strip()


def _accounted(row: _Row) -> Accounted:
    get = row.fields.get
    nodes = _whole(get("NNodes") or get("AllocNodes") or get("Nodes") or "")
    cpus = _whole(get("AllocCPUS") or get("NCPUS") or get("Cores") or "")
    each = _whole(get("Cores per node", ""))
    return Accounted(
        job=row.job, line=row.number, text=row.text, reporter="seff" if row.job and not (get("JobID") or get("JobIDRaw")) else "sacct",
        state=row.state, exit_code=get("ExitCode", ""), name=get("JobName"), node_list=get("NodeList", ""),
        reason=get("Reason"), end=iso_seconds(get("End", "")),
        elapsed=parse_clock(get("Elapsed") or get("Job Wall-clock time") or ""), nodes=nodes,
        cpus=nodes * each if nodes is not None and each is not None else cpus,
        max_rss=_size((get("MaxRSS") or get("Memory Utilized") or "").split(" (")[0]),
        max_rss_host=get("MaxRSSNode") or None, max_rss_task=_whole(get("MaxRSSTask", "")),
        used_cpu=parse_clock(get("TotalCPU", "")), cpu_efficiency=_share(get("CPU Efficiency", "")),
        memory_efficiency=_share(get("Memory Efficiency", "")), tasks=_whole(get("NTasks", "")),
        mean_cpu=parse_clock(get("AveCPU", "")), least_cpu=parse_clock(get("MinCPU", "")),
        least_task=_whole(get("MinCPUTask", "")), least_host=get("MinCPUNode") or None,
    )  # fmt: skip


@lru_cache(1 << 10)  # many jobs end alike
def parse_state(text: str) -> str:
    """`CANCELLED by 1001` and the cut `OUT_OF_ME+` as the state that they mean."""
    word = (text.split() or [""])[0]
    if word.endswith("+"):
        return next((state for state in _STATES if state.startswith(word[:-1])), word)
    return word


@lru_cache(1 << 10)
def _size(text: str) -> float | None:
    """MiB of `181.20 GB`, `1234K` or `12.5G`."""
    match = _SIZE.match(text.strip())
    return float(match[1]) * 1024.0 ** _POWERS[match[2]] if match else None


def _share(text: str) -> float | None:
    match = text and re.match(r"(\d{1,6}(?:\.\d{1,6})?)%", text)
    return float(match[1]) / 100 if match else None


@lru_cache(1 << 10)
def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text.strip()) else None
