"""Progress bars of tqdm: bars of evaluations inside that of the steps, pauses, and the mean that a bar shows."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.steps import step_lines


def _bar(step: int, total: int, clock: float, shown: float) -> str:
    """A bar as tqdm draws it: hours only where there are any, and a mean over the last steps."""
    minutes, seconds = divmod(int(clock), 60)
    rate = f"{shown:.2f}s/it" if shown >= 1 else f"{1 / shown:.2f}it/s"
    return f"{100 * step // total:3d}%|##        | {step}/{total} [{minutes:02d}:{seconds:02d}<10:00, {rate}]"


def _mean(before: float, now: float) -> float:
    return 0.7 * before + 0.3 * now


def _bars(slow: int | None = None, *, evaluates: bool = True) -> str:
    """300 steps of two seconds with an evaluation of 40 short steps after each 100, and one step of a minute."""
    lines, clock, shown = [], 0.0, 2.0
    for step in range(1, 301):
        taken = 60.0 if step == slow else 2.0
        clock, shown = (
            clock + taken,
            _mean(shown, taken + (20.0 if evaluates and step > 1 and step % 100 == 1 else 0.0)),
        )
        lines.append(_bar(step, 300, clock, shown))
        if evaluates and step % 100 == 0:
            lines += [_bar(one, 40, one / 2, 0.5) for one in range(41)]
            clock += 20.0
    return "\r".join(lines) + "\n"


def test_bars_of_evaluations_are_no_steps() -> None:
    facts = Facts()

    step_lines.read_format(io.BytesIO(_bars().encode()), "job.log", facts)

    (run,) = facts.rows(ThroughputRun)
    steps = facts.rows(Step)
    assert (300, 1, 300) == (run.points, run.first_step, run.last_step)
    assert all(
        step.seconds is None or 1.9 < step.seconds <= 3.0 for step in steps
    )  # neither the pause nor the mean after it


def test_a_slow_step_of_a_bar_has_the_time_of_its_clock() -> None:
    """A bar shows a mean that goes down in ten lines: no ten slow steps, and not a third of the time."""
    facts = Facts()

    step_lines.read_format(io.BytesIO(_bars(150, evaluates=False).encode()), "job.log", facts)

    times = {step.step: step.seconds for step in facts.rows(Step) if step.seconds is not None}
    assert {150: pytest.approx(60.0)} == {step: seconds for step, seconds in times.items() if seconds > 3.5}


def test_a_bar_of_steps_inside_one_of_epochs_counts() -> None:
    lines = []
    for epoch in range(3):
        lines.append(_bar(epoch, 3, epoch * 100.0, 100.0))
        lines += [_bar(step, 50, 2.0 * step, 2.0) for step in range(1, 51)]
    lines.append(_bar(3, 3, 300.0, 100.0))
    facts = Facts()

    step_lines.read_format(io.BytesIO("\n".join([*lines, ""]).encode()), "job.log", facts)

    (run,) = facts.rows(ThroughputRun)
    assert run.points >= 50


def test_long_steps_that_become_faster_have_the_times_of_the_clock() -> None:
    """The mean that a bar shows is behind; none of its lines is without a time."""
    lines, clock, shown = [], 0.0, 60.0
    for step, taken in enumerate([60.0] * 8 + [50.0] * 8, 1):
        clock, shown = clock + taken, _mean(shown, taken)
        lines.append(_bar(step, 16, clock, shown))
    facts = Facts()

    step_lines.read_format(io.BytesIO("\r".join([*lines, ""]).encode()), "job.log", facts)

    times = {step.step: step.seconds for step in facts.rows(Step)}
    assert times == pytest.approx({step: 60.0 if step <= 8 else 50.0 for step in range(1, 17)}, abs=1.0)


def _last_bar(label: str, total: int, taken: int, shown: float) -> str:
    minutes, seconds = divmod(taken, 60)
    return f"{label}: 100%|####| {total}/{total} [{minutes:02d}:{seconds:02d}<00:00, {shown:5.2f}it/s]\n"


def test_the_last_bar_of_each_epoch_counts_and_validations_do_not() -> None:
    text = "".join(
        _last_bar(f"Epoch {epoch}, training loss 0.{300 - epoch}", 710, 303, 2.34)
        + _last_bar(f"Epoch {epoch}, validation accuracy: 0.874, mIoU: 0.595", 179, 104, 1.72)
        for epoch in range(12)
    )
    facts = Facts()

    step_lines.read_format(io.BytesIO(text.encode()), "job.log", facts)

    (run,) = facts.rows(ThroughputRun)
    assert (12, 710, 12 * 710) == (run.points, run.first_step, run.last_step)
    assert [pytest.approx(1 / 2.34)] * 12 == [step.seconds for step in facts.rows(Step)]


def test_bars_of_a_loop_whose_length_is_not_known() -> None:
    lines, clock, shown = ["0it [00:00, ?it/s]"], 0.0, 2.0
    for step in range(1, 40):
        taken = 60.0 if step == 30 else 2.0
        clock, shown = clock + taken, _mean(shown, taken)
        lines.append(f"Epoch 3: {step}it [{int(clock) // 60:02d}:{int(clock) % 60:02d},  {shown:.2f}s/it]")
    facts = Facts()

    step_lines.read_format(io.BytesIO("\r".join([*lines, ""]).encode()), "job.log", facts)

    times = {step.step: step.seconds for step in facts.rows(Step) if step.seconds is not None}
    assert 39 == max(times)
    assert {30: pytest.approx(60.0)} == {step: seconds for step, seconds in times.items() if seconds > 3.5}


@pytest.mark.parametrize(
    ("bar", "beside", "points"),
    [
        ("{}", "", 0),  # six lines may be of any loop
        ("{}", "{{'loss': 2.31, 'learning_rate': 0.0001, 'epoch': 0.31}}\n", 6),
        ("Train Epoch #1: {}, loss=6.78]", "", 6),
        ("Train Epoch #1: {}, lr=0.1]", "", 0),
    ],
)
def test_a_short_bar_with_a_loss_is_a_training_loop(bar: str, beside: str, points: int) -> None:
    closed = [_bar(step, 300, 79.0 * step, 79.0) for step in range(110, 116)]
    bars = [bar.format(line.removesuffix("]") if bar.endswith("]") else line) for line in closed]
    facts = Facts()
    step_lines.read_format(io.BytesIO(("\n".join(bars) + "\n" + beside.format()).encode()), "job.log", facts)
    assert ([points] if points else []) == [run.points for run in facts.rows(ThroughputRun)]
