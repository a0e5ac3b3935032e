"""Bandwidths of copies of which each line tells one: `bandwidthTest`, SuperBench's gpu-copy and gpu-stream, SHOC.

Of several sizes the largest counts, and of several block sizes of one buffer the fastest: small copies measure the latency.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import CopyRate, CopyTest
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_HEADS = re.compile(
    rb"bandwidthTest-[HD]2[HD]-|Transfer Size \(Bytes\)|(?:cpu|gpu\d{1,3})(?:_read|_write)?_by_(?:sm|dma)"
    rb"|STREAM_[A-Z]{3,8}_[a-z]{4,8}_gpu_\d|[HD]2[HD]_Bandwidth_|CUDA Bandwidth Test\]"
)
_NUMBER = r"(?P<value>\d{1,9}(?:\.\d{1,9})?)"
_GPU_COPY = re.compile(
    r"(?P<from>cpu|gpu(?P<first>\d{1,3}))_(?P<sign>to|and)_(?P<to>cpu|gpu(?P<second>\d{1,3}))(?P<way>_read|_write)?"
    rf"_by_(?P<engine>sm|dma)(?P<numa>_under_numa\d{{1,3}})?\s{{1,20}}{_NUMBER}\s*$"
)
_GPU_STREAM = re.compile(
    rf"(?P<test>STREAM_[A-Z]{{3,8}}_[a-z]{{4,8}})_gpu_(?P<gpu>\d{{1,3}})_buffer_(?P<size>\d{{1,15}})_block_\d{{1,6}}\s{{1,20}}{_NUMBER}\s"
)
_ROW = re.compile(  # of `bandwidthTest --csv`, and of its modes that tell a size a line
    rf"bandwidthTest-(?P<way>[HD]2[HD])(?P<memory>-\w{{3,20}})?[^,]{{0,40}}, Bandwidth = {_NUMBER} (?P<unit>[GM])B/s, Time = [^,]{{1,30}},"
    r" Size = (?P<size>\d{1,15}) bytes"
)
_TITLE = re.compile(r"\s{0,8}(Host to Device|Device to Host|Device to Device) Bandwidth, \d{1,3} Device\(s\)")
_UNIT = re.compile(r"\s{0,8}Transfer Size \(Bytes\)\s{1,20}Bandwidth\(([GM])B/s\)")
_SIZE = re.compile(rf"\s{{1,20}}(?P<size>\d{{1,15}})\s{{1,20}}{_NUMBER}\s*$")
_SHOC = re.compile(
    r"\s{0,40}(?P<test>(?P<way>[HD]2[HD])_Bandwidth_\w{1,40})\s{1,20}\+?(?P<size>\d{1,12})(?P<of>By|[kM]B)\s{1,20}(?P<unit>[GM])B/sec"
    rf"\s{{1,20}}{_NUMBER}\s"
)
_DEVICE = re.compile(r"\s{0,4}Device (\d{1,3}): \"?([^\"\n]{2,100}?)(?:\"|\s*$)")
_VALUE = re.compile(r"\s{0,20}(\d{1,9}(?:\.\d{1,9})?)(?:\s|\Z)")
_NAMED = ("gpu-copy", "gpu-stream")  # of which the first word of a line tells all but the value
_WAYS = {"Host to Device": "H2D", "Device to Host": "D2H", "Device to Device": "D2D"}
_BYTES = {"By": 1, "kB": 1 << 10, "MB": 1 << 20}
_KEEP = 40  # lines after the last that told a number
_MOST = 4_096  # tests of a file, and copies of each


_Pair = tuple[int, int | None]


class _Test(NamedTuple):
    host: str | None
    tool: str
    name: str
    kind: str  # see `CopyTest`
    engine: str | None


class _Copy(NamedTuple):
    test: _Test
    gpu: int
    peer: int | None
    size: int
    value: float  # GB/s


class _Best(NamedTuple):
    size: int
    value: float
    line: int
    text: str


_Places = dict[_Pair, _Best]


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the bandwidth of each copy of a file.

    Source: NVIDIA/cuda-samples `bandwidthTest.cu`, ROCm `hipBusBandwidth` (SHOC), superbenchmark `gpu_copy.cpp`, `gpu_stream.cu`::

        bandwidthTest-H2D-Pinned, Bandwidth = 24.6 GB/s, Time = 0.00130 s, Size = 32000000 bytes, NumDevsUsed = 1
        gpu0_to_gpu1_write_by_sm 258.397
        STREAM_TRIAD_double_gpu_0_buffer_4294967296_block_256   2414.01 90.50
           H2D_Bandwidth_pinned    524288kB       GB/sec       24.7523 24.6708 0.1586  24.3154 24.7880
    """
    facts.mark_covered("copy_test", "copy_rate")
    sections = Sections(stream, _HEADS, _KEEP)
    readers: dict[str | None, _Reader] = {}  # of the hosts that a prefix names
    found: dict[_Test, _Places] = {}
    models: dict[tuple[str | None, int], str] = {}
    used = 0
    for first, label, texts in sections.batches():
        reader = readers.setdefault(label.host, _Reader(label.host, found, models))
        last = 0
        for number, text in enumerate(texts, first):
            if reader.line(text, number):
                used += 1
                last = number
        if last:
            sections.used(last)
    before = facts.query("SELECT coalesce(max(number), 0) FROM copy_test")[0][0]
    for number, (test, places) in enumerate(found.items(), before + 1):
        if places:
            facts.add(_rows(facts, name, number, test, places, models))
    note = f"holds more than {_MOST:,} tests; the others were left out" if len(found) >= _MOST else None
    return Reading(sections.lines, used, note)


def _rows(
    facts: Facts, file: str, number: int, test: _Test, places: _Places,
    models: dict[tuple[str | None, int], str],
) -> Iterator[Any]:  # fmt: skip
    gpus = {gpu for pair in places for gpu in pair if gpu is not None}
    of_gpus = {models.get((test.host, gpu)) for gpu in gpus}
    refs = {pair: facts.evidence(file, best.line, best.text[:300]) for pair, best in places.items()}
    yield CopyTest(
        number=number, host=test.host, file=file, tool=test.tool, test=test.name, kind=test.kind, measure="bandwidth",
        engine=test.engine, unit="GB/s", gpus=len(gpus), model=of_gpus.pop() if len(of_gpus) == 1 else None, total=None,
        status="passed", said=None, ref=next(iter(refs.values())),
    )  # fmt: skip
    for (gpu, peer), best in places.items():
        yield CopyRate(
            number, test.host, gpu, test.host if peer is not None else None, peer, best.value, refs[gpu, peer]
        )


class _Reader:
    """What one host wrote into a file, while it is being read."""

    def __init__(
        self, host: str | None, found: dict[_Test, _Places], models: dict[tuple[str | None, int], str]
    ) -> None:
        self._host = host
        self._found = found
        self._models = models
        self._names: dict[str, tuple[_Places, _Pair, int]] = {}  # by the first word of a line: its copy and its size
        self._gpu = 0  # which both programs use unless they are told another, and name before
        self._way: str | None = None  # of a table with a row a size
        self._scale: float | None = None

    def line(self, text: str, number: int) -> bool:
        """Take a line; whether it tells a copy."""
        word, _, rest = text.partition(" ")
        known = self._names.get(word)
        if known is not None and (value := _VALUE.match(rest)) is not None:
            self._take(*known, float(value[1]), number, text)
            return True
        copy = self._copy(text)
        if copy is None:
            return False
        if len(self._found) < _MOST or copy.test in self._found:
            places = self._found.setdefault(copy.test, {})
            pair = copy.gpu, copy.peer
            if len(places) < _MOST or pair in places:
                if copy.test.tool in _NAMED and len(self._names) < _MOST:
                    self._names[word] = places, pair, copy.size
                self._take(places, pair, copy.size, copy.value, number, text)
        return True

    def _take(self, places: _Places, pair: _Pair, size: int, value: float, number: int, text: str) -> None:
        best = places.get(pair)
        if best is None or size > best.size or (size == best.size and value > best.value):
            places[pair] = _Best(size, value, number, text.strip())

    def _copy(self, text: str) -> _Copy | None:
        """The copy that a line tells."""
        if (found := _GPU_COPY.match(text)) is not None:
            return self._gpu_copy(found)
        if (found := _GPU_STREAM.match(text)) is not None:
            test = _Test(self._host, "gpu-stream", found["test"], "local", None)
            return _Copy(test, int(found["gpu"]), None, int(found["size"]), float(found["value"]))
        if (found := _ROW.match(text)) is not None:
            return self._of_size(f"{found['way']}{found['memory'] or ''}", found, 1 if found["unit"] == "G" else 1e-3)
        if (found := _SHOC.match(text)) is not None:
            return self._of_size(found["test"], found, 1 if found["unit"] == "G" else 1e-3, _BYTES[found["of"]], "shoc")
        if self._way is not None and self._scale is not None and (found := _SIZE.match(text)) is not None:
            return self._of_size(self._way, found, self._scale)
        self._about(text)
        return None

    def _about(self, text: str) -> None:
        if (found := _TITLE.match(text)) is not None:
            self._way, self._scale = _WAYS[found[1]], None
        elif (found := _UNIT.match(text)) is not None:
            self._scale = 1 if found[1] == "G" else 1e-3
        elif (found := _DEVICE.match(text)) is not None:
            self._gpu = int(found[1])
            self._models.setdefault((self._host, self._gpu), found[2].strip())
        elif text.strip() and "Memory Transfers" not in text:
            self._way = None

    def _of_size(
        self, name: str, found: re.Match[str], scale: float, unit: int = 1, tool: str = "bandwidthTest"
    ) -> _Copy:
        test = _Test(self._host, tool, name, "local" if "D2D" in name else "host", None)
        return _Copy(test, self._gpu, None, int(found["size"]) * unit, float(found["value"]) * scale)

    def _gpu_copy(self, found: re.Match[str]) -> _Copy | None:
        first, second = (None if found[group] is None else int(found[group]) for group in ("first", "second"))
        if first is None and second is None:
            return None
        kind = "host" if first is None or second is None else "local" if first == second else "pair"
        source, target = (found[group].rstrip("0123456789") for group in ("from", "to"))
        if kind == "local":
            target = "itself"
        name = f"{source}_{found['sign']}_{target}{found['way'] or ''}_by_{found['engine']}{found['numa'] or ''}"
        engine = "SM" if found["engine"] == "sm" else "CE"
        gpu = second if second is not None else first
        test = _Test(self._host, "gpu-copy", name, kind, engine)
        return _Copy(test, gpu or 0, first if kind == "pair" else None, 0, float(found["value"]))
