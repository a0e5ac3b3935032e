"""Lists of the GPUs of a node: `nvidia-smi -L`, `dcgmi discovery -l`, `rocminfo`, and the instances of divided GPUs in
`nvidia-smi mig -lgi`.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import compress, repeat

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ListedGpu
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.line_forms import FormMemo
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_MOST = 200_000  # GPUs of one file
_MANY = 8  # lines of one writer from which on it pays to look at them together
_GPU = re.compile(r"GPU (?P<gpu>\d{1,4}): (?P<model>\S.{0,80}?) \(UUID: (?P<uuid>GPU-[0-9a-f-]{8,40})\)")
_DEVICE = re.compile(r" {2,4}MIG (?P<profile>\S{1,20}) +Device +\d{1,2}: \(UUID: MIG-")
_DISCOVERED = re.compile(
    r"\| (?P<gpu>\d{1,4})? +\| (?:(?:Device )?Name: (?P<model>\S.{0,80}?)|PCI Bus ID: (?P<pci>[0-9A-Fa-f:.]{7,16})|"
    r"Device UUID: (?P<uuid>GPU-[0-9a-f-]{8,40})) +\|"
)
_INSTANCE = re.compile(
    r"\| {2,4}(?P<gpu>\d{1,3}) {2}MIG (?P<profile>\d\S{1,20}) +\d{1,3} +\d{1,3} +\d{1,2}:\d{1,2} +\|"
)
_AGENT = re.compile(
    r"Agent \d{1,3} *$|  (?P<key>Name|Uuid|Marketing Name|Device Type|BDFID): +(?P<value>\S.{0,80}?) *$"
)
_Key = tuple[str | None, str, int]  # host, tool, GPU


class _Gpu:
    """What is known of one GPU."""

    def __init__(self, number: int, text: str) -> None:
        self.place = number, text
        self.model: str | None = None
        self.pci: str | None = None
        self.uuid: str | None = None
        self.profiles: list[str] = []

    def add(self, found: dict[str, str | None]) -> None:
        """Take the fields of a line that are there."""
        self.model = found.get("model") or self.model
        self.pci = found.get("pci") or self.pci
        self.uuid = found.get("uuid") or self.uuid


class _Agents:
    """The agents of `rocminfo` of one host: processors, and GPUs, whose number is their place among GPUs."""

    def __init__(self) -> None:
        self.gpus = 0
        self._of: dict[str, str] = {}  # what the lines of the agent say so far

    def take(self, found: re.Match[str]) -> tuple[int, dict[str, str | None]] | None:
        """Number and fields of a GPU of which a line tells something; None for other lines."""
        key, value = found["key"], found["value"]
        if key is None:
            self._of = {}
            return None
        if key == "BDFID":  # bus, device and function of a GPU, behind its type
            is_known = self._of.get("Device Type") == "GPU" and value.isdecimal() and len(value) < 9
            number = int(value) if is_known else 0
            pci = f"{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"
            return (self.gpus - 1, {"pci": pci}) if is_known else None
        if key in self._of:  # of the instruction sets, which have names too
            return None
        self._of[key] = value
        if key != "Device Type" or value != "GPU":
            return None
        self.gpus += 1
        model, uuid = self._of.get("Marketing Name") or self._of.get("Name"), self._of.get("Uuid")
        return self.gpus - 1, {"model": model, "uuid": uuid}


class _Listed:
    """The lines of a stream that may tell something of a GPU: their number, the host that wrote them, and their text."""

    def __init__(self, stream: Readable) -> None:
        self.lines = 0  # of the stream, as far as it was read
        self._stream = stream
        self._forms = FormMemo(_is_listed)

    def __iter__(self) -> Iterator[tuple[int, str | None, str]]:
        for first, label, texts in plain_batches(self._stream):
            listed = self._forms.of_all(texts) if len(texts) >= _MANY else repeat(True)
            for number, text in compress(enumerate(texts, first), listed):
                yield number, label.host, text
            self.lines = first - 1 + len(texts)


def _is_listed(text: str) -> bool:
    """Whether a line, or one that differs in digits only, tells something."""
    return any(expression.match(text) is not None for expression in (_GPU, _DEVICE, _DISCOVERED, _INSTANCE, _AGENT))


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every list, of one node or many behind prefixes.

    Source: `nvidia-smi` of drivers 390 and newer, `dcgmi` of DCGM 2 to 4::

        GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0f9a1c32-…)
        | 0      | Name: NVIDIA H100 80GB HBM3                                          |
        |   0  MIG 1g.10gb         19       13          6:1     |

    `rocminfo` of ROCm (`rocminfo.cc`)::

          Marketing Name:          AMD Instinct MI250X
          Device Type:             GPU
    """
    agents: defaultdict[str | None, _Agents] = defaultdict(_Agents)
    gpus: dict[_Key, _Gpu] = {}
    last: dict[str | None, _Key] = {}  # the GPU that further lines of a host are about
    listed = _Listed(stream)
    used = 0
    for number, host, text in listed:
        fields: dict[str, str | None] | None = None
        if (found := _GPU.match(text)) is not None:
            key = host, "nvidia-smi", int(found["gpu"])
        elif (found := _DEVICE.match(text)) is not None and host in last:
            key = last[host]
        elif (found := _DISCOVERED.match(text)) is not None:
            if found["gpu"] is None and host not in last:
                continue
            key = (host, "dcgmi", int(found["gpu"])) if found["gpu"] is not None else last[host]
        elif (found := _INSTANCE.match(text)) is not None:
            key = host, "nvidia-smi mig", int(found["gpu"])
        elif (found := _AGENT.match(text)) is not None:
            if (told := agents[host].take(found)) is None:
                continue
            key, fields = (host, "rocminfo", told[0]), told[1]
        else:
            continue
        used += 1
        last[host] = key
        gpu = gpus.get(key)
        if gpu is None and len(gpus) < _MOST:
            gpu = gpus[key] = _Gpu(number, text)
        if gpu is not None:
            fields = found.groupdict() if fields is None else fields
            gpu.add(fields)
            profile = fields.get("profile")
            gpu.profiles += [profile] if profile and len(gpu.profiles) < 64 else []
    facts.mark_covered("listed_gpu")
    facts.add(
        ListedGpu(
            host, name, tool, number_, gpu.uuid, gpu.pci, gpu.model, len(gpu.profiles), ",".join(gpu.profiles) or None,
            facts.evidence(name, gpu.place[0], gpu.place[1].strip()),
        )
        for (host, tool, number_), gpu in gpus.items()
    )  # fmt: skip
    note = f"lists more than {_MOST:,} GPUs; the others were left out" if len(gpus) >= _MOST else None
    return Reading(listed.lines, used, note)
