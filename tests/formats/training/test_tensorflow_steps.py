"""Step lines of TensorFlow's programs: Estimator tells the seconds since its last line, Keras those of an epoch or a mean."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.steps import step_lines

BAR = "[============>.................]"


def read(text: str) -> tuple[list[ThroughputRun], list[Step]]:
    facts = Facts()
    step_lines.read_format(io.BytesIO(text.encode()), "train.log", facts)
    return facts.rows(ThroughputRun), facts.rows(Step)


@pytest.mark.parametrize(
    "line",
    [
        "INFO:tensorflow:loss = 2.31, step = {step} ({seconds:.3f} sec)",
        "INFO:tensorflow:step = {step}, loss = 2.31 ({seconds:.3f} sec)",
        "I0507 12:00:20.101 7 basic_session_run_hooks.py:260] global_step = {step}, learning_rate = 0.1 ({seconds:.3f} sec)",
    ],
)
def test_seconds_of_an_estimator_are_those_since_the_line_before(line: str) -> None:
    seconds = [8.0 + step % 700 / 1000 for step in range(100, 4000, 100)]
    seconds[20] = 40.0
    lines = ["INFO:tensorflow:loss = 7.9, step = 0"]
    for index, one in enumerate(seconds, 1):
        lines += [f"INFO:tensorflow:global_step/sec: {100 / one:.6g}", line.format(step=100 * index, seconds=one)]
    runs, steps = read("\n".join(lines) + "\n")
    assert [("tf-estimator", 39)] == [(run.tool, run.points) for run in runs]
    assert [step / 100 for step in seconds] == pytest.approx([step.seconds for step in steps])
    assert 2100 == max(steps, key=lambda step: step.seconds or 0).step


def test_the_distance_of_lines_of_an_estimator_goes_on_after_a_restart() -> None:
    lines = [f"INFO:tensorflow:loss = 2.3, step = {step} (5.000 sec)" for step in (550, 600, 650, 700, 550, 600, 650)]
    _, steps = read("\n".join(lines) + "\n")
    assert {0.1} == {step.seconds for step in steps}


@pytest.mark.parametrize(
    ("last", "seconds"),
    [
        (f"57/57 {BAR} - 12s 210ms/step - loss: 1.2 - accuracy: 0.2", 0.21),
        ("57/57 - 12s - loss: 1.2 - accuracy: 0.2 - 12s/epoch - 210ms/step", 0.21),
        ("57/57 - 12s - 210ms/step - accuracy: 0.2 - loss: 1.2", 0.21),
        ("57/57 - 12s - loss: 1.2 - accuracy: 0.2", 12 / 57),
    ],
)
def test_the_end_of_an_epoch_of_keras_has_the_time_of_its_steps(last: str, seconds: float) -> None:
    middle = f"23/57 {BAR} - ETA: 31s - loss: 1.3"
    runs, steps = read("".join(f"Epoch {epoch}/9\n{middle}\n{last}\n" for epoch in range(1, 10)))
    assert ["keras"] == [run.tool for run in runs]
    assert [(57 * epoch, seconds) for epoch in range(1, 10)] == [(step.step, step.seconds) for step in steps]


def test_the_last_bar_of_keras_3_is_drawn_twice_and_counts_once() -> None:
    bar = "\x1b[1m57/57\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m{}s\x1b[0m 210ms/step - accuracy: 0.2 - loss: 1.2"
    _, steps = read("".join(f"Epoch {epoch}/9\n\r{bar.format(0)}\r{bar.format(12)}\n" for epoch in range(1, 10)))
    assert [57 * epoch for epoch in range(1, 10)] == [step.step for step in steps]


def test_keras_on_arrays_counts_samples() -> None:
    (run,), steps = read(
        "".join(f"Epoch {epoch}/9\n60000/60000 {BAR} - 30s 500us/sample - loss: 1.2\n" for epoch in range(9))
    )
    assert ("keras", "samples/s") == (run.tool, run.unit)
    assert {2000.0} == {step.rate for step in steps}


def test_an_epoch_of_keras_that_never_ended_has_the_mean_so_far() -> None:
    lines = [
        f"{step:4}/5000 {BAR} - ETA: {(5000 - step) // 100}:{(5000 - step) * 60 // 100 % 60:02}"
        for step in range(1, 99)
    ]
    (run,), steps = read("Epoch 1/9\n" + "".join(f"{line} - loss: 1.2\n" for line in lines))
    assert ("keras-progress", 98) == (run.tool, run.points)
    assert [0.6] * 98 == pytest.approx([step.seconds or 0 for step in steps], rel=1e-3)
