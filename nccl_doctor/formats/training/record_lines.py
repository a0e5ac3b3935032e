"""Records that libraries print in lines of their own: MLPerf's events of all versions, and those of DLLogger."""

import json
import re
from collections.abc import Mapping
from typing import Any

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.training import dllogger
from nccl_doctor.formats.training.lines.plain_records import STEP_KEYS

BROKEN = object()
"""In the place of a line that is no JSON."""
MLLOG = b":::MLLOG {"
STAMPED = b":::MLL "  # v0.6
FIRST = b":::MLPv0."  # v0.5
EVENTS = (MLLOG, STAMPED, FIRST)  # of MLPerf
SINGLE = b":::NVLOGv"  # DLLogger before version 1: a line a number
LITERALS = (*EVENTS, SINGLE, dllogger.LITERAL, dllogger.SHOWN)
_LINE = compiled(
    rb":::(?:MLL|(?:MLP|NVLOG)v\d\.\d{1,2}\.\d{1,2} \S{1,80}) (\d{9,11}(?:\.\d{1,12})?|0\.0) "
    rb"(?:\([^()\n]{1,300}\) )?([^\s:(){}]{1,80})(?: ?: ([^\n]{1,20000}))?"
)
# of the first line of a history
_HISTORY_KEYS = (b'"_step"', b'"data_time"', b'"perf/step_time_seconds"', b'"current_steps"')
_OWN_KEYS = compiled(
    rb'"(?:' + b"|".join(re.escape(key.encode()) for key in STEP_KEYS) + rb'|epoch|train_loss)" ?: ?"?\d'
)
_REACHED = compiled(rb'"global_step" ?: ?(\d{1,12})')
_decode = json.JSONDecoder().raw_decode


def tells_steps(data: bytes) -> bool:
    """Whether the first line is a record of its own, as in a history; the summary of a run is one line too, but the last."""
    line, _, more = data.lstrip().partition(b"\n")
    return (any(key in line for key in _HISTORY_KEYS) or _OWN_KEYS.search(line) is not None) and bool(more.strip())


def reached_step(head: bytes) -> tuple[float, tuple[bytes, int]] | None:
    """The step that a `trainer_state.json` has reached, with its line and the number of that; None where its head names none."""
    found = _REACHED.search(head)
    if found is None:
        return None
    line = head[head.rfind(b"\n", 0, found.start()) + 1 :].partition(b"\n")[0].strip()
    return float(found[1]), (line[:300], 1 + head.count(b"\n", 0, found.start()))


def parse_record(literal: bytes, line: bytes) -> dict[str, Any] | None:
    """The record of a line that holds a literal; None where it is cut or no record.

    Source: mlperf_logging `mllog.py`, mlperf_compliance `mlperf_log.py`, dllogger `logger.py`::

        :::MLLOG {"namespace": "", "time_ms": 1721026805975, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, …}
        :::MLL 1561429582.548 run_stop: {"value": null, "metadata": {"status": "success", "file": "train.py", "lineno": 231}}
        :::MLPv0.5.0 resnet 1541710560.678 (train.py:24) run_stop: {"success": true}
        :::NVLOGv0.2.2 Tacotron2_PyT 1593039628.381 (logger.py:251) train_iter_items/sec: 221709.8
    """
    if literal == dllogger.SHOWN:
        return dllogger.parse_shown(line)
    at = line.find(literal)
    if literal not in (STAMPED, FIRST, SINGLE):
        return _object(line[at + len(literal) - 1 :])
    match = _LINE.match(line, at)
    if match is None or match.end() < len(line.rstrip()):
        return None
    value = _value(match[3]) if match[3] is not None else None
    event: dict[str, Any] = {
        "time_s": float(match[1]),
        "key": match[2].decode("utf-8", "replace"),
        "value": value,
        "metadata": {},
    }
    if isinstance(value, dict):
        details = value.get("metadata")
        event["value"] = value.get("value")
        event["metadata"] = details if isinstance(details, dict) else {}
        success = str(value.get("success")).lower()  # TensorFlow's programs put it in quotes
        if success in ("true", "false"):
            event["metadata"] = {"status": "success" if success == "true" else "aborted"}
    return event


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        return _decode(text.decode("utf-8", "replace"))[0]  # type: ignore[no-any-return]  # the literal ends with a brace
    except (ValueError, RecursionError):
        return None


def _value(text: bytes) -> Any:
    """A value as JSON, as a dictionary of Python without nested quotes, or else as text."""
    for written in (text, text.replace(b"'", b'"')):
        try:
            return json.loads(written)
        except (ValueError, RecursionError):
            continue
    return text.decode("utf-8", "replace").strip()


class SingleNumbers:
    """Puts the numbers of an iteration together, which DLLogger before version 1 printed a line each."""

    def __init__(self) -> None:
        self._epoch = 0
        self._step: int | None = None
        self._data: dict[str, float] = {}
        self._when: float | None = None

    def take(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take a line. Returns the record of the iteration before, once the next begins or the epoch ends."""
        key, value = str(event["key"]), event["value"]
        if key == "train_epoch_start" and isinstance(value, int):
            self._epoch = value
        ended = None
        if key in ("train_iter_start", "train_epoch_stop", "run_stop"):
            if self._data:
                step = [self._epoch] if self._step is None else [self._epoch, self._step]
                ended = {"step": step, "timestamp": self._when, "data": self._data}
            self._step = value if key == "train_iter_start" and isinstance(value, int) else None
            self._data = {}
        elif (
            isinstance(value, int | float)
            and "epoch" not in key
            and (self._step is not None or key == "train_throughput")
        ):
            self._data[key.replace("train_iter_", "").replace("train_iteration_", "")] = float(value)
            self._when = event["time_s"]
        return ended


def records_of(lines: list[bytes]) -> list[Any]:
    """The record of each line, `BROKEN` for one that is no JSON. Decoding many at once takes half the time."""
    found = record_of(b"[" + b",".join(lines) + b"]")
    if isinstance(found, list) and len(found) == len(lines):
        return found
    return [record_of(line) for line in lines]


def record_of(text: bytes) -> Any:
    """What a text holds."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return BROKEN
