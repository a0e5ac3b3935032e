"""Rates and times that a program prints under names of its own, where no other reader knows the file.

Read are lines of text, lines and documents of JSON, tables with a column of units or with units in their titles, and tables with commas.
"""

from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.printed import tables
from nccl_doctor.formats.printed.exposed_metrics import ExposedMetrics
from nccl_doctor.formats.printed.json_numbers import Told, numbers_of_document, numbers_of_record
from nccl_doctor.formats.printed.progress import Progress
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.step_tables import StepTables
from nccl_doctor.formats.printed.unit_tables import UnitTables
from nccl_doctor.formats.printed.units import is_rate, is_time, kind_of
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_HEAD = 1 << 16
_BLOCK = 1 << 20
_DOCUMENT = 4 << 20  # bytes of a JSON document that is read as a whole
_LONGEST = 600  # bytes of a line
_WORDS = 12  # of a name
_LINES = 1_000_000
_NUMBER = compiled(
    rb"(?:(?<![\w.:/+-])|(?<=[a-z]{4}:))(\d{1,15}(?:,\d\d\d){0,5}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?)"
    rb"(?P<times>[kKMG](?![A-Za-z/]))?(?:[ \t]?(?P<unit>[A-Za-z][A-Za-z/]{0,20}))?(?![\w.:/]|-\d)"
)
_TIMES = {None: 1.0, b"k": 1e3, b"K": 1e3, b"M": 1e6, b"G": 1e9}
_FRONT = compiled(rb"\[[^\]\n]{0,60}\]|[\d:,.TZ/ -]{6,40}|[A-Za-z]{1,20}:[ \t]|INFO|DEBUG|WARNING|[-|>* \t]{1,20}")
_SOURCE = compiled(rb"[\w./-]{1,200}\.(?:cc|cpp|cu|hpp|h|py|go|rs)\b:?\d{0,7}\]?")  # where a logger stands in a program
_LONE_NUMBER = compiled(r"(?<![\w.,])\d[\d.,]{0,30}(?![\w.])")
_HYPHENED = compiled(rb"\A-[A-Za-z]{1,20}")  # behind another number: `8192-bit`
_NOT_MEASURED = compiled(rb"(?i)[ \t]{1,4}(?:peak|theoretical)\b")
_FORMULA = compiled(
    rb" = [^=:;]{1,120}[/*][^=:;]{1,120}:(?=\s)"
)  # `fwd FLOPS per GPU = fwd flops per GPU / fwd latency: 81.9 TFLOPS`
_SHAPE = compiled(rb"\(\d{1,9}(?:, ?\d{1,9}){1,4}\)(?: x \d{1,9}){0,4}")  # `per iteration of (512,512,512) x 4: 0.43 s`
_DOWNLOAD = compiled(rb"\bFetched \d{1,6}(?:\.\d{1,3})? ?[kMG]?B in \d|[kMG]i?B/s eta \d")  # of apt and pip
_CLOSED = compiled(rb"\([^()\n]{0,200}\)")
_SAYS = compiled(rb"(?:[:=]|\b(?:is|was|took|of|in)\b)[\s\"'~]{0,24}\Z")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the numbers of a file by names and units.

    Source: programs of anybody's own::

        Throughput: 2033.7 images/s, Batch size: 16, Average batch time: 0.072 s
        {"ts": 1790000000.1, "latency_s": 9.25, "ttft_s": 0.09}
                 test      atts     units    median   mean    stddev  min     max
        size        time(us)     bw(MB/s)
        system,resnet50,bert
        {
          "results": {"matmul": {"metric_name": "tflops", "metric_value": 74.3, "metric_unit": "TFLOPS"}}
        }
    """
    facts.mark_covered("printed_number", "throughput_run", "step", "scalar")
    head = read_head(stream, _HEAD)
    if begins_json(head):
        head += read_head(stream, _DOCUMENT + 1 - len(head))
        if (told := numbers_of_document(head)) is not None:
            return _read_document(head, told, name, facts)
    stream = Joined(head, stream)
    series, progress, step_tables = NumberSeries(), Progress(), StepTables()
    unit_tables, hardware, metrics = UnitTables(series), _HardwareList(), ExposedMetrics(series)
    table = tables.recognise(head, whole=len(head) < _HEAD)
    lines = used = 0
    for block in blocks(stream, _BLOCK):
        for line in block.data.split(b"\n"):
            lines += 1
            if table is None and hardware.holds(line):
                continue
            if table is None and (exposed := metrics.take(line, lines)) is not None:
                used += exposed
                continue
            if table is None and (step_tables.take(line, lines) or unit_tables.take(line, lines)):
                used += 1
            elif len(line) <= _LONGEST or line[:1] == b"{" or table is not None:
                used += _take(line, lines, series, table)
                used += table is None and progress.take(line, lines)
        lines -= block.data.endswith(b"\n") or not block.data
        if lines > _LINES:
            break
    if step_tables.found:
        facts.add(list(step_tables.rows(facts, name)))
    elif progress.is_loop:
        facts.add(list(progress.rows(facts, name)))
    facts.add(series.rows(facts, name))
    note = f"only the first {lines:,} lines were searched for numbers with names" if lines > _LINES else None
    return Reading(lines, used, note)


class _HardwareList:
    """The devices that `lshw` lists, whose sizes and speeds say what they are made for."""

    def __init__(self) -> None:
        self._open = False

    def holds(self, line: bytes) -> bool:
        """Whether a line belongs to such a list: `  *-network`, or something further to the right behind it."""
        if line.lstrip(b" ").startswith(b"*-") and line[:1] == b" ":
            self._open = True
        elif line[:1] not in (b" ", b"\t"):
            self._open = False
        return self._open


def _read_document(data: bytes, told: list[Told], name: str, facts: Facts) -> Reading:
    series, lines = NumberSeries(), data.split(b"\n")
    used = {one.line for one in told if series.add(one.name, one.unit, one.value, Place(one.line, lines[one.line - 1]))}
    facts.add(series.rows(facts, name))
    return Reading(len(lines) - (not lines[-1]), len(used), None)


def _take(line: bytes, number: int, series: NumberSeries, table: tables.Table | None) -> bool:
    """Take a line; whether it told a number."""
    if table is not None:
        return table.take(line, number, series)
    numbers = numbers_of_record(line) if line[:1] == b"{" else numbers_of_line(line)
    took = False
    for name, unit, value in numbers:
        took |= series.add(name, unit, value, Place(number, line))
    return took


def numbers_of_line(line: bytes) -> Iterator[tuple[str, str, float]]:
    """(name, unit, value) of the rates and times of a line; a time needs a name that says it."""
    if _DOWNLOAD.search(line) is not None:
        return
    end = 0
    line = _SHAPE.sub(b"", _FORMULA.sub(b":", line))
    for match in _NUMBER.finditer(line):
        before, end = _HYPHENED.sub(b"", line[end : match.start()]), match.end()
        if _NOT_MEASURED.match(line, end) is not None:
            continue
        unit = (match["unit"] or b"").decode()
        if unit and not (is_rate(unit) or is_time(unit)):
            unit = ""
        name = _name(before)
        if not is_rate(unit) and (not name or _SAYS.search(before) is None):
            continue
        kind = kind_of(name, unit)
        if kind is not None and (match["times"] is None or kind == "rate"):
            yield name, unit, float(match[1].replace(b",", b"")) * _TIMES[match["times"]]


def _name(before: bytes) -> str:
    """The name of a number: the words in front of it, without time stamps, labels and numbers of steps."""
    before = _SOURCE.sub(b" ", before).rstrip(b" \t:=\"'~")
    plain = _CLOSED.sub(lambda found: b"." * len(found[0]), before)  # `Throughput (in TFLOP/s) of one` is one name
    at = max(plain.rfind(one) for one in (b",", b";", b"|", b"(")) + 1
    while (front := _FRONT.match(before, at)) is not None:
        at = front.end()
    text = before[at:].decode("utf-8", "replace").rpartition(": ")[2]
    words = _LONE_NUMBER.sub(" ", text).split()
    while words and words[-1].lower() in ("is", "was", "of", "in", "at", "took", "-", "for"):
        words.pop()
    return " ".join(words[-_WORDS:])[:60].strip(" -.:=\"'{[")
