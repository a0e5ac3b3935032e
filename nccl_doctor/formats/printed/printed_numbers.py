"""Rates and times that a program prints under names of its own, where no other reader knows the file.

Read are lines of text, lines and documents of JSON, tables with a column of units or with units in their titles, and tables with commas.
"""

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.printed import tables as whole_tables
from nccl_doctor.formats.printed.exposed_metrics import ExposedMetrics
from nccl_doctor.formats.printed.forms.bar_tables import BarTables
from nccl_doctor.formats.printed.forms.comma_tables import CommaTables
from nccl_doctor.formats.printed.forms.described import Described
from nccl_doctor.formats.printed.forms.line_batches import LineBatch
from nccl_doctor.formats.printed.forms.line_kinds import (
    DEVICE,
    METRIC,
    TITLES,
    LineKinds,
)
from nccl_doctor.formats.printed.hardware_list import HardwareList
from nccl_doctor.formats.printed.json_numbers import Told, numbers_of_document
from nccl_doctor.formats.printed.magma_tables import MagmaTables
from nccl_doctor.formats.printed.progress import Progress
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.step_tables import StepTables
from nccl_doctor.formats.printed.unit_tables import UnitTables
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.detect import begins_json
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_HEAD = 1 << 16
_BLOCK = 1 << 20
_DOCUMENT = 4 << 20  # bytes of a JSON document that is read as a whole
_LONGEST = 600  # bytes of a line
_LINES = 1_000_000
_NEAR = 3  # lines below titles, of which one is a row


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
    series = NumberSeries()
    table = whole_tables.recognise(head, whole=len(head) < _HEAD)
    if table is not None:
        return _read_table(stream, table, series, name, facts)
    return _read_lines(stream, series, name, facts)


def _read_table(stream: Readable, table: whole_tables.Table, series: NumberSeries, name: str, facts: Facts) -> Reading:
    lines = used = 0
    for block in blocks(stream, _BLOCK):
        for line in block.data.split(b"\n"):
            lines += 1
            used += table.take(line, lines, series)
        lines -= block.data.endswith(b"\n") or not block.data
        if lines > _LINES:
            break
    facts.add(series.rows(facts, name))
    return Reading(lines, used, _cut(lines))


def _read_lines(stream: Readable, series: NumberSeries, name: str, facts: Facts) -> Reading:
    kinds, progress, step_tables = LineKinds(), Progress(), StepTables()
    hardware, metrics, batch = HardwareList(), ExposedMetrics(series), LineBatch(series, progress)
    tables = (
        step_tables, UnitTables(series), MagmaTables(series), BarTables(series), CommaTables(series), Described(series)
    )  # fmt: skip
    are_open = False  # tables, whose rows may follow
    lines = used = near = 0
    for block in blocks(stream, _BLOCK):
        for line, form, plain in kinds.of_lines(block.data):
            lines += 1
            kind = form.kinds
            if (kind & DEVICE or hardware.is_open) and hardware.holds(line):
                continue
            if kind & METRIC and (exposed := metrics.take(line, lines)) is not None:
                used += exposed
                continue
            near = lines + _NEAR if kind & TITLES else near
            if (are_open or lines <= near) and any(table.take(line, lines) for table in tables):
                used += 1
                are_open = True
            elif kind and (len(line) <= _LONGEST or line[:1] == b"{"):
                batch.add(line, lines, form, plain)
        used += batch.read()
        lines -= block.data.endswith(b"\n") or not block.data
        if lines > _LINES:
            break
    if step_tables.found:
        facts.add(list(step_tables.rows(facts, name)))
    elif progress.is_loop:
        facts.add(list(progress.rows(facts, name)))
    facts.add(series.rows(facts, name))
    return Reading(lines, used, _cut(lines))


def _cut(lines: int) -> str | None:
    return f"only the first {lines:,} lines were searched for numbers with names" if lines > _LINES else None


def _read_document(data: bytes, told: list[Told], name: str, facts: Facts) -> Reading:
    series, lines = NumberSeries(), data.split(b"\n")
    used = {one.line for one in told if series.add(one.name, one.unit, one.value, Place(one.line, lines[one.line - 1]))}
    facts.add(series.rows(facts, name))
    return Reading(len(lines) - (not lines[-1]), len(used), None)
