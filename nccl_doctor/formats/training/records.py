"""Records that training libraries keep: events of MLPerf and DLLogger, states, summaries and histories in JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training import dllogger, mllog
from nccl_doctor.formats.training.lines import plain_records
from nccl_doctor.formats.training.lines.plain_records import STEP_KEYS, Row
from nccl_doctor.formats.training.metrics import MOST_WORLD, Speed, number, rank_of, setting_of, speed_key, speed_of
from nccl_doctor.formats.training.progress_records import ProgressRecords, tells_progress
from nccl_doctor.formats.training.record_folds import Places, fold
from nccl_doctor.formats.training.record_lines import (
    BROKEN,
    EVENTS,
    LITERALS,
    MLLOG,
    SINGLE,
    SingleNumbers,
    parse_record,
    reached_step,
    records_of,
    tells_steps,
)
from nccl_doctor.formats.training.record_ranks import of_ranks
from nccl_doctor.formats.training.record_series import MOST, At, RecordSeries
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps.scalars import Place
from nccl_doctor.formats.training.steps.step_folds import Line
from nccl_doctor.formats.training.steps.step_rows import run_rows
from nccl_doctor.formats.training.steps.step_series import BULK, Series
from nccl_doctor.inputs.blocks import Cursor, blocks
from nccl_doctor.inputs.json_items import ArrayBatches
from nccl_doctor.inputs.prefilter import prefilter
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Joined, read_head

OWN = "own-records"  # the tool of records of anybody's own
_MOST_RANKS = 512
_LARGEST_STEP = 1 << 62
LARGEST = 64 << 20  # bytes of a file that is one JSON object
_HEAD = 1 << 16  # bytes that tell what a file is
_BLOCK = 1 << 21
_TRAINER_STATE = re.compile(rb"\s{0,200}\{[^\[\]]{0,4000}\"log_history\" ?: ?\[")
_LAUNCH = 1 << 20  # bytes of a block in which a launch is described
_TOGETHER = 1024  # lines that are decoded at once


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the records of a file.

    Source: mlperf_logging, dllogger (its file and what it prints), transformers (TrainerState), wandb, mmengine
    (`vis_data/scalars.json`), detectron2 (`metrics.json`), MaxText (`metrics_file`), LLaMA-Factory (`trainer_log.jsonl`)::

        :::MLLOG {"namespace": "", "time_ms": 1721026805975, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": …}
        DLLL {"timestamp": "1721026805.97", "elapsedtime": "3.2", "datetime": "…", "type": "LOG", "step": [0, 10], "data": {…}}
        {"lr": 0.01, "data_time": 0.0048, "loss": 1.3917, "time": 0.0156, "epoch": 1, "iter": 10, "step": 10}
    """
    facts.mark_covered("throughput_run", "step", "mlperf_run", "scalar")
    reader = RecordReader(name)
    head = read_head(stream, _HEAD).removeprefix(b"\xef\xbb\xbf")
    stream = Joined(head, stream)
    if _TRAINER_STATE.match(head):
        return reader.end(facts, *reader.trainer_state(stream, reached_step(head)))
    lines = 0
    kept: list[bytes] | None = None  # of a file that is one JSON object
    for block in blocks(stream, _BLOCK):
        lines = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        if block.first == 1 and block.data.lstrip()[:1] == b"{" and tells_steps(block.data):
            reader.history(block.data, block.first)
            kept = []
        elif block.first == 1 and block.data.lstrip()[:1] == b"{":
            kept = [block.data]
        elif kept:
            if sum(map(len, kept)) < LARGEST:
                kept.append(block.data)
        elif kept is not None:
            reader.history(block.data, block.first)
        if kept is None:
            reader.block(block.data, block.first)
    return reader.end(facts, lines, reader.whole(b"".join(kept)) if kept else reader.note)


def _shown(records: list[dict[str, Any]], at: int) -> tuple[bytes, int]:
    """The text of a record in a file that is one object, as evidence shows it, and its line."""
    return json.dumps(records[at])[:600].encode(), 1


class RecordReader:
    """One file while it is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.understood = 0
        self.note: str | None = None
        self.settings = Settings()
        self.mlperf = mllog.MlperfLog()
        self.series = RecordSeries()
        self._of_ranks: dict[int, RecordSeries] = {}  # the others, where records name their ranks
        self._gate = prefilter(frozenset(LITERALS), name="records")
        self._keys: dict[
            bytes, tuple[str, bool]
        ] = {}  # literal -> the key by which its steps are compared; is it a rate
        self._numbers = dllogger.StepNumber()
        self._singles = SingleNumbers()
        self._broken = 0
        self._launches = 0  # runs of MLPerf so far
        self._progress = ProgressRecords()

    def block(self, block: bytes, first: int) -> None:
        """Take the lines of MLPerf and DLLogger in a block."""
        places = self._gate.scan(block)[0]
        cursor = Cursor(block, first)
        index = passed = 0  # places before `passed` were looked at together and need a look each
        while index < len(places):
            at, which = places[index]
            if at <= cursor.used:
                index += 1
                continue
            literal = self._gate.literals[which]
            known = self._long(literal) if index >= passed else None
            if known is not None:
                many = places[index : index + known[0].chunk]
                passed = index + len(many)
                if len(many) == known[0].chunk and self._fold(literal, *known, many, cursor):
                    self.understood += len(many)
                    index = passed
                    continue
            self.line(literal, *cursor.line(at))
            cursor.done()
            index += 1
        if len(self.mlperf.runs) > self._launches:  # a run began: what was printed before it
            self._launches = len(self.mlperf.runs)
            self.mlperf.note_launch(block[:_LAUNCH])

    def _long(self, literal: bytes) -> tuple[Series, str, bool] | None:
        """The series to which lines belong most likely, where it is so long that they are folded, and its key."""
        if literal in (*EVENTS, SINGLE) and literal != MLLOG:
            return None
        series = self.mlperf.series[0] if literal == MLLOG else self.series.of("dllogger")
        key = self._keys.get(literal)
        return (series, *key) if series is not None and key is not None and series.chunk >= BULK else None

    def _fold(self, literal: bytes, series: Series, key: str, rate: bool, places: Places, cursor: Cursor) -> bool:
        block = cursor.block
        numbers = self._numbers

        def same(start: int, stop: int) -> bool:
            if any(which != places[0][1] for _, which in places):
                return False
            if literal == MLLOG:
                return block.count(b'"tracked_stats"', start, stop) == len(places)
            if literal == dllogger.SHOWN:
                return block.find(b" - () ", start, stop) < 0 and block.find(b" - [] ", start, stop) < 0
            return block.find(b'"step": []', start, stop) < 0

        def read(line: bytes, place: int) -> Line | None:
            nonlocal numbers
            event = parse_record(literal, line)
            found = self._step(literal, event) if event is not None else None
            if event is None or found is None:
                return None
            if isinstance(event.get("step"), list) and (after := numbers.after(event["step"])) is not None:
                numbers, found = after, (after.number, *found[1:])
            if literal == MLLOG:
                self.mlperf.note_samples(event)
            step, when, data = found
            speed = self.series.speed_of(data)
            return (step, speed.seconds, speed.rate, speed.data), place, line[:600], when

        folded = fold(series, key, rate, places, cursor, read, same, quoted=literal != dllogger.SHOWN)
        if folded:
            self._numbers = numbers
        return folded

    def _step(self, literal: bytes, event: Mapping[str, Any]) -> tuple[int | None, float | None, dict[str, Any]] | None:
        """(step, when, numbers) of a record that is a step of the run; None for others."""
        if literal in EVENTS:
            value, when = event.get("value"), mllog.time_of(event)
            if event.get("key") != "tracked_stats" or not isinstance(value, dict) or when is None:
                return None
            return None, when / 1000, value
        step, data = event.get("step"), event.get("data")
        if not isinstance(data, dict) or step in ([], "()", "", "PARAMETER") or event.get("type") == "METADATA":
            return None
        if isinstance(step, list) and (step[0] == "PARAMETER" or (len(step) == 1 and self._numbers.epoch is not None)):
            return None  # settings, or the summary of an epoch whose iterations were logged
        own = step[0] if isinstance(step, list) and len(step) == 1 else step
        own = own if isinstance(own, int) and not isinstance(own, bool) else None
        return own, number(event.get("timestamp")), data

    def line(self, literal: bytes, line: bytes, place: int) -> None:
        """Take a line of MLPerf or DLLogger."""
        event = parse_record(literal, line)
        if event is not None and literal == SINGLE:
            self.understood += 1
            event = self._singles.take(event)
            if event is None:
                return
        if event is None:
            if literal not in (SINGLE, dllogger.SHOWN):  # a line without numbers is none of theirs
                self._broken += 1
                self.note = f"{self._broken} records are cut or damaged, the last in line {place}"
            return
        for metric, unit in event.get("units", {}).items() if literal == dllogger.SHOWN else ():
            self.series.declare_unit(metric, unit)
        step = self._step(literal, event)
        if (
            step is not None
            and isinstance(event.get("step"), list)
            and (after := self._numbers.after(event["step"])) is not None
        ):
            self._numbers, step = after, (after.number, *step[1:])
        if step is not None and (key := speed_key(step[2])) is not None:
            self._keys[literal] = key
        if literal in EVENTS:
            self.understood += self.mlperf.add(event, line, place)
        elif step is not None:
            self.understood += 1
            self.series.record("dllogger", *step, (line, place))
        elif isinstance(event.get("data"), dict) or event.get("type") == "METADATA":
            self.understood += 1
            self._beside(event, (line, place))

    def _beside(self, event: Mapping[str, Any], place: Place) -> None:
        """Take a record of DLLogger that is no step: the unit of a metric, parameters, or a summary of the run."""
        metadata, data = event.get("metadata"), event.get("data")
        if isinstance(metadata, dict):
            self.series.declare_unit(str(event.get("metric")), str(metadata.get("unit")))
        elif isinstance(data, dict) and "PARAMETER" in str(event.get("step")):
            self.parameters(data)
        elif isinstance(data, dict):
            self.series.note_total("dllogger", data, place)

    def parameters(self, data: Mapping[str, Any]) -> None:
        """Take the settings of a run."""
        self.settings.world = self.settings.world or setting_of(data, gpus=True)
        self.settings.batch = self.settings.batch or setting_of(data, gpus=False)

    def history(self, data: bytes, first: int) -> None:
        """Take a block of a history in JSON lines."""
        rows = [(place, line) for place, line in enumerate(data.split(b"\n"), first) if line and not line.isspace()]
        for at in range(0, len(rows), _TOGETHER):
            some = rows[at : at + _TOGETHER]
            found = records_of([line for _, line in some])
            if BROKEN in found:
                broken = [place for (place, _), record in zip(some, found, strict=True) if record is BROKEN]
                self._broken += len(broken)
                self.note = f"{self._broken} records are cut or damaged, the last in line {broken[-1]}"
            if all(type(record) is dict and "_step" in record for record in found):
                self._history(found, [row[::-1] for row in some])
                continue
            read = [(record, row) for row, record in zip(some, found, strict=True) if isinstance(record, dict)]
            self._history(
                [record for record, _ in read if "_step" in record],
                [row[::-1] for record, row in read if "_step" in record],
            )
            progress = [(record, row[::-1]) for record, row in read if tells_progress(record)]
            self.understood += self._progress.take(progress, self.series)
            others = (
                Row(record, *row[::-1]) for record, row in read if "_step" not in record and not tells_progress(record)
            )
            for _, alike in groupby(others, key=lambda row: tuple(row.record)):
                self._take_averages(list(alike))

    def average(self, record: dict[str, Any], line: bytes, place: int) -> None:
        """Take a record of mmengine or detectron2, means since the one before in training or after a validation, or of others."""
        self.understood += 1
        self._averages(record, self._series_of(record), line, place)
        for one in of_ranks(record, STEP_KEYS):
            self._averages(one, self._of_rank(one["rank"]), line, place)

    def _take_averages(self, rows: list[Row]) -> None:
        """Take neighbouring records with the same names."""
        known = 0  # records until it is known what shows the pace
        while known < len(rows) and not self.series.knows_pace(OWN, rows[known].record):
            self.average(*rows[known])
            known += 1
        rows = rows[known:]
        plain = plain_records.of_rows(rows) if rows else None
        if plain is None:
            for row in rows:
                self.average(*row)
            return
        self.understood += len(rows)
        self.series.take_plain(OWN, plain)

    def _averages(self, record: dict[str, Any], series: RecordSeries, line: bytes, place: int) -> None:
        key = next((key for key in STEP_KEYS if key in record), "")
        step = number(str(record.get(key)).partition("/")[0])
        left_out = STEP_KEYS if step is None else (*STEP_KEYS, "epoch")
        numbers = {key: value for key, value in record.items() if key not in left_out}
        kept = series if self.settings.world else self.series
        kept.scalars.note_scalars(numbers, step, (line, place))
        if step is None or abs(step) >= _LARGEST_STEP or not plain_records.are_trained(record):
            return
        if "perf/step_time_seconds" in record:
            series.record("maxtext", int(step), None, numbers, (line, place))
        elif "data_time" in record:
            times = {"step_time": record.get("time"), "data_time": record.get("data_time")}
            series.record("detection", int(step), None, times, (line, place))
        else:
            series.record(OWN, int(step), plain_records.moment_of(record), numbers, (line, place))

    def _series_of(self, record: Mapping[str, Any]) -> RecordSeries:
        """The series of the rank that a record names; one for all where it names none."""
        self.parameters(record)
        rank = rank_of(record, self.settings.world or MOST_WORLD)
        if rank is None or self.series.rank == rank:
            return self.series
        if self.series.rank is None:
            self.series.rank = rank
            return self.series
        return self._of_rank(rank)

    def _of_rank(self, rank: int) -> RecordSeries:
        found = self._of_ranks.get(rank)
        if found is None and len(self._of_ranks) < _MOST_RANKS:
            found = self._of_ranks[rank] = RecordSeries()
            found.rank = rank
        return found or self.series

    def _history(self, records: list[dict[str, Any]], places: list[Place]) -> None:
        """Take records of Weights & Biases with their places."""
        self.understood += len(records)
        if records:
            self.series.scalars.note_all(records, "_step", places.__getitem__)
            self.series.record_all("wandb", records, lambda at: At(*_step_and_time(records[at]), places[at]))

    def whole(self, data: bytes) -> str | None:
        """Take a file that is one JSON object; returns where it is broken."""
        text = data.decode("utf-8", "replace")
        try:
            top = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"is no complete JSON: {str(error)[:100]}"
        if not isinstance(top, dict):
            return "is JSON, but no object"
        if "_step" in top:
            self.understood += 1
            steps, seconds = number(top["_step"]), number(top.get("_runtime"))
            if steps is not None and seconds:
                self.series.summary("wandb", int(steps) + 1, seconds, speed_of(top), (text.encode()[:300], 1))
        return None

    def trainer_state(self, stream: Readable, reached: tuple[float, Place] | None = None) -> tuple[int, str | None]:
        """Take `trainer_state.json`: the losses have no time, the last record has that of the whole run. Returns lines and a note."""
        batches = ArrayBatches(stream, "log_history")
        for values, text, first in batches:
            records = [one for one in values if isinstance(one, dict)]
            self.understood += len(records)
            if records:
                shown = lru_cache(1 << 8)(partial(_shown, records))  # all numbers of a record show the same text
                self.series.scalars.note_all(records, "step", shown)
            for one in records if '"train_runtime"' in text else ():
                steps, seconds = number(one.get("step")), number(one.get("train_runtime"))
                if steps and seconds:
                    speed = Speed(number(one.get("train_samples_per_second")), None, None, None, None)
                    own = {key: value for key, value in one.items() if key.startswith("train_")}
                    place = json.dumps(own)[:600].encode(), first + text.count("\n", 0, text.find('"train_runtime"'))
                    self.series.summary("hf-trainer", int(steps), seconds, speed, place)
        if reached is not None:  # the last loss is of an earlier step
            self.series.scalars.note_scalar("step", reached[0], *reached)
        read = f"; {self.understood:,} records before that were read" if self.understood else ""
        return batches.lines, f"is no complete JSON: {batches.problem}{read}" if batches.problem else None

    def end(self, facts: Facts, lines: int, note: str | None) -> Reading:
        """Add all rows, once the file has been read."""
        first = facts.query("SELECT coalesce(max(run), 0) FROM throughput_run")[0][0] + 1
        facts.add(self.rows(facts, first))
        return Reading(lines, self.understood, note)

    def rows(self, facts: Facts, run: int) -> Iterator[Any]:
        """All rows, once the file has been read."""
        if not self._of_ranks and self.settings.world is None:
            self.series.forget_rank()  # a single one may be the rank of an adapter
        yield from self.series.rows(facts, self.name, run, self.settings)
        for other in self._of_ranks.values():
            yield from other.rows(facts, self.name, run + self.series.runs, self.settings)
            self.series.runs += other.runs
        own, *intervals = self.mlperf.series
        # a single interval is the whole run, and some programs count tokens in the place of samples there
        mlperf = next(
            (series for series in (own, *(one for one in intervals if one.points > 1)) if series.points), None
        )
        if mlperf is not None:
            mlperf.end(MOST)
            yield from run_rows(facts, self.name, run + self.series.runs, mlperf, self.mlperf.settings)
        yield from self.mlperf.rows(facts, self.name)


def _step_and_time(record: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Of a record of Weights & Biases."""
    step, when = number(record.get("_step")), number(record.get("_timestamp"))
    return None if step is None else int(step), when if when is not None else number(record.get("_runtime"))
