"""The output of `nvidia-smi -q`, as text or (`-q -x`) as XML, whole or in parts (`-d ECC,PERFORMANCE,...`).

The text is a tree of titles by indentation. Its places are renamed to those of the XML, so that both fill the same columns,
which are also those of a live node. GPUs are numbered as they come, since only their bus id is printed. Processes are left out: a
capture that was taken while a job ran shows that job.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuHealth, LinkCounter, NodeDriver, NodeGpu
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.gpu import smi_xml
from nccl_doctor.formats.gpu.refusals import REFUSALS, REFUSED, Refusal, error_row, refusal
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, Sections, read_head

_MAX_BYTES = 32 << 20  # a machine of 16 GPUs prints 300 kB
_GPUS = 64
_HOSTS = 4096
_REFUSALS = 100  # of one GPU
_LINES = 40_000  # of one node; a machine of 16 GPUs prints 8,000
_TITLE = re.compile(r"( {0,40})([A-Za-z][^:]{0,60}?) {0,80}$")
_LONGEST = 400  # characters of a value
_VALUES = 512  # of a place that are remembered
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_SMI_HEADS = re.compile(rb"={5,40}NVSMI LOG={5,40}")
_PART = re.compile(
    r"(?:[^\n]{0,200}\n){0,2} {4}(?:Fabric|ECC Errors|Remapped Rows|Retired Pages|Clocks (?:Throttle|Event) Reasons|(?:GPU )?Power Readings"
    r"|FB Memory Usage|Temperature|Utilization) {0,40}\n {8}[A-Z][\w ]{1,60}: "
)
"""A part of what is printed of a GPU, without its first line: what `grep -A` leaves."""
_SMI_ALONE = re.compile(
    r"\s{0,200}(?:<|(?:\$ [^\n]{0,400}\n)?\s{0,200}={5,40}NVSMI LOG"
    r"|(?:[^\n]{0,200}\n){0,3}GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s{0,9}\n {4}[A-Z]"
    r"|(?:[^\n]{0,200}\n){0,2}(?:Timestamp|Driver Version|Attached GPUs) {20,60}: )"
)
_PART_TITLE = re.compile(r" {4}[A-Z][A-Za-z0-9 ]{2,40}$")
_SECTION_END = re.compile(r"_{20,60}\s*$|\*{3} /")
_DRIVER = re.compile(r"Driver Version|KMD Version|<(?:driver|kmd)_version")
_VERSIONS = {"driver_version": "driver", "kmd_version": "driver", "cuda_version": "cuda", "cuda_umd_version": "cuda"}
_XML_GPU = re.compile(r"\s*<gpu id=\"")
_PLACES = {  # place in the text, with small letters and underscores -> place in the XML
    "gpu_uuid": "uuid",
    "mig_mode/current": "mig_mode/current_mig", "mig_mode/pending": "mig_mode/pending_mig",
    "gpu_link_info/pcie_generation/max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "gpu_link_info/pcie_generation/current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "gpu_link_info/link_width/max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "gpu_link_info/link_width/current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "replays_since_reset": "pci/replay_counter",
    "utilization/gpu": "utilization/gpu_util", "utilization/memory": "utilization/memory_util",
    "ecc_mode/current": "ecc_mode/current_ecc", "ecc_mode/pending": "ecc_mode/pending_ecc",
    "retired_pages/single_bit_ecc": "retired_pages/multiple_single_bit_retirement/retired_count",
    "retired_pages/double_bit_ecc": "retired_pages/double_bit_retirement/retired_count",
    "retired_pages/pending_page_blacklist": "retired_pages/pending_blacklist",
    "retired_pages/pending_page_retirement": "retired_pages/pending_retirement",
    "remapped_rows/correctable_error": "remapped_rows/remapped_row_corr",
    "remapped_rows/uncorrectable_error": "remapped_rows/remapped_row_unc",
    "remapped_rows/pending": "remapped_rows/remapped_row_pending",
    "remapped_rows/remapping_failure_occurred": "remapped_rows/remapped_row_failure",
    "temperature/gpu_current_temp": "temperature/gpu_temp",
    "temperature/memory_current_temp": "temperature/memory_temp",
    "temperature/gpu_slowdown_temp": "temperature/gpu_temp_slow_threshold",
    "temperature/gpu_t_limit_temp": "temperature/gpu_temp_tlimit",
    "power_readings/current_power_limit": "gpu_power_readings/current_power_limit",
    "gpu_power_readings/instantaneous_power_draw": "gpu_power_readings/instant_power_draw",
    "clocks/sm": "clocks/sm_clock", "clocks/memory": "clocks/mem_clock",
    "max_clocks/sm": "max_clocks/sm_clock", "max_clocks/memory": "max_clocks/mem_clock",
    "applications_clocks/graphics": "applications_clocks/graphics_clock",
    "default_applications_clocks/graphics": "default_applications_clocks/graphics_clock",
}  # fmt: skip
_REASON = re.compile(r"(clocks_(?:event|throttle)_reasons)/(?:[\w/]*/)?(\w+)$")
_BANKS = re.compile(r"remapped_rows/(?:bank_remap_availability_histogram/none|row_remapper_histogram/\w*none)$")
# Columns of which another value than nothing is worth showing as the line that proves it.
_TELLING = (
    "uncorrected", "uncorrected_total", "sram_threshold", "remap_failed", "remap_pending", "retired_pending", "recovery",
)  # fmt: skip


_SUMMED = ("uncorrected", "uncorrected_total")  # those of them to which several lines add


class _Gpu(NamedTuple):
    """A GPU while its part is read."""

    values: dict[str, Any]
    ref: int
    proof: dict[str, tuple[int, str]]  # column -> line that filled it
    refusals: list[Refusal]


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one capture.

    Source: `nvidia-smi -q [-x] [-d …]` of drivers 390 and newer::

        GPU 00000000:1B:00.0
            Product Name                          : NVIDIA H100 80GB HBM3
    """
    head = read_head(stream, 1 << 12)
    facts.mark_covered("node_driver", "node_gpu", "gpu_health", "link_counter", "node_gpu_error")
    start = head.decode("utf-8", "replace").lstrip("\ufeff")
    if _SMI_ALONE.match(start) is None and _PART.match(start) is None:
        return _inside(Joined(head, stream), name, facts)
    data = head + read_head(stream, _MAX_BYTES + 1 - len(head))
    text = data[:_MAX_BYTES].decode("utf-8", "replace")
    lines = text.splitlines()
    note = f"is larger than {_MAX_BYTES >> 20} MiB; the rest was not read" if len(data) > _MAX_BYTES else None
    if re.match(r"\s*<", text):
        system, gpus, used = _xml(text, lines, name, facts)
        if "<!ENTITY" in text:
            note = "declares XML entities, which nvidia-smi never does; the text behind them was not read"
        elif "</nvidia_smi_log>" not in text[-200:]:
            note = note or f"ends in GPU {len(gpus)} of it, in line {len(lines)}: the file is cut"
    else:
        system, gpus, used = _text(enumerate(lines, 1), name, facts, refuses=any(map(text.__contains__, REFUSALS)))
    attached = system.get("attached")
    if note is None and attached is not None and attached > len(gpus):
        note = f"says that {attached} GPUs are attached and ends after GPU {len(gpus)}, in line {len(lines)}"
    first = next((n for n, line in enumerate(lines, 1) if _DRIVER.search(line)), 1)
    _add(facts, name, None, system, gpus, (first, lines[first - 1].strip() if lines else ""))
    return Reading(len(lines), used, note)


def _inside(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the output inside a log, such as the report of `nvidia-bug-report.sh`; of each host the first that shows GPUs."""
    sections = Sections(stream, _SMI_HEADS)
    lines: dict[str | None, list[tuple[int, str]]] = {}
    closed: set[str | None] = set()
    used = 0
    for number, label, text in sections:
        own = lines.get(label.host)
        if "NVSMI LOG" in text:
            if own is None and len(lines) < _HOSTS:
                lines[label.host] = [(number, text)]
            elif own is not None and any(_GPU.match(line) for _, line in own):
                closed.add(label.host)
                continue
        elif own is None or label.host in closed or len(own) > _LINES:
            continue
        elif _SECTION_END.match(text):
            closed.add(label.host)
            continue
        else:
            own.append((number, text))
        sections.used()
    for host, own in lines.items():
        system, gpus, seen = _text(own, name, facts)
        used += seen
        _add(facts, name, host, system, gpus, (own[0][0], own[0][1].strip()))
    return Reading(sections.lines, used)


def _add(
    facts: Facts, name: str, host: str | None, system: dict[str, Any], gpus: list[_Gpu], head: tuple[int, str]
) -> None:
    """Add the rows of one node."""
    rows: list[Any] = []
    if gpus or "driver" in system:
        ref = facts.evidence(name, *head)
        unknown: dict[str, Any] = dict.fromkeys(NodeDriver._fields)
        values = {
            "source": "nvidia-smi",
            "driver": system.get("driver"),
            "cuda": system.get("cuda"),
            "gpus": len(gpus),
            "host": host,
        }
        rows.append(NodeDriver(**{**unknown, **values, "ref": ref}))
    for gpu in gpus:
        proof = next((gpu.proof[column] for column in _TELLING if gpu.values.get(column) and column in gpu.proof), None)
        rows.append(_row(NodeGpu, gpu, host, gpu.ref))
        rows.append(_row(GpuHealth, gpu, host, facts.evidence(name, *proof) if proof else gpu.ref))
        if gpu.refusals:
            rows.append(error_row(facts, name, host, gpu.values["gpu"], gpu.values["pci"], gpu.refusals))
        for counter, value in gpu.values["counters"].items():
            at = facts.evidence(name, *gpu.proof[counter]) if counter in gpu.proof else gpu.ref
            rows.append(LinkCounter(host, name, "nvidia-smi", "pcie", f"GPU {gpu.values['gpu']}", counter, value, at))
    facts.add(rows)


def _row(table: type[NodeGpu] | type[GpuHealth], gpu: _Gpu, host: str | None, ref: int) -> NodeGpu | GpuHealth:
    return table._make(map({**gpu.values, "host": host, "ref": ref}.get, table._fields))


def _xml(text: str, lines: list[str], name: str, facts: Facts) -> tuple[dict[str, Any], list[_Gpu], int]:
    found = smi_xml.parse(text)
    heads = [(number, line.strip()) for number, line in enumerate(lines, 1) if _XML_GPU.match(line)]
    gpus = [
        _Gpu(values, facts.evidence(name, *(heads[i] if i < len(heads) else (1, ""))), {}, [])
        for i, values in enumerate(found["gpus"][:_GPUS])
    ]
    starts = [number for number, _ in heads]
    for number, line in enumerate(lines, 1):
        if REFUSED.search(line) and 0 < (at := bisect_right(starts, number)) <= len(gpus):
            what = line.strip().removeprefix("<").partition(">")[0]
            _refused(gpus[at - 1], what, line, (number, line.strip()))
    attached = re.search(r"<attached_gpus>(\d{1,3})<", text[:4000])
    system = {**found["system"], **({"attached": int(attached[1])} if attached else {})}
    return system, gpus, len(lines) if gpus or found["system"] else 0


class _Place:
    """A title in the tree of a GPU: how it is called in the XML, and what it may change."""

    def __init__(self, titles: tuple[tuple[int, str], ...]) -> None:
        self.titles = titles  # indentation and name of those above it, and its own
        self.path = "/".join(title for _, title in titles)
        self.is_banks = _BANKS.match(self.path) is not None
        self._made: dict[str, Any] = {}
        reason = _REASON.match(self.path)
        self.is_reason = reason is not None
        if reason is not None:
            name = {"idle": "gpu_idle"}.get(reason[2], reason[2])
            self.xml = f"{reason[1]}/{reason[1][:-1]}_{name}"
        else:
            self.xml = _PLACES.get(self.path.removeprefix("pci/"), self.path)
        self.column = smi_xml.COLUMNS.get(self.xml)
        self.is_read = self.is_banks or smi_xml.is_read(self.xml)
        self.sums = smi_xml.ecc_sums(self.xml) if self.is_read and not self.is_banks else ()

    def made(self, value: str) -> Any:
        """What the text of a column means; None where it does not say."""
        if value not in self._made:
            if len(self._made) >= _VALUES:
                self._made.clear()
            self._made[value] = self.column.read(value) if self.column is not None else None
        return self._made[value]


_TOP = _Place(())


@lru_cache(8192)
def _read(place: _Place, head: str) -> tuple[str, _Place] | None:
    """The title that a line has in front of its colon, and its place behind that of another line; None for another line."""
    match = _TITLE.match(head)
    if match is None:
        return None
    title = re.sub(r"\W+", "_", match[2].lower())
    return title, _below(place, len(match[1]), title)


@lru_cache(4096)
def _below(place: _Place, indent: int, title: str) -> _Place:
    """The place of a title with this indentation in a line behind that of another."""
    return _Place((*(above for above in place.titles if above[0] < indent), (indent, title))[-8:])


def _text(
    lines: Iterable[tuple[int, str]], name: str, facts: Facts, *, refuses: bool = True
) -> tuple[dict[str, Any], list[_Gpu], int]:
    """What lines say of a node and of its GPUs, and how many of them do; `refuses` is False where none holds a refusal.

    Of several outputs behind each other (`nvidia-smi -q -l`) the last whole one counts.
    """
    system: dict[str, Any] = {}
    gpus: list[_Gpu] = []
    before: list[_Gpu] = []  # of the output before
    place = _TOP
    used = 0
    parts: set[str] = set()  # of the GPU that is read, where nothing names it
    for number, text in lines:
        if gpus and "NVSMI LOG" in text:
            before, gpus, place = _later(before, gpus, system), [], _TOP
            parts.clear()
        if parts or not gpus:
            _unnamed(text, number, name, facts, gpus, parts)
        head, colon, value = text.partition(": ")
        value = value.strip()
        read = _read(place, head) if value or not colon else None
        if read is None or len(value) > _LONGEST:
            owner = _GPU.match(text)
            if owner is not None and len(gpus) < _GPUS:
                values: dict[str, Any] = {"gpu": len(gpus), "pci": owner[1].lower()[-12:], "tasks": [], "counters": {}}
                gpus.append(_Gpu(values, facts.evidence(name, number, text), {}, []))
                place, used = _TOP, used + 1
            continue
        title, place = read
        used += 1
        if gpus:
            if not value:
                continue
            if refuses and REFUSED.search(value):
                what = place.path if place.path == "fan_speed" else re.sub("[/_]", " ", place.path)
                _refused(gpus[-1], what, value, (number, text.strip()))
            column = place.column
            if column is not None:
                gpu = gpus[-1]
                if column.name not in gpu.values and (made := place.made(value)) is not None:
                    gpu.values[column.name] = made
                    if column.name in _TELLING:
                        gpu.proof[column.name] = number, text.strip()
            elif place.sums and value == "0":
                for sum_ in place.sums:
                    gpus[-1].values.setdefault(sum_, 0)
            elif place.is_read and not (place.is_reason and value == "Not Active" and "reasons" in gpus[-1].values):
                _take(gpus[-1], place, value, number, text)
        elif value and title in _VERSIONS:
            _system(system, _VERSIONS[title], value)
        elif title == "attached_gpus" and value.isdecimal():
            system["attached"] = int(value[:3])
    return system, _later(before, gpus, system), used


def _later(before: list[_Gpu], gpus: list[_Gpu], system: dict[str, Any]) -> list[_Gpu]:
    """The GPUs of the later one of two outputs; of the earlier one where the later one was cut."""
    return gpus if len(gpus) >= min(system.get("attached", len(gpus)), len(before)) else before


def _unnamed(text: str, number: int, name: str, facts: Facts, gpus: list[_Gpu], parts: set[str]) -> None:
    """Begin a GPU with the title of one of its parts, where no line names it; with one that comes again, the next GPU."""
    if text.startswith("    ") and _PART_TITLE.match(text) and len(gpus) < _GPUS:
        title = text.strip()
        if not gpus or title in parts:
            parts.clear()
            values: dict[str, Any] = {"gpu": len(gpus), "pci": None, "tasks": [], "counters": {}}
            gpus.append(_Gpu(values, facts.evidence(name, number, text), {}, []))
        parts.add(title)


def _refused(gpu: _Gpu, what: str, text: str, line: tuple[int, str]) -> None:
    found = refusal(what, text, line)
    if found is not None and len(gpu.refusals) < _REFUSALS:
        gpu.refusals.append(found)


def _take(gpu: _Gpu, place: _Place, value: str, number: int, text: str) -> None:
    """Take the value of a line of a place that is not a column."""
    values = gpu.values
    if place.is_banks:
        count = smi_xml.number(value)
        values["remap_banks_none"] = int(count) if count is not None else None
    else:
        before, counters = tuple(map(values.get, _SUMMED)), len(values["counters"])
        smi_xml.take(values, place.xml, value)
        after = tuple(map(values.get, _SUMMED))
        if after != before:
            for name, known, made in zip(_SUMMED, before, after, strict=True):
                if made != known:
                    gpu.proof[name] = number, text.strip()
        if len(values["counters"]) != counters:
            for counter in values["counters"]:
                gpu.proof.setdefault(counter, (number, text.strip()))


def _system(system: dict[str, Any], what: str, value: str) -> None:
    value = value.partition(" [")[0]  # 610 marks titles that it will leave out
    if what == "driver":
        system["driver"] = value
    elif (match := re.fullmatch(r"(\d{1,3})\.(\d{1,2})", value)) is not None:
        system["cuda"] = int(match[1]) * 1000 + int(match[2]) * 10
