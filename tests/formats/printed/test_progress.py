"""Loops that tell a step and a loss: their pace by time stamps and clocks, and how far they came."""

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Measure, Scalar, Step, ThroughputRun
from nccl_doctor.formats.printed import printed_numbers, progress_lines

START = datetime(2026, 11, 2, 23, 59, 30)


def at(seconds: float, form: str) -> str:
    return (START + timedelta(seconds=seconds)).strftime(form)


def read(lines: list[str]) -> Facts:
    facts = Facts()
    printed_numbers.read_format(io.BytesIO("".join(f"{line}\n" for line in lines).encode()), "out.log", facts)
    return facts


FINE, DATE, DAY = "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%H:%M:%S.%f"


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (lambda n: f"{at(4 * n, FINE)} INFO fit.py:3 step {10 * n} loss {9 - n / 10}", 0.4),
        (
            lambda n: f"INFO:root:{at(4 * n, '%H:%M:%S')} [step {100 * n}] loss={9 - n / 10}",
            0.04,
        ),  # of logging.basicConfig
        (lambda n: f"[{at(25 * n, DATE)}] [{n + 1}/40] loss: {9 - n / 10}", 25.0),
        (lambda n: f"[{at(4 * n, DATE)}] [{n + 1}/40] loss: {9 - n / 10}", 4.0),  # three lines at a time
        (lambda n: f"{at(4 * n, DAY)} Epoch 1/3 Batch {20 * n}/800 Loss {9 - n / 10} Acc 0.5", 0.2),  # over midnight
        (lambda n: f"step {10 * n} | loss {9 - n / 10} | elapsed {5.0 * n:.1f}s", 0.5),
        (lambda n: f"iteration {n}, train_loss={9 - n / 10}, time elapsed: {1.5 * n:.1f} min", 90.0),
        (
            lambda n: (
                f"Epoch 0, Step {25 * n}, total used time {7 * n + 0.418160438538} s, avg loss so far is {9 - n / 10}"
            ),
            0.28,
        ),
        (
            lambda n: (
                f"{at(40 * n, FINE)} - INFO: [epoch: 1, iter: {900 + 100 * n:,}, lr:(1.9e-04,)] l_pix: {9 - n / 10:.4e} "
            ),
            0.4,
        ),
    ],
)
def test_the_pace_of_steps(line: Callable[[int], str], seconds: float) -> None:
    facts = read([line(n) for n in range(40)])
    (run,) = facts.rows(ThroughputRun)
    assert ("own-loop", "steps/s") == (run.tool, run.unit)
    assert all(step.seconds == pytest.approx(seconds) for step in facts.rows(Step))
    (loss,) = facts.rows(Scalar)
    assert (40, 9.0, pytest.approx(5.1)) == (loss.n, loss.first, loss.last)


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (lambda n: [f"Epoch {n} finished in {60 + n % 2}.5s, loss 0.{50 - n}"], 61.0),
        (
            lambda n: [
                f"Time taken for epoch {n} is {60 + n % 2}.5 sec, avg 11.8 samples/sec",
                f"Total validation time: 4.{n} sec",
            ],
            61.0,
        ),
        (lambda n: [f"Epoch: {n}/30", f"Time Taken: {32 + n % 2}.00s - LR: 1e-4", f"Train Loss: {9 - n}"], 32.5),
        (lambda n: [f"Epoch {n}/30", f"Train loss: {9 - n}", f"Epoch duration: 0h 1m {n % 2}s"], 60.5),
        (lambda n: [f"{at(61 * n, DATE)} - Epoch {n}/30 - loss: {9 - n} - val_loss: 3.2"], 61.0),
    ],
)
def test_the_time_of_epochs(lines: Callable[[int], list[str]], seconds: float) -> None:
    facts = read([line for n in range(20) for line in lines(n)])
    (run,) = facts.rows(ThroughputRun)
    assert ("epochs", "epochs/s") == (run.tool, run.unit)
    assert all(abs(step.seconds - seconds) <= 1 for step in facts.rows(Step) if step.seconds is not None)


@pytest.mark.parametrize(
    "lines",
    [
        [f"step {n}: val_loss 2.0" for n in range(40)],
        [f"packet {n} loss 2%" for n in range(40)],
        [f"user {n} reported a loss of 3 items" for n in range(40)],
        ["step 1 loss 2.0", "step 2 loss 1.9"],
    ],
)
def test_no_loop(lines: list[str]) -> None:
    facts = read(lines)
    assert ([], []) == (facts.rows(ThroughputRun), facts.rows(Scalar))


def test_steps_that_begin_again_give_no_pace() -> None:
    facts = read([f"{at(4 * n, FINE)} step {10 * (n % 10)} loss 2.0" for n in range(40)])
    assert all(step.seconds == pytest.approx(0.4) for step in facts.rows(Step))


def test_a_log_with_an_error_shows_how_far_it_came(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    lines = [f"{at(4 * n, FINE)} INFO fit.py:3 step {10 * n} loss {9 - n / 10:.1f}" for n in range(12)]
    log.write_text("\n".join([*lines, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", ""]))
    report, facts, _ = analyze.analyze([str(log)])
    assert "error" == report.verdict
    measured = {row.name: row.value for row in facts.rows(Measure)}
    assert (pytest.approx(0.4), 7.9) == (measured["step_time"], measured["loss"])


def test_a_log_with_known_step_lines_is_not_searched(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(f"{at(4 * n, FINE)} step {n} loss 2.0 step_time: 0.5\n" for n in range(40)))
    _, facts, _ = analyze.analyze([str(log)])
    assert {0.5} == {step.seconds for step in facts.rows(Step)}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"loss",
        b"step 1 loss",
        b"\xff\xfe loss 3 step",
        b"epoch 1 loss nan\n" * 9,
        b"step 99999999999999 loss 1\n" * 9,
    ],
)
def test_hostile_text(text: bytes) -> None:
    facts = Facts()
    progress_lines.read_format(io.BytesIO(text), "out.log", facts)
    assert [] == facts.rows(ThroughputRun)


def test_a_lone_time_behind_a_step_and_a_loss_is_that_of_the_step() -> None:
    facts = read([f"step {n:4d} | loss {9 - n / 10:.3f} | {0.5 + n % 3 / 100:.3f}s" for n in range(1, 31)])
    (run,) = facts.rows(ThroughputRun)
    assert 30 == run.points
    assert {0.5, 0.51, 0.52} == {step.seconds for step in facts.rows(Step)}


@pytest.mark.parametrize(
    "line",
    [
        lambda n: f"step {n} | loss {9 - n / 10:.3f} | {n * 1.5:.1f}s",
        lambda n: f"step: {n}, loss: {9 - n / 10:.3f}, time: {n * 1.5:.3f}",
        lambda n: f"{n} iterations, loss={9 - n / 10:.3f}, wall_time={n * 1.5:.2f}",
        lambda n: f"Step {n}: loss = {9 - n / 10:.3f} ({n * 1.5:.1f} s elapsed)",
        lambda n: f"step {n} train_loss {9 - n / 10:.3f} train_time:{n * 1500:.0f}ms",
        lambda n: f"steps={n} loss={9 - n / 10:.3f} runtime={n * 1.5:.1f}s",
        lambda n: f"{{'step': {n}, 'loss': {9 - n / 10:.3f}, 'elapsed_s': {n * 1.5:.2f}}}",
        lambda n: f"step {n} loss {9 - n / 10:.3f} time {(n % 10 + 1) * 1.5:.1f}s",  # a clock of each epoch
    ],
)
def test_a_time_that_grows_is_a_clock(line: Callable[[int], str]) -> None:
    facts = read([line(n) for n in range(1, 31)])
    (run,) = facts.rows(ThroughputRun)
    assert run.points >= 26
    assert all(step.seconds == pytest.approx(1.5) for step in facts.rows(Step))


def test_a_clock_of_whole_seconds_counts_where_enough_of_them_passed() -> None:
    facts = read(
        [f"[{n}/90] loss: {9 - n / 10:.3f} time elapsed: 0:{n * 4 // 60:02d}:{n * 4 % 60:02d}" for n in range(1, 41)]
    )
    (run,) = facts.rows(ThroughputRun)
    assert 13 == run.points
    assert all(step.seconds == pytest.approx(4.0) for step in facts.rows(Step))


def test_a_time_that_falls_now_and_then_is_no_clock() -> None:
    facts = read([f"step {n} | loss {9 - n / 10:.3f} | run time {5 + n % 4}.5s" for n in range(1, 31)])
    assert {5.5, 6.5, 7.5, 8.5} == {step.seconds for step in facts.rows(Step)}


def test_lines_of_other_ranks_are_no_steps_between() -> None:
    lines = [
        f"{at(60 * n + rank, FINE)} ({rank}/4) Epoch 1, batch {50 * n}, loss={9 - n / 10}"
        for n in range(12)
        for rank in range(4)
    ]
    assert {1.2} == {round(step.seconds or 0, 6) for step in read(lines).rows(Step)}


def test_epochs_without_times_are_epochs(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"Epoch {n}/40 - train loss {9 - n / 10} - acc 0.5\n" for n in range(1, 41)))
    _, facts, _ = analyze.analyze([str(path)])
    assert [("epochs", 40.0)] == facts.query("SELECT name, value FROM measure WHERE name IN ('steps', 'epochs')")


def test_the_log_of_llm_c() -> None:
    facts = read(
        ["s:0 tel:11.0353", *(f"s:{n} trl:{9 - n / 10:.4f} lr:0.0001 norm:2.1" for n in range(20)), "s:20 tel:8.9"]
    )
    assert {("loss", 20, 19), ("val_loss", 2, 20)} == {(row.name, row.n, row.last_step) for row in facts.rows(Scalar)}


@pytest.mark.parametrize("first", ["step", "loss"])
def test_a_step_and_a_loss_on_lines_of_their_own(first: str) -> None:
    pairs = [(f"current step: {n}th step", f"batch loss:{9 - n / 10:.4f}") for n in range(1, 60)]
    facts = read([line for pair in pairs for line in (pair if first == "step" else pair[::-1])])
    (loss,) = [row for row in facts.rows(Scalar) if "loss" in row.name]
    assert (1, 59, 59) == (loss.first_step, loss.last_step, loss.n)
    assert 3.1 == pytest.approx(loss.last)


def test_a_step_and_a_loss_far_from_each_other_do_not_belong_together() -> None:
    facts = read(
        [line for n in range(20) for line in (f"current step: {n}", "saved", "x", f"batch loss: {n}.5", "y", "z")]
    )
    assert [] == facts.rows(Scalar)


def test_an_epoch_with_many_lines_lasts_from_its_first_line_to_that_of_the_next() -> None:
    lines = [
        f"{at(500.0 * epoch + 2.0 * line, '%Y-%m-%d %H:%M:%S,%f')} - INFO - Epoch {epoch} - Batch loss: {9 - epoch / 10 - line / 1000}"
        for epoch in range(1, 8)
        for line in range(240)
    ]
    facts = read(lines)
    assert [pytest.approx(500.0)] * 6 == [row.seconds for row in facts.rows(Step)]


def test_lines_that_count_samples_tell_a_rate_and_no_steps() -> None:
    lines = [
        f"{at(seconds, '%Y-%m-%dT%H:%M:%SZ')} INFO Train Epoch: 1 [{640 * line}/60000 ({line}%)]\tloss=2.1"
        for line, seconds in enumerate(range(0, 600, 20))
    ]
    facts = read(lines)
    (run,) = facts.rows(ThroughputRun)
    assert ("samples/s", None) == (run.unit, run.last_step)
    assert {32.0} == {step.rate for step in facts.rows(Step)}


def test_a_bar_of_an_evaluation_is_no_epoch() -> None:
    bars = [f"[>>>-----] {n}/117, 2.3 task/s, elapsed: {n}s, ETA:   {117 - n}s" for n in range(1, 9)]
    facts = read(
        [line for epoch in range(1, 5) for line in (f"[epoch: {epoch}, iter: {epoch}00] l_pix: 1.2e-02", *bars)]
    )
    assert [] == facts.rows(ThroughputRun)


def test_two_numbers_are_no_thousands() -> None:
    facts = read([f"{at(4 * n, FINE)} iter: {n},{n % 10} loss: {9 - n / 10}" for n in range(1, 40)])
    (run,) = facts.rows(ThroughputRun)
    assert (2, 39) == (run.first_step, run.last_step)


def test_a_log_with_evaluations_is_a_loop_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = [
        f"Epoch 0, Step {25 * n}, total used time {7.5 * n} s, avg loss so far is {9 - n / 10}" for n in range(1, 30)
    ]
    log.write_text("\n".join([*lines, "Epoch 0, val loss is 0.031, val mse is 0.011."]) + "\n")
    _, facts, _ = analyze.analyze([str(log)])
    (run,) = facts.rows(ThroughputRun)
    assert ("own-loop", 29) == (run.tool, run.points + 1)


def test_a_report_shows_rates_beside_epochs(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"Time taken for epoch {n} is 4{n}.5 sec, avg 11.{n} samples/sec\n" for n in range(1, 9)))
    report, _, _ = analyze.analyze([str(log)])
    line = " ".join(report.job_lines)
    assert "8 epochs" in line
    assert "samples/sec (11.1 to 11.8, 8 values)" in line
