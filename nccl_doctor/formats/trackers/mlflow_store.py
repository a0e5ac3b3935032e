"""Files of MLflow's store in folders, `mlruns/EXPERIMENT/RUN`: one for each metric, and `meta.yaml`, which says how the run ended."""

import re

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProcessEnd
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.metrics import is_speed
from nccl_doctor.formats.training.record_series import RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.inputs.blocks import blocks
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

_HEAD = 4096
_VALUE = re.compile(
    rb"(\d{13}) (-?(?:\d{1,40}(?:\.\d{0,40})?(?:e[+-]?\d{1,3})?|inf)|nan)(?: (-?\d{1,15}))?(?: [^\n]{1,400})?"
)
_NAME = re.compile(r"/metrics/(.{1,200})$")
_LOSS = re.compile(r"(?i)(?:^|[/_.-])(?:train(?:ing)?[/_.-])?loss$")
_OTHER_LOOP = re.compile(r"(?i)val|eval|test")
_STATUS = re.compile(rb"^status: (\d)\s*$", re.MULTILINE)
_ENDED_BADLY = {b"4", b"5"}  # FAILED and KILLED of RunStatus in `mlflow/protos/service.proto`


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read one file of a run.

    Source: `mlflow/store/tracking/file_store.py`: milliseconds since the epoch, value, step; the name of the file is that of the
    metric. Where it names no speed, the time between two values of the loss is that of the steps::

        1766400001353 12108.70083461237 0
        1766400002718 11995.636468573874 1
    """
    facts.mark_covered("throughput_run", "step", "scalar")
    head = read_head(stream, _HEAD)
    stream = Joined(head, stream)
    return _metric(stream, name, facts) if head[:1].isdigit() else _meta(head, name, facts)


def _meta(head: bytes, name: str, facts: Facts) -> Reading:
    """What `meta.yaml` says of the end of the run."""
    found = _STATUS.search(head)
    if found is not None and found[1] in _ENDED_BADLY:
        ref = facts.evidence(name, head.count(b"\n", 0, found.start()) + 1, found[0].decode())
        signal = "SIGKILL" if found[1] == b"5" else None
        facts.add([ProcessEnd(None, None, None, None, None, signal, "mlflow", None, None, 1, None, ref)])
    return Reading(head.count(b"\n"), int(found is not None))


def _metric(stream: Readable, name: str, facts: Facts) -> Reading:
    path = _NAME.search(name)
    metric = path[1] if path is not None else name.rpartition("/")[2]
    is_timed = is_speed(metric) or (_LOSS.search(metric) is not None and not _OTHER_LOOP.search(metric))
    series = RecordSeries()
    lines = understood = 0
    note = None
    for block in blocks(stream):
        for lines, line in enumerate(block.data.split(b"\n"), block.first):
            found = _VALUE.fullmatch(line.rstrip(b"\r"))
            if found is None:
                note = f"line {lines:,} is cut or damaged" if line.strip() else note
                continue
            understood += 1
            step = int(found[3]) if found[3] else None
            data = {metric: float(found[2])}
            series.scalars.note_scalars(data, step, (line, lines))
            if is_timed and step is not None:
                series.record("mlflow", step, int(found[1]) / 1000, data, (line, lines))
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(series.rows(facts, name, first, Settings()))
    return Reading(lines, understood, note)
