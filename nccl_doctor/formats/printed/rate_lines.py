"""Rates that the program of a job prints, in logs of which no reader knows the step lines."""

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.printed.named_numbers import numbers_of_line
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.unit_tables import UnitTables
from nccl_doctor.formats.printed.units import is_result, is_work_rate, rate_in
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 20
_LONGEST = 400  # bytes of a line
_LINES = 200_000  # that tell a rate
_WORDS = (
    b"hroughput",
    b"HROUGHPUT",
    b"/s",
    b"FLOPS",
    b"flops",
    b"Flops",
    b"FOM",
    b"igure of",
    b"igure Of",
    b"Performance:",
)
_OF_LIBRARIES = b"NCCL "  # their lines tell speeds of links
_OF_BENCHMARKS = ("active_test", "bench_run", "copy_test")  # tables of readers that know the titles of theirs
_READ_IN = "SELECT 1 FROM {} t JOIN evidence e ON e.id = t.ref WHERE e.file = ? LIMIT 1"


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read how much work was done in a second, where the unit says of what, results of programs, and tables whose titles name units.

    Source: programs of anybody's own::

        Throughput: 812.5 images/s, Batch size: 16, Num of GPUs: 4
        size        latency(us)     BW(MB/s)
    """
    facts.mark_covered("printed_number")
    series = NumberSeries()
    lines = used = 0
    known = any(facts.query(_READ_IN.format(table), (name,)) for table in _OF_BENCHMARKS)
    unit_tables = None if known else UnitTables(series)
    for block in blocks(stream, _BLOCK):
        for line in block.data.split(b"\n"):
            lines += 1
            if unit_tables is not None and unit_tables.take(line, lines):
                used += 1
                continue
            if (
                used >= _LINES
                or len(line) > _LONGEST
                or not any(word in line for word in _WORDS)
                or _OF_LIBRARIES in line
            ):
                continue
            took = False
            for of, unit, value in numbers_of_line(line):
                if (is_work_rate(unit) and not (known and rate_in(of))) or (not known and is_result(of, unit)):
                    took |= series.add(of, unit, value, Place(lines, line))
            used += took
        lines -= block.data.endswith(b"\n") or not block.data
    facts.add(series.rows(facts, name))
    note = f"only the first {_LINES:,} lines with rates were read" if used >= _LINES else None
    return Reading(lines, used, note)
