"""Records that training libraries keep: MLPerf events and DLLogger lines in a log or file, `trainer_state.json` of the Hugging
Face Trainer, and `wandb-summary.json` and histories in JSON lines of Weights & Biases.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training import mllog
from nccl_doctor.formats.training.metrics import Speed, number, setting_of, speed_of
from nccl_doctor.formats.training.record_series import MOST, RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.step_rows import run_rows
from nccl_doctor.inputs.blocks import Cursor, blocks
from nccl_doctor.inputs.prefilter import Prefilter
from nccl_doctor.inputs.streams import Readable

LARGEST = 64 << 20  # bytes of a file that is one JSON object
_DLLOGGER = b"DLLL {"
_LINES = (mllog.LITERAL, _DLLOGGER)


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the records of a file.

    Source: mlperf_logging, dllogger (JSONStreamBackend), transformers (TrainerState), wandb::

        :::MLLOG {"namespace": "", "time_ms": 1721026805975, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": …}
        DLLL {"timestamp": "1721026805.97", "elapsedtime": "3.2", "datetime": "…", "type": "LOG", "step": [0, 10], "data": {…}}
    """
    facts.mark_covered("throughput_run", "step", "mlperf_run", "scalar")
    reader = _Reader(name)
    lines = 0
    gate = Prefilter(list(_LINES))
    kept: list[bytes] | None = None  # of a file that is one JSON object
    for block in blocks(stream):
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        if block.first == 1 and block.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and _step_keys(block.data):
            reader.history(block.data, block.first)
            kept = []
        elif block.first == 1 and block.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
            kept = [block.data]
        elif kept:
            if sum(map(len, kept)) < LARGEST:
                kept.append(block.data)
        elif kept is not None:
            reader.history(block.data, block.first)
        if kept is None:
            cursor = Cursor(block.data, block.first)
            for at, which in gate.scan(block.data)[0]:
                if at > cursor.used:
                    line, place = cursor.line(at)
                    reader.line(gate.literals[which], line, place)
                    cursor.done()
    note = reader.whole(b"".join(kept)) if kept else reader.note
    first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
    facts.add(reader.rows(facts, first))
    return Reading(lines, reader.understood, note)


def _step_keys(data: bytes) -> bool:
    """Whether the first line is a record of its own, as in a history; the summary of a run is one line too, but the last."""
    line, _, more = data.partition(b"\n")
    return b'"_step"' in line and bool(more.strip())


class _Reader:
    """One file while it is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.understood = 0
        self.note: str | None = None
        self.settings = Settings()
        self.mlperf = mllog.MlperfLog()
        self.series = RecordSeries()
        self._broken = 0

    def line(self, literal: bytes, line: bytes, place: int) -> None:
        """Take a line of MLPerf or DLLogger."""
        text = line[line.find(literal) + len(literal) - 1 :]
        try:
            event, _ = json.JSONDecoder().raw_decode(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            self._broken += 1
            self.note = f"{self._broken} records are cut or no JSON, the last in line {place}"
            return
        if literal == mllog.LITERAL:
            self.understood += self.mlperf.add(event, line, place)
        elif isinstance(event.get("data"), dict) or event.get("type") == "METADATA":
            self._dllogger(event, line, place)
            self.understood += 1

    def _dllogger(self, event: dict[str, Any], line: bytes, place: int) -> None:
        if event.get("type") == "METADATA":
            metadata = event.get("metadata")
            if isinstance(metadata, dict):
                self.series.declare_unit(str(event.get("metric")), str(metadata.get("unit")))
            return
        step, data, when = event.get("step"), event["data"], number(event.get("timestamp"))
        if step == "PARAMETER" or (isinstance(step, list) and step[:1] == ["PARAMETER"]):
            self.parameters(data)
            return
        own = step if isinstance(step, int) and not isinstance(step, bool) else None
        if isinstance(step, list) and len(step) == 1 and isinstance(step[0], int):
            own = step[0]
        if step in ([], "()", ""):  # a summary of the run
            self.series.note_total("dllogger", data)
            return
        self.series.record("dllogger", own, when, data, (line, place))

    def parameters(self, data: Mapping[str, Any]) -> None:
        """Take the settings of a run."""
        self.settings.world = self.settings.world or setting_of(data, gpus=True)
        self.settings.batch = self.settings.batch or setting_of(data, gpus=False)

    def history(self, data: bytes, first: int) -> None:
        """Take a block of a history in JSON lines."""
        for place, line in enumerate(data.split(b"\n"), first):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                self._broken += 1
                self.note = f"{self._broken} records are cut or no JSON, the last in line {place}"
                continue
            if isinstance(record, dict):
                self.series.note_scalars(record, number(record.get("_step")), (line, place))
                self._wandb(record, line, place)

    def _wandb(self, record: dict[str, Any], line: bytes, place: int) -> None:
        step = number(record.get("_step"))
        when = number(record.get("_timestamp"))
        when = when if when is not None else number(record.get("_runtime"))
        self.understood += 1
        self.series.record("wandb", None if step is None else int(step), when, record, (line, place))

    def whole(self, data: bytes) -> str | None:
        """Take a file that is one JSON object; returns where it is broken."""
        text = data.decode("utf-8-sig", "replace")
        try:
            top = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"is no complete JSON: {str(error)[:100]}"
        if not isinstance(top, dict):
            return "is JSON, but no object"
        line = text.encode()[:300]
        if isinstance(top.get("log_history"), list):
            self._trainer_state(top, text)
        elif "_step" in top:
            self.understood += 1
            steps, seconds = number(top["_step"]), number(top.get("_runtime"))
            if steps is not None and seconds:
                self.series.summary("wandb", int(steps) + 1, seconds, speed_of(top), (line, 1))
        return None

    def _trainer_state(self, top: dict[str, Any], text: str) -> None:
        """`trainer_state.json`: the losses have no time, the last record has that of the whole run."""
        history = [one for one in top["log_history"] if isinstance(one, dict)]
        self.understood += len(history)
        for one in history:
            self.series.note_scalars(one, number(one.get("step")), (json.dumps(one)[:600].encode(), 1))
            steps, seconds = number(one.get("step")), number(one.get("train_runtime"))
            if steps and seconds:
                rate = number(one.get("train_samples_per_second"))
                place = text.count("\n", 0, max(text.find('"train_runtime"'), 0)) + 1
                line = json.dumps({key: value for key, value in one.items() if key.startswith("train_")})[:600].encode()
                self.series.summary(
                    "hf-trainer", int(steps), seconds, Speed(rate, None, None, None, None), (line, place)
                )

    def rows(self, facts: Facts, run: int) -> Iterator[Any]:
        """All rows, once the file has been read."""
        yield from self.series.rows(facts, self.name, run, self.settings)
        mlperf = next((series for series in self.mlperf.series if series.points), None)
        if mlperf is not None:
            mlperf.end(MOST)
            yield from run_rows(facts, self.name, run + self.series.runs, mlperf, self.mlperf.settings)
        yield from self.mlperf.rows(facts, self.name)
