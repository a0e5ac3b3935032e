"""The loop of a log that no reader of step lines knows, beside what other readers take of the log."""

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.printed.progress import Progress
from nccl_doctor.formats.printed.step_tables import StepTables
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable

_BLOCK = 1 << 20
_LONGEST = 1000  # bytes of a line
_LINES = 200_000  # that tell a loss


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lines of a training loop that tell a step or an epoch and a loss.

    Source: programs of anybody's own::

        2026-11-02 10:00:31,120 INFO train.py:88 step 120 loss 2.31 lr 1e-4
    """
    facts.mark_covered("throughput_run", "step", "scalar")
    progress, tables = Progress(), StepTables()
    lines = used = 0
    for block in blocks(stream, _BLOCK):
        for line in block.data.split(b"\n"):
            lines += 1
            if used < _LINES and tables.take(line, lines):
                used += 1
            elif used < _LINES and b"oss" in line and len(line) <= _LONGEST:
                used += progress.take(line, lines)
        lines -= block.data.endswith(b"\n") or not block.data
    if tables.found:
        facts.add(list(tables.rows(facts, name)))
        return Reading(lines, used)
    if not progress.is_loop:
        return Reading(lines, 0)
    facts.add(list(progress.rows(facts, name)))
    return Reading(lines, used)
