"""Samples of GPUs and other accelerators by collectors that have a form of their own: Telegraf, nvtop, xpu-smi, neuron-monitor, npu-smi."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ActiveTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.collected.value_rows import ValueRows
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Gpu
from nccl_doctor.formats.json_numbers import finite
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, line_numbers, lines, read_head

_LARGEST = 64 << 20  # bytes of snapshots of nvtop
_TELEGRAF = {
    "utilization_gpu": "util", "memory_used": "memory", "memory_total": "memory_total", "power_draw": "power",
    "power_limit": "power_limit", "clocks_current_sm": "clock", "temperature_gpu": "temperature",
    "pcie_link_width_current": "width",
}  # fmt: skip
_XPU = {
    "GPU Utilization (%)": "util", "GPU Power (W)": "power", "GPU Frequency (MHz)": "clock",
    "GPU Core Temperature (Celsius Degree)": "temperature", "GPU Memory Used (MiB)": "memory",
}  # fmt: skip
_NVTOP = {"gpu_util": "util", "power_draw": "power", "gpu_clock": "clock", "temp": "temperature"}
_LINE = re.compile(r"\Anvidia_smi,((?:[^ \\]|\\.){1,2000}) ([^ ]{1,4000})(?: (\d{10,19}))?\s*")
_FIELD = re.compile(r"(\w{1,60})=(-?\d{1,15}(?:\.\d{1,12})?)i?(?:,|\Z)")
_TAG = re.compile(r"(\w{1,60})=((?:[^,\\]|\\.){0,200})(?:,|\Z)")
_LEADING = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")
_NPU = re.compile(r"\| (\d{1,4}) {1,8}(\S{2,20}) {0,20}\| (\w{2,12}) {0,20}\| {0,4}(\d{1,5}(?:\.\d)?) {1,20}(\d{1,3}) ")
_NPU_CHIP = re.compile(
    r"\| \d{1,4} {1,40}\| [0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.\d {0,20}\| (\d{1,3}) {1,20}\d{1,9} {0,20}/ ?\d"
)
XPU_HEAD = b"Timestamp, DeviceId, "


_HEALTH = {"OK": "pass", "Warning": "warn", "Alarm": "fail", "Critical": "fail"}  # outcome of a word of npu-smi


class _Rows(ValueRows):
    """Values, and what npu-smi calls the health of each NPU: of several tables the worst."""

    def __init__(self) -> None:
        super().__init__()
        self.health: dict[int, tuple[str, tuple[int, str]]] = {}

    def see_health(self, number: int, word: str, place: tuple[int, str]) -> None:
        """Take the word for one NPU."""
        known = self.health.get(number)
        order = ("fail", "warn", "other", "pass")
        if known is None or order.index(_HEALTH.get(word, "other")) < order.index(_HEALTH.get(known[0], "other")):
            self.health[number] = word, place


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Sum up the samples of a file.

    Source: Telegraf's plug-in `nvidia_smi`, `nvtop -s`, `xpu-smi dump`, `neuron-monitor`, `npu-smi info`::

        nvidia_smi,host=node01,index=0,name=NVIDIA\\ H100 utilization_gpu=97i,power_draw=688.1 1763625600000000000
        Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)
        {"neuron_runtime_data":[{"report":{"neuroncore_counters":{"neuroncores_in_use":{"0":{"neuroncore_utilization":88.2}}}}}]}
    """
    head = read_head(stream, 1 << 12)
    stream = Joined(head, stream)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    rows = _Rows()
    readers: tuple[tuple[bool, Callable[[Readable, _Rows], Reading], str], ...] = (
        (start.startswith(XPU_HEAD), _xpu, "xpu-smi"),
        (start.startswith(b"nvidia_smi,"), _telegraf, "telegraf"),
        (start.startswith((b"+--", b"| npu-smi ")), _npu, "npu-smi"),
        (start.startswith(b"["), _nvtop, "nvtop"),
        (True, _neuron, "neuron-monitor"),
    )
    read, source = next((read, source) for fits, read, source in readers if fits)
    reading = read(stream, rows)
    rows.flush()
    facts.add(
        ActiveTest(None, "npu-smi", "health", f"NPU {number}", _HEALTH.get(word, "other"), None, None, word, facts.evidence(name, *place))
        for number, (word, place) in rows.health.items()
    )  # fmt: skip
    if rows.samples.gpus:
        rows.samples.write(facts, name, source)
    note = reading.note
    if rows.samples.refused:
        note = f"names more than {Samples.MAX_GPUS:,} GPUs; the others were left out"
    return Reading(reading.lines, rows.used, note)


def _telegraf(stream: Readable, rows: ValueRows) -> Reading:
    number, note = 0, None
    for number, line in lines(stream):
        match = _LINE.fullmatch(line)
        if match is None:
            note = f"line {number:,} is cut or damaged" if line.startswith("nvidia_smi") else note
            continue
        tags = {key: re.sub(r"\\(.)", r"\1", value) for key, value in _TAG.findall(match[1])}
        index = tags.get("index", "")
        gpu = Gpu(
            tags.get("host"),
            int(index) if index.isdecimal() and len(index) < 5 else None,
            tags.get("uuid"),
            tags.get("name"),
        )
        if gpu.number is None and gpu.uuid is None:
            continue
        time = int(match[3]) / 10 ** (len(match[3]) - 10) if match[3] else float(number)
        _add(
            rows,
            gpu,
            time,
            ((_TELEGRAF.get(key), float(value)) for key, value in _FIELD.findall(match[2])),
            number,
            line,
        )
    return Reading(number, 0, note)


def _xpu(stream: Readable, rows: ValueRows) -> Reading:
    number, note, columns = 0, None, list[str | None]()
    for number, line in lines(stream):
        cells = [cell.strip() for cell in line.split(",")]
        if line.startswith("Timestamp, "):
            columns = [_XPU.get(cell) for cell in cells]
            continue
        if len(cells) != len(columns) or not cells[1].isdecimal() or len(cells[1]) > 4:
            note = f"line {number:,} is cut or damaged" if line.strip() else note
            continue
        values = (
            (column, float(cell))
            for column, cell in zip(columns, cells, strict=True)
            if column and _LEADING.fullmatch(cell)
        )
        _add(rows, Gpu(None, int(cells[1])), _clock(cells[0], number), values, number, line)
    return Reading(number, 0, note)


def _clock(text: str, number: int) -> float:
    """Seconds of a time of day; the number of the line where it is none, which keeps the order."""
    try:
        moment = datetime.strptime(text.partition(".")[0], "%H:%M:%S")
    except ValueError:
        return float(number)
    return moment.hour * 3600.0 + moment.minute * 60 + moment.second


def _nvtop(stream: Readable, rows: ValueRows) -> Reading:
    """Snapshots one behind the other, each a list of devices in their order."""
    text = read_head(stream, _LARGEST).decode("utf-8", "replace")
    decoder, at, snapshot = json.JSONDecoder(), text.find("["), 0
    line_of = line_numbers(text)
    note = f"is longer than {_LARGEST >> 20} MiB; reading ended there" if stream.read(1) else None
    while at >= 0:
        try:
            devices, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            note = note or f"ends in the middle of the snapshot that starts in line {line_of(at)}"
            break
        line = line_of(at)
        for index, device in enumerate(devices if isinstance(devices, list) else []):
            if isinstance(device, dict):
                values = ((column, _leading(device.get(key))) for key, column in _NVTOP.items())
                _add(
                    rows,
                    Gpu(None, index, None, _text(device.get("device_name"))),
                    snapshot,
                    values,
                    line,
                    json.dumps(device),
                )
        snapshot, at = snapshot + 1, text.find("[", end)
    return Reading(text.count("\n") + (not text.endswith("\n")), 0, note)


def _neuron(stream: Readable, rows: ValueRows) -> Reading:
    number, note = 0, None
    for number, line in lines(stream):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            note = note or f"line {number} is no complete JSON"
            continue
        host = _text(_within(record, "instance_info", "instance_name")) or None
        for runtime in _list(_within(record, "neuron_runtime_data")):
            cores = _within(runtime, "report", "neuroncore_counters", "neuroncores_in_use")
            for core, use in cores.items() if isinstance(cores, dict) else ():
                if core.isdecimal() and len(core) < 5:
                    value = finite(_within(use, "neuroncore_utilization"))
                    shown = f"neuroncore {core}: {json.dumps(use)[:200]}"
                    _add(rows, Gpu(host, int(core), None, "Neuron core"), number, [("util", value)], number, shown)
    return Reading(number, 0, note)


def _npu(stream: Readable, rows: _Rows) -> Reading:
    """Two lines a device: power and temperature, then how busy it is."""
    number, sweep, gpu, power, shown = 0, 0, None, list[tuple[str | None, float | None]](), ""
    for number, line in lines(stream):
        if (device := _NPU.match(line)) is not None:
            sweep += device[1] == "0"
            gpu, shown = Gpu(None, int(device[1]), None, device[2]), line
            rows.see_health(int(device[1]), device[3], (number, line.strip()))
            power = [("power", float(device[4])), ("temperature", float(device[5]))]
        elif gpu is not None and (chip := _NPU_CHIP.match(line)) is not None:
            _add(rows, gpu, sweep, [*power, ("util", float(chip[1]))], number, f"{shown.strip()} {line.strip()}")
            gpu = None
    return Reading(number, 0)


def _add(
    rows: ValueRows, gpu: Gpu, time: float, values: "Iterator[tuple[str | None, float | None]] | list[tuple[str | None, float | None]]",
    number: int, line: str,
) -> None:  # fmt: skip
    slot = rows.slot(gpu)
    for column, value in values:
        if column is not None and value is not None:
            rows.add(slot, time, column, value, number, line)


def _within(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _leading(value: Any) -> float | None:
    found = _LEADING.match(value) if isinstance(value, str) else None
    return float(found[0]) if found is not None else None
