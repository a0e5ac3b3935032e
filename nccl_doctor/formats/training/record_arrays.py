"""Step records of anybody's own in an array of JSON, alone in the file or under a name in an object."""

import json
from collections.abc import Iterator

from nccl_doctor.common.expressions import compiled
from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.records import RecordReader
from nccl_doctor.inputs.json_items import ArrayBatches
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_HEAD = 1 << 16
_SHOWN = 600  # characters of a record
_NAMED = compiled(
    rb"\"(\w{1,60})\"\s{0,99}:\s{0,99}\[\s{0,99}\{[^\[\]]{0,4000}?\"\w{0,8}(?:step|iter|iteration)s?\"\s{0,9}:"
)
_ARRAY = compiled(rb"(?:\xef\xbb\xbf)?\s{0,200}\[")


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the records of an array.

    Source: loops of people's own that keep a list and write it with `json.dump`::

        [{"step": 1, "loss": 2.98, "step_time": 0.512}, {"step": 2, "loss": 2.96, "step_time": 0.498}]
        {"config": {"batch": 8}, "steps": [{"rank": 0, "step": 1, "step_time_ms": 512.1}]}
    """
    facts.mark_covered("throughput_run", "step", "scalar")
    head = read_head(stream, _HEAD)
    named = _NAMED.search(head) if _ARRAY.match(head) is None else None
    batches = ArrayBatches(Joined(head, stream), named[1].decode() if named is not None else None)
    reader = RecordReader(name)
    for values, text, first in batches:
        for record, line in zip(values, _lines(text, first, len(values)), strict=True):
            if isinstance(record, dict):
                reader.average(record, json.dumps(record)[:_SHOWN].encode(), line)
    read = f"; {reader.understood:,} records before that were read" if reader.understood else ""
    return reader.end(
        facts, batches.lines, f"is no complete JSON: {batches.problem}{read}" if batches.problem else None
    )


def _lines(text: str, first: int, count: int) -> Iterator[int]:
    """In which lines records begin that take as many lines each; all in the first where they do not."""
    apart, rest = divmod(text.count("\n") + 1, count)
    yield from (first + (apart if rest == 0 else 0) * at for at in range(count))
