"""A genuine monitor file agrees with a plain reading by json."""

import io
import json
import statistics

import pytest
from helpers.places import SHARED

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.gpu import GpuUse
from nccl_doctor.formats import registry
from nccl_doctor.formats.gpu import samples


def test_a_genuine_monitor_file() -> None:
    path = next((SHARED / "real").glob("*/*monitor.jsonl"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    facts = Facts()
    reading = samples.read_format(io.BytesIO(path.read_bytes()), "monitor.jsonl", facts)
    assert (len(records), None) == (reading.understood, reading.note)
    for use in facts.rows(GpuUse):
        assert statistics.mean(record[f"gpu_usage:{use.gpu}"] for record in records) == pytest.approx(use.util_mean)
    assert "gpu-samples" == getattr(registry.recognise(path.read_bytes()[: 1 << 16]), "kind", None)
