"""DeepSpeed's communication logger, from recordings (fixtures/records/recorded), against numbers read from them here."""

import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.tables import CommOp, Measure, Step, ThroughputRun

RECORDED = FIXTURES / "records" / "recorded"
UNITS = {"B": 1, "KB": 1024}


def ops_of(path: Path) -> dict[tuple[str, int], CommOp]:
    facts, _ = analyze.read_facts([str(path)])
    return {(row.op, row.size): row for row in facts.rows(CommOp)}


def test_line_of_each_collective() -> None:
    text = (RECORDED / "deepspeed_calls.log").read_text()
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for op, ms, size, unit in re.findall(r"comm op: (\w+) \| time \(ms\): ([\d.]+) \| msg size: ([\d.]+) (K?B)", text):
        times[op, round(float(size) * UNITS[unit])].append(float(ms))
    found = ops_of(RECORDED / "deepspeed_calls.log")
    assert set(times) == set(found)
    for key, own in times.items():
        assert (0, len(own), statistics.median(own), max(own)) == (
            found[key].rank, found[key].n, pytest.approx(found[key].milliseconds), found[key].slowest
        )  # fmt: skip


def test_samples_per_second() -> None:
    text = (RECORDED / "deepspeed_calls.log").read_text()
    rates = [float(rate) for rate in re.findall(r"CurrSamplesPerSec=([\d.]+)", text)]
    report, facts, _ = analyze.analyze([str(RECORDED / "deepspeed_calls.log")])
    assert [] == report.findings
    (run,) = facts.rows(ThroughputRun)
    assert ("deepspeed", len(rates)) == (run.tool, run.points)
    assert rates == pytest.approx([step.rate for step in facts.rows(Step)])


def test_table_at_the_end() -> None:
    text = (RECORDED / "deepspeed_times.log").read_text()
    table = text[text.index("Comm. Op") : text.index("Breakdown")]
    found = ops_of(RECORDED / "deepspeed_times.log")
    sizes = re.findall(r"^ {20}([\d.]+) (K?B) +(\d+) +[\d.]+ +([\d.]+) +[\d.]+ +([\d.]+) *$", table, re.MULTILINE)
    assert [
        (round(float(size) * UNITS[unit]), int(n), float(ms), float(busbw)) for size, unit, n, ms, busbw in sizes
    ] == [(row.size, row.n, row.milliseconds, row.busbw) for row in found.values()]
    assert {"broadcast", "all_reduce", "all_gather_into_tensor"} == {op for op, _ in found}
    facts, _ = analyze.read_facts([str(RECORDED / "deepspeed_times.log")])
    shown = {row.of: row.value for row in facts.rows(Measure) if row.name == "busbw"}
    assert max(found["all_reduce", 395_264].busbw or 0, 0) / 8 == pytest.approx(shown["all_reduce"])


def test_table_that_is_cut_or_has_a_line_between(tmp_path: Path) -> None:
    text = (RECORDED / "deepspeed_times.log").read_text()
    (tmp_path / "cut.log").write_text(text[: text.index("all_gather_into_tensor\n")])
    assert {"broadcast", "all_reduce"} == {op for op, _ in ops_of(tmp_path / "cut.log")}
    (tmp_path / "twice.log").write_text(text + "[Rank 0] comm op: all_reduce | time (ms): x | msg size: 4.0 B\n" + text)
    assert 30 > ops_of(tmp_path / "twice.log")["all_reduce", 4].n
