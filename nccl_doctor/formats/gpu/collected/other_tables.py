"""Tables that are drawn like that of nvidia-smi by tools of other makers: `hl-smi` of Habana, `xpu-smi` 2 of Intel, `ixsmi` of Iluvatar."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu.collected.value_rows import ValueRows
from nccl_doctor.formats.gpu.sample_statistics import Samples
from nccl_doctor.formats.gpu.sample_totals import Gpu
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_lines

_HEAD = re.compile(r"\|[ A-Za-z]{1,40}?(?P<tool>HL-SMI|XPU-SMI|IX-SMI)[ :]")
_DEVICE = re.compile(
    r"\| {1,4}(?P<index>\d{1,3}) {1,4}(?P<name>\S.{0,40}?) {2,40}[^|]{0,40}\| {0,4}[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d "
)
_TEMPERATURE = re.compile(r" (\d{1,3}) ?C ")
_POWER = re.compile(r" (\d{1,5}) ?W / {0,5}(\d{1,5}) ?W ")
_MEMORY = re.compile(r" (\d{1,8}) ?MiB / {0,8}(\d{1,8}) ?MiB ")
_USE = re.compile(r" (\d{1,3})% ")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the devices of every table, each two lines.

    Source: `hl-smi` of Gaudi's software 1.9 and newer, `xpu-smi` 2::

        |   3  HL-225              N/A  | 0000:9a:00.0     N/A |                   0  |
        | N/A   31C   N/A   108W / 600W |  11482MiB / 98304MiB |     0%           N/A |
    """
    rows = ValueRows()
    tools: set[str] = set()
    device: tuple[Gpu, int, str] | None = None  # whose second line follows
    sweep = number = 0
    for number, label, text in plain_lines(stream):
        if (head := _HEAD.match(text)) is not None:
            tools.add(head["tool"].lower())
            sweep += 1
        elif tools and (found := _DEVICE.match(text)) is not None:
            device = Gpu(label.host, int(found["index"]), None, found["name"]), number, text
        elif device is not None:
            _add(rows, device, sweep, f"{text} ")
            device = None
    rows.flush()
    if rows.samples.gpus:
        rows.samples.write(facts, name, min(tools))
    refused = f"names more than {Samples.MAX_GPUS:,} GPUs; the others were left out"
    return Reading(number, rows.used, refused if rows.samples.refused else None)


def _add(rows: ValueRows, device: tuple[Gpu, int, str], sweep: int, text: str) -> None:
    gpu, number, shown = device
    found = [
        ("temperature", _TEMPERATURE.search(text), 1), ("power", power := _POWER.search(text), 1), ("power_limit", power, 2),
        ("memory", memory := _MEMORY.search(text), 1), ("memory_total", memory, 2), ("util", _USE.search(text), 1),
    ]  # fmt: skip
    slot = rows.slot(gpu)
    for column, match, part in found:
        if match is not None:
            rows.add(slot, sweep, column, float(match[part]), number, f"{shown.strip()} {text.strip()}")
