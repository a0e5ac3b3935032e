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
    return {(row.op, row.size): row for row in facts.rows(CommOp) if row.size is not None}


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


def test_table_at_the_end(tmp_path: Path) -> None:
    text = (RECORDED / "deepspeed_times.log").read_text()
    table = text[text.index("Comm. Op") : text.index("Breakdown")]
    found = ops_of(RECORDED / "deepspeed_times.log")
    sizes = re.findall(r"^ {20}([\d.]+) (K?B) +(\d+) +[\d.]+ +([\d.]+) +[\d.]+ +([\d.]+) *$", table, re.MULTILINE)
    assert [
        (round(float(size) * UNITS[unit]), int(n), float(ms), float(busbw)) for size, unit, n, ms, busbw in sizes
    ] == [(row.size, row.n, row.milliseconds, row.busbw) for row in found.values()]
    assert {"broadcast", "all_reduce", "all_gather_into_tensor"} == {op for op, _ in found}
    (tmp_path / "table.log").write_text(table)  # without the timers, which give steps
    facts, _ = analyze.read_facts([str(tmp_path / "table.log")])
    shown = {row.of: row.value for row in facts.rows(Measure) if row.name == "busbw"}
    assert max(found["all_reduce", 395_264].busbw or 0, 0) / 8 == pytest.approx(shown["all_reduce"])


def test_table_that_is_cut_or_has_a_line_between(tmp_path: Path) -> None:
    text = (RECORDED / "deepspeed_times.log").read_text()
    (tmp_path / "cut.log").write_text(text[: text.index("all_gather_into_tensor\n")])
    assert {"broadcast", "all_reduce"} == {op for op, _ in ops_of(tmp_path / "cut.log")}
    (tmp_path / "twice.log").write_text(text + "[Rank 0] comm op: all_reduce | time (ms): x | msg size: 4.0 B\n" + text)
    assert 30 > ops_of(tmp_path / "twice.log")["all_reduce", 4].n


@pytest.mark.parametrize("names", [("fwd", "bwd"), ("forward", "backward")])
def test_timers_of_the_engine_give_steps_and_the_share_of_the_all_reduce(
    names: tuple[str, str], tmp_path: Path
) -> None:
    """The backward pass has its all-reduce in it (engine.py); lines of micro steps are no steps."""
    forward, backward = names
    micro = f"{forward}_microstep: 200.00 | {backward}_microstep: 300.00 | {backward}_allreduce_microstep: 10.00"
    whole = f"{forward}: 600.00 | {backward}: 1100.00 | {backward}_inner: 1000.00 | {backward}_allreduce: 90.00"
    log = "".join(
        f"[2026-05-07 12:00:{n:02d},0] [INFO] [logging.py:96:log_dist] [Rank 0] {rank}time (ms) | {line}\n"
        for n, rank in enumerate(["", "rank=0 "] * 6)
        for line in (f"{micro} | step_microstep: 100.00", f"{whole} | step: 100.00")
    )
    (tmp_path / "timers.log").write_text(log)

    facts, _ = analyze.read_facts([str(tmp_path / "timers.log")])

    assert [(12, 1.8)] * 12 == [(12, pytest.approx(step.seconds)) for step in facts.rows(Step)]
    shown = {row.name: row.value for row in facts.rows(Measure)}
    assert (pytest.approx(1.8), pytest.approx(5.0), 12) == (
        shown["step_time"],
        shown["allreduce_share"],
        shown["steps"],
    )


def test_recorded_timers() -> None:
    """Forward, backward and step of each line, added up by hand for the first."""
    facts, _ = analyze.read_facts([str(RECORDED / "deepspeed_times.log")])
    seconds = [step.seconds for step in facts.rows(Step)]
    assert (12, pytest.approx((1.80 + 9.90 + 16.90) / 1000)) == (len(seconds), seconds[0])
