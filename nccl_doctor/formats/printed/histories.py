"""Histories of a training that a program kept as lists of numbers, a value an epoch, and wrote as JSON: Keras's `History.history`."""

import json
from collections.abc import Iterator
from typing import Any

from nccl_doctor.facts.store import Facts
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.printed.series import NumberSeries, Place
from nccl_doctor.formats.printed.units import kind_of, unit_in
from nccl_doctor.formats.training.metrics import number
from nccl_doctor.formats.training.steps.scalars import Scalars
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import read_head

_LARGEST = 64 << 20  # bytes
_RUNS = 64
_NAMES = 100  # of a run
_VALUES = 100_000  # of a name


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read the lists of one run, or of several under their names: losses, and times and rates by the words of their names.

    Source: `json.dump(history.history, …)` behind `model.fit` of Keras, and loops of people's own::

        {"loss": [2.30, 2.14], "val_loss": [2.31, 2.20], "epoch_time": [53.2, 52.9]}
        {"baseline": {"train_loss": [2.30, 2.14]}, "wide": {"train_loss": [2.28, 2.01]}}
    """
    facts.mark_covered("scalar", "printed_number")
    content = read_head(stream, _LARGEST)
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    try:
        told: Any = json.loads(content.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        return Reading(lines, 0, f"is no complete JSON: {str(error)[:100]}")
    scalars, series = Scalars(), NumberSeries()
    used, at = 0, 0
    counted = False
    for run, key, values in _lists(told):
        found = content.find(json.dumps(key).encode(), at)
        at = max(found, at)
        place = f"{run} {key}: … {values[-1]}".strip().encode(), content.count(b"\n", 0, at) + 1
        used += 1
        if "loss" in key.lower():
            if not counted:
                for epoch in range(1, len(values) + 1):
                    scalars.note_scalar("epoch", epoch, None, place)
                counted = True
            for value in values:
                scalars.note_scalar(f"{run}/{key}" if run else key, value, None, place)
        elif (kind := kind_of(key, "")) is not None:
            unit = unit_in(key) or ("s" if kind == "time" else "")
            for epoch, value in enumerate(values, 1):
                series.add(key[:60], unit, value, Place(place[1], place[0], run[:80] or f"epoch {epoch}"))
    facts.add(list(scalars.rows(facts, name)))
    facts.add(series.rows(facts, name))
    return Reading(lines, min(used, lines))


def _lists(told: Any) -> Iterator[tuple[str, str, list[float]]]:
    """(name of the run, name of the list, its numbers); lists of anything else are left out."""
    runs: list[tuple[str, Any]] = list(told.items()) if isinstance(told, dict) else []
    if any(isinstance(value, list) for _, value in runs):
        runs = [("", told)]
    for run, lists in runs[:_RUNS]:
        for key, values in list(lists.items())[:_NAMES] if isinstance(lists, dict) else ():
            if isinstance(values, list) and values:
                numbers = [number(value) for value in values[:_VALUES]]
                known = [value for value in numbers if value is not None]
                if len(known) == len(numbers):
                    yield str(run), str(key), known
