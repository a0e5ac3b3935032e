"""Records in lines of their own: MLPerf's events of all versions, and DLLogger before and since version 1."""

import io
import json

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import MlperfRun, Scalar, Step, ThroughputRun
from nccl_doctor.formats.training import records
from nccl_doctor.formats.training.record_lines import FIRST, SINGLE, STAMPED, parse_record

START = 1_790_000_000.0


def read(text: str) -> Facts:
    facts = Facts()
    records.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts


def stamped(key: str, at: float, value: object = None, **details: object) -> str:
    event = json.dumps({"value": value, "metadata": {"file": "loop.py", "lineno": 7, **details}})
    return f":::MLL {START + at:.3f} {key}: {event}\n"


def event(key: str, at: float, value: object = None, **details: object) -> str:
    return f":::MLLOG {json.dumps({'key': key, 'value': value, 'time_ms': 1000 * (START + at), 'metadata': details})}\n"


@pytest.mark.parametrize(
    ("literal", "line", "key", "value", "details"),
    [
        (STAMPED, '3: :::MLL 1790000000.5 eval_loss: {"value": 2.5, "metadata": {"epoch": 2}}', "eval_loss", 2.5, {"epoch": 2}),
        (STAMPED, """:::MLL 1790000000.5 stop: {"value": null, "metadata": {'status': 'done'}}""", "stop", None, {"status": "done"}),
        (FIRST, ":::MLPv0.5.0 ssd 1790000000.25 (train.py:40) run_start", "run_start", None, {}),
        (FIRST, ':::MLPv0.5.0 ssd 1790000000.25 (train.py:90) run_stop: {"success": false}', "run_stop", None, {"status": "aborted"}),
        (FIRST, ':::MLPv0.5.0 ssd 1790000000.25 (train.py:90) run_stop: {"success": "true"}', "run_stop", None, {"status": "success"}),
        (FIRST, ":::MLPv0.5.0 ssd 1790000000.25 (train.py:90) quality_target: 0.21", "quality_target", 0.21, {}),
        (FIRST, ':::MLPv0.5.0 ssd 1790000000.25 (train.py:95) learning_rate : { "value": 0.5 }', "learning_rate", 0.5, {}),
        (SINGLE, ":::NVLOGv0.2.2 Glow 1790000000.25 (logger.py:9) train_iter_items/sec: 5120.5", "train_iter_items/sec", 5120.5, {}),
    ],
)  # fmt: skip
def test_a_line_becomes_an_event(literal: bytes, line: str, key: str, value: object, details: object) -> None:
    found = parse_record(literal, line.encode())
    assert found is not None
    assert (key, value, details) == (found["key"], found["value"], found["metadata"])
    assert START <= found["time_s"] <= START + 1


@pytest.mark.parametrize(
    "line", [b":::MLL soon run_start: {}", b":::MLL 1790000000.5", b":::MLPv0.5.0 run_start", b":::NVLOGv"]
)
def test_no_record(line: bytes) -> None:
    literal = next(one for one in (STAMPED, FIRST, SINGLE) if line.startswith(one.rstrip()))
    assert parse_record(literal, line) is None


def test_all_ranks_print_that_a_run_begins() -> None:
    text = "".join(stamped("init_start", 0.1 * rank) for rank in range(8))
    text += stamped("submission_benchmark", 1, "gnmt") + "".join(stamped("run_start", 30 + rank) for rank in range(8))
    text += stamped("eval_accuracy", 500, 23.9, epoch_num=1) + stamped("run_stop", 530, status="success")
    (run,) = read(text).rows(MlperfRun)
    assert ("gnmt", "success", 30.0, 500.0, 23.9) == (run.benchmark, run.status, run.init_s, run.seconds, run.quality)


def test_a_second_run_begins_with_its_own_start() -> None:
    text = stamped("init_start", 0) + stamped("run_start", 10) + stamped("run_stop", 110, status="aborted")
    text += stamped("init_start", 200) + stamped("run_start", 205) + stamped("run_stop", 265, status="success")
    assert [("aborted", 100.0), ("success", 60.0)] == [(run.status, run.seconds) for run in read(text).rows(MlperfRun)]


@pytest.mark.parametrize("value", [[0.371, 0.338], {"accuracy": {"BBOX": 0.371, "SEGM": 0.338}}])
def test_the_first_of_several_qualities(value: object) -> None:
    (run,) = read(stamped("run_start", 0) + stamped("eval_accuracy", 9, value)).rows(MlperfRun)
    assert run.quality == 0.371


def test_blocks_that_begin_with_batches_and_end_with_samples() -> None:
    text = event("run_start", 0)
    for number in range(1, 7):  # 512 samples in 100 s; the start counts batches of 16
        begun = 32 * (number - 1)
        text += event("block_start", 100 * (number - 1), samples_count=begun)
        text += event("block_stop", 100 * number, samples_count=512 * number)
        text += event("train_loss", 100 * number, 2.0 / number, samples_count=512 * number)
    facts = read(text)
    assert [pytest.approx(5.12)] * 6 == [step.rate for step in facts.rows(Step)]
    (loss,) = facts.rows(Scalar)
    assert ("train_loss", 6, 2.0, pytest.approx(1 / 3)) == (loss.name, loss.n, loss.first, loss.last)


def test_iterations_of_the_first_dllogger() -> None:
    text, at = "", 0.0
    for epoch in range(2):
        text += f":::NVLOGv0.2.2 Glow {START + at:.3f} (logger.py:9) train_epoch_start: {epoch}\n"
        for step in range(10):
            at += 0.5
            head = f":::NVLOGv0.2.2 Glow {START + at:.3f} (logger.py:9)"
            text += f"{head} train_iter_start: {step}\n{head} train_iteration_loss: 0.4\n"
            text += f"{head} train_iter_items/sec: {2048 + step}\n{head} iter_time: 0.5\n"
        text += f":::NVLOGv0.2.2 Glow {START + at:.3f} (logger.py:9) train_epoch_stop: {epoch}\n"
    facts = read(text)
    (run,) = facts.rows(ThroughputRun)
    steps = facts.rows(Step)
    assert ("dllogger", 20, [0.5] * 20) == (run.tool, run.points, [step.seconds for step in steps])
    assert [*range(2048, 2058)] * 2 == [step.rate for step in steps]


def test_an_epoch_without_iterations_has_the_rate_that_it_ends_with() -> None:
    text = ""
    for epoch in range(3):
        head = f":::NVLOGv0.1.0 ncf {START + 2 * epoch:.3f} (ncf.py:9)"
        text += f"{head} train_epoch_start: {epoch}\n{head} train_throughput: {4096.0 + epoch}\n{head} train_epoch_stop: {epoch}\n"
        text += f"{head} eval_throughput: 9.0\n"
    assert [4096.0, 4097.0, 4098.0] == [step.rate for step in read(text).rows(Step)]


def test_a_fraction_of_an_epoch_is_no_step() -> None:
    text = "".join(
        f"DLL 2026-11-02 10:00:{second:02}.100000 - Iteration {second} | acc : 0.5 % | iteration_time : 20.0 ms | loss : 0.9 \n"
        for second in range(30)
    )
    text += "DLL 2026-11-02 10:01:00.100000 - Current_epoch_num 0.15 | eval_epoch_time : 900.0 ms | total_steps : 30 \n"
    steps = read(text).rows(Step)
    assert list(range(30)) == [step.step for step in steps]
    assert {0.02} == {step.seconds for step in steps}


def test_a_line_of_dllogger_without_numbers_is_not_damaged(tmp_path) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path / "job.log"
    shown = "DLL 2026-11-02 10:00:{:02}.100000 - (0, {})  throughput : 512.0 images/s \n"
    log.write_text("".join(shown.format(at, at) for at in range(20)) + "DLL 2026-11-02 10:00:30.100000 -  \n")
    _, _, problems = analyze.analyze([str(log)])
    assert problems == []


def test_the_report_shows_time_to_train_quality_and_loss(tmp_path) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path / "job.log"
    text = stamped("submission_benchmark", 0, "gnmt") + stamped("run_start", 0) + stamped("train_loss", 700, 1.25)
    log.write_text(text + stamped("eval_accuracy", 800, 24.2) + stamped("run_stop", 812.5, status="success"))
    report, _, _ = analyze.analyze([str(log)])
    values = {measure.name: measure.value for measure in report.measures}
    assert (812.5, 24.2, 1.25) == (values["time_to_train"], values["quality"], values["loss"])
    assert "time to train 812.5 s · quality 24.2 · loss 1.25 at the end" in " ".join(report.job_lines)


def test_a_summary_beside_iterations_with_times_is_no_step() -> None:
    shown = "DLL 2026-11-02 10:00:{:02}.100000 - {}\n"
    text = "".join(shown.format(n, f"Iteration {n} | iteration_time : 20.0 ms | loss : 0.9 ") for n in range(30))
    text += shown.format(40, "epoch 000 | loss : 0.5 ") + shown.format(50, "final epoch 001 | loss : 0.5 ")
    (run,) = read(text).rows(ThroughputRun)
    assert (30, 29) == (run.points, run.last_step)


def test_one_interval_that_is_the_whole_run_gives_no_speed() -> None:
    text = (
        event("run_start", 0)
        + event("block_start", 0, samples_count=0)
        + event("block_stop", 900, samples_count=9_000_000)
    )
    facts = read(text + event("run_stop", 900, status="success"))
    assert [] == facts.rows(ThroughputRun)
    (run,) = facts.rows(MlperfRun)
    assert run.seconds == 900


def test_a_clock_of_whole_seconds_waits_until_steps_are_told_apart() -> None:
    lines = [
        json.dumps(
            {
                "loss": 1.0,
                "global_step/max_steps": f"{n}/99",
                "elapsed_time": f"{int(1.6 * n)}s",
                "train_speed(s/it)": 1.6,
            }
        )
        for n in range(1, 90)
    ]
    steps = read("".join(f"{line}\n" for line in lines)).rows(Step)
    assert steps
    assert all(step.seconds == pytest.approx(1.6, rel=0.05) for step in steps)


def test_a_summary_of_dllogger_without_steps(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "joblog.log"
    path.write_text(
        "DLL 2026-11-02 10:00:00.123456 - PARAMETER batch_size : 256 world_size : 8\n"
        "DLL 2026-11-02 10:10:00.123456 - () train_throughput : 2511.31 images/s train_loss : 1.23 \n"
    )
    report, _, _ = analyze.analyze([str(path)])
    assert [("throughput", 2511.31, "samples/s")] == [
        (one.name, one.value, one.unit) for one in report.measures if one.name in ("throughput", "steps")
    ]


def test_an_error_is_a_quality_that_falls() -> None:
    def run(target: float) -> MlperfRun:
        text = event("quality_target", 0, target) + event("run_start", 1)
        text += (
            event("eval_error", 90, 0.31, epoch_num=1)
            + event("eval_error", 180, 0.12, epoch_num=2)
            + event("run_stop", 181)
        )
        (row,) = read(text).rows(MlperfRun)
        return row

    assert [(0.12, "success"), (0.12, None)] == [(row.quality, row.status) for row in (run(0.124), run(0.1))]


def test_losses_of_numbered_steps_tell_their_time() -> None:
    text = event("global_batch_size", 0, 64) + event("run_start", 0)
    for epoch in (1, 2):
        start = 100.0 * epoch
        text += event("epoch_start", start, epoch_num=epoch)
        for step in range(10, 60, 10):
            text += event("train_loss", start + 0.5 * step, 1 / step, epoch_num=epoch, step_num=50 * (epoch - 1) + step)
        text += (
            event("eval_start", start + 30)
            + event("eval_stop", start + 60)
            + event("epoch_stop", start + 61, epoch_num=epoch)
        )
    steps = [(row.step, row.seconds) for row in read(text + event("run_stop", 300, status="success")).rows(Step)]
    assert [(step, 0.5) for step in (20, 30, 40, 50, 70, 80, 90, 100)] == steps
