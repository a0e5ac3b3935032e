"""Tables in columns of blanks: `nvidia-smi dmon`, `nvidia-smi pmon` and `dcgmi dmon`. Columns are found by their titles only."""

import re
from collections.abc import Callable

import numpy as np

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuProcess
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Batch, Gpu, Place
from nccl_doctor.formats.gpu.smi_csv import seconds

_DMON = {
    "sm": "util", "pwr": "power", "gtemp": "temperature", "temp": "temperature", "pclk": "clock", "fb": "memory",
    "sbecc": "counter:ecc-corrected", "dbecc": "counter:ecc-uncorrected", "pci": "counter:pcie-replays",
}  # fmt: skip
_DCGM = {
    "GPUTL": "util", "POWER": "power", "SMCLK": "clock", "FBUSD": "memory", "FBTTL": "memory_total",
    "TMPTR": "temperature", "SMACT": "sm_active", "DVCCTR": "mask", "XIDER": "counter:xid",
    "RPCTR": "counter:pcie-replays",
}  # fmt: skip
_APPS = re.compile(r"(?:[a-z_]{2,20}(?: \[MiB\])?, ?){0,8}pid(?:, ?[a-z_]{2,20}(?: \[MiB\])?){1,8}(?:, ?)?$")
_BATCH = 20_000
_PROCESSES = 10_000  # different ones that are kept
_Key = tuple[str | None, int | str | None, int]  # host, index or uuid, pid


class _Columns:
    """Samples of one kind under titles that may change on the way."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._slots: list[int] = []
        self._values: dict[str, list[float]] = {}
        self._times: list[float] = []
        self._places: list[Place] = []

    def add(self, host: str | None, gpu: int, values: dict[str, float], time: float, place: Place) -> None:
        slot = self.samples.slot((host, gpu), lambda: Gpu(host, gpu))
        if slot < 0:
            return
        count = len(self._slots)
        self._slots.append(slot)
        self._times.append(time)
        self._places.append(place)
        for name, value in values.items():
            column = self._values.setdefault(name, [])
            column += [float("nan")] * (count - len(column)) + [value]
        if len(self._slots) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        count = len(self._slots)
        if not count:
            return
        columns = {
            name: np.array(values + [float("nan")] * (count - len(values))) for name, values in self._values.items()
        }
        times, places = np.array(self._times), self._places
        self.samples.add(
            Batch(np.array(self._slots), columns, None if np.isnan(times).all() else times, lambda row: places[row])
        )
        self._slots, self._values, self._times, self._places = [], {}, [], []


class Tables:
    """Reads the lines that belong to such tables."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._take: dict[str | None, Callable[[list[str], str, int], bool]] = {}
        self._dmon = _Columns()
        self._dcgm = _Columns()
        self._processes: dict[_Key, tuple[str | None, str | None, float | None, int, Place]] = {}
        self._processes_seen = False

    def take(self, line: str, host: str | None, number: int) -> bool:
        """Use a line; False where it is not part of a table."""
        if line.startswith("#"):
            return self._title(line.lstrip("# ").split(), host)
        if "pid," in line and _APPS.match(line):
            titles = [title.partition("[")[0].strip() for title in line.split(",")]
            self._processes_seen = True
            self._take[host] = lambda cells, line, number: self._app_row(titles, host, line, number)
            return True
        known = self._take.get(host)
        return known is not None and known(line.split(), line, number)

    def _title(self, titles: list[str], host: str | None) -> bool:
        lower = [title.lower() for title in titles]
        if titles[:1] == ["Entity"] and len(titles) > 1:
            self._take[host] = lambda cells, line, number: self._dcgm_row(titles, cells, host, line, number)
        elif "gpu" in lower[:3] and "pid" in lower:
            self._processes_seen = True
            self._take[host] = lambda cells, line, number: self._pmon_row(lower, cells, host, line, number)
        elif "gpu" in lower[:3] and any(title in _DMON for title in lower):
            self._take[host] = lambda cells, line, number: self._dmon_row(lower, cells, host, line, number)
        else:
            return host in self._take and "idx" in lower
        return True

    def _dmon_row(self, titles: list[str], cells: list[str], host: str | None, line: str, number: int) -> bool:
        row = dict(zip(titles, cells, strict=False))
        if len(cells) != len(titles) or not row["gpu"].isdigit():
            return False
        values = {_DMON[title]: _number(cell) for title, cell in row.items() if title in _DMON}
        self._dmon.add(host, int(row["gpu"]), values, _time(row), (number, line))
        return True

    def _dcgm_row(self, titles: list[str], cells: list[str], host: str | None, line: str, number: int) -> bool:
        if len(cells) != len(titles) + 1 or cells[0] != "GPU" or not cells[1].isdigit():
            return bool(cells[:1] == ["ID"])
        values = {
            _DCGM[title]: _number(cell) for title, cell in zip(titles[1:], cells[2:], strict=True) if title in _DCGM
        }
        if "GRACT" in titles and "util" not in values:
            values["util"] = 100 * _number(cells[titles.index("GRACT") + 1])
        self._dcgm.add(host, int(cells[1]), values, float("nan"), (number, line))
        return True

    def _pmon_row(self, titles: list[str], cells: list[str], host: str | None, line: str, number: int) -> bool:
        row = dict(zip(titles, cells, strict=False))
        if len(cells) < len(titles) - 1 or not row["gpu"].isdigit():
            return False
        if row.get("pid", "-").isdigit() and len(self._processes) < _PROCESSES:
            name = " ".join(cells[titles.index("command") :]) if "command" in titles else None
            self._process(
                (host, int(row["gpu"]), int(row["pid"])), row.get("type"), name, row.get("fb", "-"), (number, line)
            )
        return True

    def _app_row(self, titles: list[str], host: str | None, line: str, number: int) -> bool:
        row = dict(zip(titles, (cell.strip() for cell in line.split(",")), strict=False))
        if len(row) != len(titles) or not row["pid"].isdigit():
            return False
        if len(self._processes) < _PROCESSES:
            memory = row.get("used_gpu_memory [MiB]") or row.get("used_gpu_memory") or row.get("used_memory") or "-"
            gpu = row.get("gpu_uuid") or row.get("gpu_bus_id") or row.get("gpu_name")
            name = row.get("process_name") or row.get("name")
            self._process((host, gpu, int(row["pid"])), "C", name, memory.removesuffix(" MiB"), (number, line))
        return True

    def _process(self, key: _Key, kind: str | None, name: str | None, memory: str, place: Place) -> None:
        old = self._processes.get(key)
        known = [value for value in (old[2] if old else None, _number(memory)) if value is not None and value == value]
        self._processes[key] = (
            kind,
            name or None,
            max(known, default=None),
            old[3] + 1 if old else 1,
            old[4] if old else place,
        )

    def write(self, facts: Facts) -> None:
        """Turn what was read into rows."""
        for columns, source in ((self._dmon, "dmon"), (self._dcgm, "dcgm")):
            columns.flush()
            if columns.samples.gpus:
                columns.samples.write(facts, self._file, source)
        if self._processes_seen:
            facts.mark_covered("gpu_process")
        facts.add(
            GpuProcess(
                host=host, gpu=gpu if isinstance(gpu, int) else None, uuid=None if isinstance(gpu, int) else gpu,
                pid=pid, kind=kind, name=name, memory=memory, n=n, ref=facts.evidence(self._file, *place),
            )
            for (host, gpu, pid), (kind, name, memory, n, place) in self._processes.items()
        )  # fmt: skip


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _time(row: dict[str, str]) -> float:
    date, clock = row.get("date", ""), row.get("time", "")
    return seconds(f"{date} {clock}") if len(date) == 8 else float("nan")
