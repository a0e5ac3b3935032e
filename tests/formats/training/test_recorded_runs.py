"""Output that the programs themselves wrote (fixtures/records/README.md), against numbers read from it without our readers."""

import csv
import json
import math
import re
import statistics
import struct
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Input, Measure, Scalar, Step, ThroughputRun

FIXTURES = FIXTURES / "records"


def facts_of(name: str) -> Facts:
    facts, problems = analyze.read_facts([str(FIXTURES / name)])
    assert [] == problems
    return facts


def measured(facts: Facts) -> dict[str, float]:
    return {measure.name: measure.value for measure in facts.rows(Measure)}


def scalars(facts: Facts) -> dict[str, Scalar]:
    return {scalar.name: scalar for scalar in facts.rows(Scalar)}


@pytest.mark.parametrize("name", ["hf_trainer.log", "hf_trainer_plain.log"])
def test_log_of_the_trainer(name: str) -> None:
    text = (FIXTURES / name).read_text()
    losses = [float(value) for value in re.findall(r"\{'loss': '([\d.]+)'", text)]
    facts = facts_of(name)
    loss = scalars(facts)["loss"]
    assert (12, losses[0], losses[-1]) == (loss.n, loss.first, loss.last)
    assert (min(losses), max(losses), 0) == (loss.lowest, loss.highest, loss.not_finite)
    (end,) = [run for run in facts.rows(ThroughputRun) if run.tool == "hf-trainer"]
    (rate,) = re.findall(r"'train_samples_per_second': '([\d.]+)'", text)
    assert [float(rate)] == [step.rate for step in facts.rows(Step) if step.run == end.run]
    if "plain" not in name:
        bars = [float(rate) for rate in re.findall(r" (?!60)\d\d/60 \[[^,]*, ([\d.]+)it/s", text)]
        assert 60 == measured(facts)["steps"]
        assert measured(facts)["step_time"] == pytest.approx(1 / statistics.median(bars), rel=0.02)


def test_state_of_a_checkpoint_has_steps_and_losses_but_no_time() -> None:
    state = json.loads((FIXTURES / "hf_checkpoint_state.json").read_text())
    losses = [one["loss"] for one in state["log_history"]]
    facts = facts_of("hf_checkpoint_state.json")
    loss = scalars(facts)["loss"]
    assert (len(losses), 5, 60, losses[-1]) == (loss.n, loss.first_step, loss.last_step, loss.last)
    assert {"steps": state["global_step"], "loss": losses[-1]} == measured(facts)


def test_state_that_is_cut_is_read_to_there(tmp_path: Path) -> None:
    text = (FIXTURES / "hf_checkpoint_state.json").read_text()
    (tmp_path / "trainer_state.json").write_text(text[: text.index('"step": 40')])
    facts, problems = analyze.read_facts([str(tmp_path)])
    assert 7 == scalars(facts)["loss"].n
    assert "is no complete JSON" in problems[0]


def test_abort_behind_the_end_of_training_is_told_as_such() -> None:
    report, _, _ = analyze.analyze([str(FIXTURES / "hf_aborted_at_exit.log")])
    assert "rank-crash" == report.findings[0].name
    assert "Training had ended before" in report.findings[0].message


def test_bar_and_tracker_of_accelerate() -> None:
    text = (FIXTURES / "accelerate.log").read_text()
    bars = [float(rate) for rate in re.findall(r"(\d+\.\d+)it/s", text)]
    facts = facts_of("accelerate.log")
    assert 40 == measured(facts)["steps"]
    assert measured(facts)["step_time"] == pytest.approx(1 / statistics.median(bars), rel=0.02)
    events = _events((FIXTURES / "accelerate.tfevents").read_bytes())
    facts = facts_of("accelerate.tfevents")
    assert 40 == measured(facts)["steps"]
    assert {name: len(values) for name, values in events.items()} == {
        name: scalar.n for name, scalar in scalars(facts).items()
    }
    assert measured(facts)["step_time"] == pytest.approx(statistics.median(events["step_time"]), rel=0.02)
    assert measured(facts)["throughput"] == pytest.approx(statistics.median(events["samples_per_second"]), rel=0.02)
    assert measured(facts)["loss"] == pytest.approx(events["train/loss"][-1])


def _events(data: bytes) -> dict[str, list[float]]:
    """The scalars by name: the field of a summary's value is `tag` (1) and `simple_value` (2, a float)."""
    found: dict[str, list[float]] = {}
    for match in re.finditer(rb"\x0a([\x01-\x40])([\w/]+)\x15(.{4})", data, re.DOTALL):
        if len(match[2]) == match[1][0]:
            found.setdefault(match[2].decode(), []).append(struct.unpack("<f", match[3])[0])
    return found


def test_event_file_with_a_configuration_only_is_whole() -> None:
    facts = facts_of("hparams.tfevents")
    assert [("tensorboard", None)] == [(one.kind, one.note) for one in facts.rows(Input)]


def test_table_of_lightning() -> None:
    rows = list(csv.DictReader((FIXTURES / "lightning_metrics.csv").open()))
    facts = facts_of("lightning_metrics.csv")
    times = [float(row["step_time"]) for row in rows]
    loss = scalars(facts)["train_loss"]
    assert [pytest.approx(value) for value in times] == [step.seconds for step in facts.rows(Step)]
    assert (60, 0, 59, float(rows[-1]["train_loss"])) == (loss.n, loss.first_step, loss.last_step, loss.last)
    assert measured(facts)["step_time"] == pytest.approx(statistics.median(times), rel=0.03)
    assert 60 == measured(facts)["steps"]


def test_log_of_lightning_shows_its_ranks_and_the_bar_of_rich() -> None:
    (rate,) = re.findall(r"30/30 .*? ([\d.]+)it/s", (FIXTURES / "lightning.log").read_text())
    report, facts, _ = analyze.analyze([str(FIXTURES / "lightning.log")])
    assert ("healthy", []) == (report.verdict, report.findings)
    assert [(2,)] == facts.query("SELECT ranks FROM job")
    assert 60 == measured(facts)["steps"]  # two epochs of 30
    assert measured(facts)["step_time"] == pytest.approx(1 / float(rate))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda data: data[:1500], "may be cut"),
        (lambda data: data.replace(b",20,", b",2\xff\x00,"), "1 rows are cut or damaged, the last in line 22"),
        (lambda data: data[: data.rindex(b",")] + b"\n", "1 rows are cut or damaged, the last in line 61"),
        (lambda data: data + data, None),
        (lambda data: data.replace(b",", b";").replace(b".", b","), None),
        (lambda data: data.replace(b"\r\n", b"\n"), None),
    ],
)
def test_broken_tables_say_where(tmp_path: Path, change, note: str | None) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "metrics.csv").write_bytes(change((FIXTURES / "lightning_metrics.csv").read_bytes()))
    facts, problems = analyze.read_facts([str(tmp_path)])
    assert len(facts.rows(Step)) > 20
    assert (note is None) == (problems == [])
    assert note is None or note in problems[0]


@pytest.mark.parametrize(
    ("text", "steps", "seconds"),
    [
        ("Wall time,Step,Value\n" + "".join(f"{1e9 + 2.5 * n:.2f},{10 * n},1.5\n" for n in range(20)), 19, 0.25),
        ('"Step","run-1 - train/loss"\n' + "".join(f'"{n}","1.5"\n' for n in range(20)), 0, None),
        ("epoch,accuracy,loss,val_loss\n" + "".join(f"{n},0.5,1.5,1.6\n" for n in range(20)), 0, None),
    ],
)
def test_tables_of_other_libraries(tmp_path: Path, text: str, steps: int, seconds: float | None) -> None:
    (tmp_path / "export.csv").write_text(text)
    facts, problems = analyze.read_facts([str(tmp_path / "export.csv")])
    assert [] == problems
    assert {"training-table"} == {one.kind for one in facts.rows(Input)}
    assert steps == len(facts.rows(Step))
    assert {seconds} - {None} == {round(step.seconds or 0, 6) for step in facts.rows(Step)}
    assert {20} == {scalar.n for scalar in facts.rows(Scalar)}


def test_a_loss_that_is_not_finite_is_found_in_tables(tmp_path: Path) -> None:
    text = (FIXTURES / "lightning_metrics.csv").read_text().splitlines()
    (tmp_path / "metrics.csv").write_text("\n".join([*text[:-1], "1,59,0.03,nan"]) + "\n")
    report, facts, _ = analyze.analyze([str(tmp_path / "metrics.csv")])
    assert ["loss-nan"] == [finding.name for finding in report.findings]
    assert math.isfinite(scalars(facts)["train_loss"].last or math.nan)


def test_events_of_mlperf() -> None:
    log = [json.loads(line.split(" ", 1)[1]) for line in (FIXTURES / "mlperf_recorded.log").read_text().splitlines()]
    rates = [event["value"]["throughput"] for event in log if event["key"] == "tracked_stats"]
    when = {event["key"]: event["time_ms"] for event in log}
    facts = facts_of("mlperf_recorded.log")
    assert rates == [step.rate for step in facts.rows(Step)]
    assert measured(facts)["time_to_train"] == pytest.approx((when["run_stop"] - when["run_start"]) / 1000)
    assert (None, 0.72) == (measured(facts).get("steps"), measured(facts)["quality"])  # points need not be steps


def test_what_dllogger_writes_and_what_it_prints() -> None:
    records = [json.loads(line[5:]) for line in (FIXTURES / "dllogger_recorded.json").read_text().splitlines()]
    rates = [one["data"]["throughput"] for one in records if one["type"] == "LOG" and len(one["step"]) == 2]
    written, printed = facts_of("dllogger_recorded.json"), facts_of("dllogger_printed.log")
    assert rates == [step.rate for step in written.rows(Step)]
    assert [round(rate, 2) for rate in rates] == [step.rate for step in printed.rows(Step)]
    for facts in (written, printed):
        (run,) = facts.rows(ThroughputRun)
        assert (20, 2, "samples/s") == (run.points, run.gpus, run.unit)
        assert run.total == pytest.approx(statistics.fmean(rates), abs=0.01)


@pytest.mark.parametrize(
    ("line", "unit", "rate"),
    [
        ("DLL 2026-11-23 04:39:04.517464 - Epoch: 0 Iteration: {n}  train_loss : 0.5 nat tokens/s : 812.5 tokens/s", "tokens/s", 812.5),
        ("0: DLL 2026-11-23 04:39:04.517464 - ({n},) throughput_train : 99 img/s", "samples/s", 99),
        ("DLL 2026-11-23 04:39:04.517464 - () throughput_train : 99", "samples/s", 99),  # of a run that told no steps
        ("DLL 2026-13-41 99:39:04 - ({n},) throughput_train : 99", None, None),
    ],
)  # fmt: skip
def test_lines_that_programs_print_with_dllogger(line: str, unit: str | None, rate: float | None) -> None:
    facts = analyze.read_text("".join(f"{line.format(n=number)}\n" for number in range(20)))
    assert {rate} - {None} == {step.rate for step in facts.rows(Step)}
    assert {unit} - {None} == {run.unit for run in facts.rows(ThroughputRun)}


def test_log_of_nanogpt() -> None:
    times = re.findall(r"^iter \d+: loss .*? time ([\d.]+)ms", (FIXTURES / "nanogpt.log").read_text(), re.MULTILINE)
    facts = facts_of("nanogpt.log")
    assert [pytest.approx(float(time) / 1000) for time in times] == [step.seconds for step in facts.rows(Step)]
    assert (61, len(times)) == (measured(facts)["steps"], len(times))
