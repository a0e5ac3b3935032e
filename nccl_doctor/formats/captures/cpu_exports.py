"""How busy the processors of a host were, as exported for programs: `sadf`, `iostat` and `mpstat -o JSON`, dstat and dool, `atop -P`."""

import json
import re
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.recorded import HostUse
from nccl_doctor.formats.captures.cpu_samples import HIGH
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, cells_of, lines, read_head

_LARGEST = 64 << 20  # bytes of one answer in JSON
_MOST_HOSTS = 10_000
_ATOP = re.compile(r"CPU (\S{1,253}) \d{9,12} \S{10} \S{8} (\d{1,9}) (\d{1,7}) (\d{1,5})((?: \d{1,15}){6,20})\s*")
_ATOP_IDLE, _ATOP_WAIT = 3, 4  # behind the ticks of system, user and nice


class _Use:
    """The samples of one host."""

    def __init__(self, cpus: int | None) -> None:
        self.cpus = cpus
        self.samples = self.high = 0
        self.busy = self.waiting = 0.0
        self.place = 0, ""

    def add(self, busy: float, waiting: float, number: int, line: str) -> None:
        if not self.samples or (busy >= HIGH and not self.high):
            self.place = number, line.strip()[:600]
        self.samples += 1
        self.busy += busy
        self.waiting += waiting
        self.high += busy >= HIGH


class _Hosts:
    """All hosts of a file."""

    def __init__(self) -> None:
        self.found: dict[str | None, _Use] = {}
        self.used = 0

    def add(
        self, host: str | None, cpus: int | None, shares: tuple[float, float] | None, number: int, line: str
    ) -> None:
        """Take a sample, as `_shares` gives it; one that is no share of the time is left out."""
        busy, waiting = shares or (-1.0, 0.0)
        if (
            not 0 <= busy <= 100.01
            or not 0 <= waiting <= 100.01
            or (host not in self.found and len(self.found) >= _MOST_HOSTS)
        ):
            return
        self.found.setdefault(host, _Use(cpus)).add(min(busy, 100.0), waiting, number, line)
        self.used += 1


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up the samples of a file; busy is what is neither idle nor waits for input and output.

    Source: `sadf -d` and `sadf -j` of sysstat 11 and 12, `dstat --output` and dool, `atop -P CPU`::

        # hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle
        node01;10;2026-11-20 08:00:10 UTC;-1;70.94;5.91;11.33;0.00;0.00;11.82
        CPU node01 1795527153 2026/11/24 13:32:33 10 100 96 1700 58000 1230 31000 100 0 0 0 0 2600 100 0 0
    """
    head = read_head(stream, 1 << 10)
    stream = Joined(head, stream)
    hosts = _Hosts()
    note = None
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{"):
        number, note = _sadf_json(stream, hosts)
    elif start.startswith(b'"'):
        number, note = _dstat(stream, hosts)
    elif start.startswith(b"#"):
        number, note = _sadf(stream, hosts)
    else:
        number, note = _atop(stream, hosts)
    facts.mark_covered("host_use")
    facts.add(
        HostUse(
            host=host, samples=use.samples, first=None, seconds=None, cpus=use.cpus, cpu_mean=use.busy / use.samples,
            cpu_high_share=use.high / use.samples, cpu_wait=use.waiting / use.samples, memory_max=None, memory_total=None,
            swap_max=None, shm_max=None, shm_total=None, tcp_sent=None, tcp_repeated=None, ref=facts.evidence(name, *use.place),
        )
        for host, use in hosts.found.items()
    )  # fmt: skip
    return Reading(number, hosts.used, note)


def _note(number: int, whole: bool) -> str | None:
    return None if whole else f"the last record, in line {number:,}, is cut"


def _sadf(stream: Readable, hosts: _Hosts) -> tuple[int, str | None]:
    number, titles, whole = 0, list[str](), True
    for number, line in lines(stream):
        cells = line.strip().split(";")
        if line.startswith("#"):
            titles = [cells[0].removeprefix("#").strip(), *cells[1:]]
            continue
        row = dict(zip(titles, cells, strict=False))
        if len(cells) == len(titles) and row.get("CPU") in ("-1", "all"):
            hosts.add(row.get("hostname"), None, _shares(row.get("%idle"), row.get("%iowait")), number, line)
        whole = len(cells) == len(titles) or cells == [""]
    return number, _note(number, whole)


def _sadf_json(stream: Readable, hosts: _Hosts) -> tuple[int, str | None]:
    data = read_head(stream, _LARGEST)
    number = data.count(b"\n") + (not data.endswith(b"\n"))
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        return number, f"is no complete JSON: {str(error)[:100]}"
    for host in _dicts(_of(_of(top, "sysstat"), "hosts")):
        cpus = finite(host.get("number-of-cpus"))
        for moment in _dicts(host.get("statistics")):
            listed = next((one for one in _dicts(moment.get("cpu-load")) if one.get("cpu") in ("all", -1, "-1")), None)
            load = moment.get("avg-cpu") if listed is None and isinstance(moment.get("avg-cpu"), dict) else listed
            if load is not None:
                named = host.get("nodename") if isinstance(host.get("nodename"), str) else None
                shown = f"{json.dumps(moment.get('timestamp'))} {json.dumps(load)}"
                hosts.add(
                    named, None if cpus is None else int(cpus), _shares(load.get("idle"), load.get("iowait")), 1, shown
                )
    return number, None


def _dstat(stream: Readable, hosts: _Hosts) -> tuple[int, str | None]:
    number, host, idle, waiting, columns, whole = 0, None, None, None, 0, True
    for number, line in lines(stream):
        cells = cells_of(line[:4000])
        if cells[:1] == ["Host:"]:
            host = cells[1] if len(cells) > 1 else None
        elif "idl" in cells:
            columns = len(cells)
            idle, waiting = cells.index("idl"), cells.index("wai") if "wai" in cells else None
        elif idle is not None and cells:
            whole = len(cells) == columns
            if not whole:
                continue
            told = cells[waiting] if waiting is not None and len(cells) > waiting else "0"
            hosts.add(host, None, _shares(cells[idle], told), number, line)
    return number, _note(number, whole)


def _atop(stream: Readable, hosts: _Hosts) -> tuple[int, str | None]:
    """The first report counts from the start of the node."""
    number, first, columns, whole = 0, True, 0, True
    for number, line in lines(stream):
        if line.startswith("SEP"):
            first = False
        row = _ATOP.fullmatch(line) if line.startswith("CPU ") else None
        cells = line.count(" ") if line.startswith("CPU ") else columns
        columns = columns or cells
        whole = cells == columns
        if not whole:
            continue
        if row is None or first:
            continue
        ticks = [int(cell) for cell in row[5].split()]
        total = int(row[2]) * int(row[3]) * int(row[4])
        if total:
            idle, waiting = (100 * ticks[at] / total for at in (_ATOP_IDLE, _ATOP_WAIT))
            hosts.add(row[1], int(row[4]), (100 - idle - waiting, waiting), number, line)
    return number, _note(number, whole)


def _shares(idle: Any, waiting: Any) -> tuple[float, float] | None:
    """How busy the processors were, and how long they waited, in % of the time; None where that is not known."""
    try:
        return 100 - float(idle) - float(waiting or 0), float(waiting or 0)
    except (TypeError, ValueError):
        return None


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()
