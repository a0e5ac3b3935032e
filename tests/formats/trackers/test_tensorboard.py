"""Event files of TensorBoard, written here by tensorboardX: scalars as they were given, steps by time and rate, damage."""

import io
import statistics
import struct
import sys
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Scalar, Steady, Step, ThroughputRun, TrainingEvent
from nccl_doctor.formats import registry
from nccl_doctor.formats.trackers import tensorboard

tensorboardX = pytest.importorskip("tensorboardX")

STEPS = 300
TIMES = [0.25 + step % 7 / 100 for step in range(STEPS)]


def written(folder: Path, **tags: list[float]) -> Path:
    """An event file with these values at steps 0, 1, …, and wall times two seconds apart; `__` stands for `/`."""
    with tensorboardX.SummaryWriter(str(folder)) as writer:
        for step in range(len(next(iter(tags.values())))):
            for name, values in tags.items():
                writer.add_scalar(name.replace("__", "/"), values[step], step, walltime=1.7e9 + 2 * step)
    return next(folder.iterdir())


def read(data: bytes) -> tuple[Facts, registry.Reading]:
    facts = Facts()
    known = registry.recognise(data[:65_536])
    assert known is not None
    assert "tensorboard" == known.kind
    return facts, registry.read_file(known, io.BytesIO(data), "events", facts)


def test_scalars_and_steps_are_those_that_were_written(tmp_path: Path) -> None:
    losses = [3.0 - step / 200 for step in range(STEPS)]
    path = written(tmp_path, train__loss=losses, train__step_time=TIMES, eval__loss=losses)
    report, facts, problems = analyze.analyze([str(tmp_path)])
    scalars = {row.name: row for row in facts.rows(Scalar)}
    loss = scalars["train/loss"]
    assert (STEPS, 0, STEPS - 1, 0) == (loss.n, loss.first_step, loss.last_step, loss.not_finite)
    assert (losses[0], losses[-1]) == pytest.approx((loss.first, loss.last))
    assert statistics.median(TIMES) == pytest.approx(facts.rows(Steady)[0].seconds, rel=1e-6)
    assert [STEPS] == [run.points for run in facts.rows(ThroughputRun)]
    measures = {(one.name, one.of): one.value for one in report.measures}
    assert losses[-1] == pytest.approx(measures["loss", "train/loss"])
    assert statistics.median(TIMES) == pytest.approx(measures["step_time", "tensorboard"], rel=1e-6)
    assert [] == problems
    assert path.name in report.inputs[0].path


def test_a_file_of_torch_agrees_with_a_plain_reading_of_its_records() -> None:
    """Written by torch.utils.tensorboard 2.13 in a training loop; here its messages are found by their tags, without a decoder."""
    data = (FIXTURES / "records" / "events.out.tfevents.1795362399.node01.9730.0").read_bytes()
    values = [struct.unpack("<f", piece[1:5])[0] for piece in data.split(b"train/step_time")[1:]]
    facts, reading = read(data)
    assert (40, None) == (len(values), reading.note)
    assert values == pytest.approx([row.seconds for row in facts.rows(Step)])
    row = next(row for row in facts.rows(Scalar) if row.name == "train/step_time")
    assert (40, min(values), max(values), values[-1]) == (row.n, row.lowest, row.highest, row.last)


def test_rate_and_wait_of_one_step_belong_together(tmp_path: Path) -> None:
    rates = [7000.0 + step % 5 for step in range(40)]
    path = written(tmp_path, device__tokens_per_sec=rates, data_time=[0.0625] * 40, step_time=[0.5] * 40)
    facts, _ = read(path.read_bytes())
    run = facts.rows(ThroughputRun)[0]
    assert ("tokens/s", "gpu", 40) == (run.unit, run.scope, run.points)
    assert {(0.5, 0.0625)} == {(row.seconds, row.data) for row in facts.rows(Step)}


def test_without_a_speed_the_wall_times_of_the_longest_series_tell_it(tmp_path: Path) -> None:
    facts, _ = read(written(tmp_path, loss=[1.0] * 50).read_bytes())
    assert {2.0} == {row.seconds for row in facts.rows(Step)}


def test_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    facts, _ = read(written(tmp_path, loss=[1.0, float("nan"), float("inf"), 0.5]).read_bytes())
    row = facts.rows(Scalar)[0]
    assert (4, 2, 1.0, 0.5) == (row.n, row.not_finite, row.first, row.last)


def test_steps_too_large_to_be_told_apart_are_no_run(tmp_path: Path) -> None:
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        for step in range(4):
            writer.add_scalar("loss", 0.0, 12_212_028_132_243_150 + step, walltime=float(step % 2))
    facts, reading = read(next(tmp_path.iterdir()).read_bytes())
    assert (4, None, []) == (reading.understood, reading.note, facts.rows(Step))


def test_tensors_of_tensorflow_2_are_scalars(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    event = Event(wall_time=1.0, step=3)
    packed, listed = event.summary.value.add(tag="packed").tensor, event.summary.value.add(tag="listed").tensor
    packed.dtype = listed.dtype = 1
    packed.tensor_content = struct.pack("<f", 2.5)
    listed.float_val.append(2.5)
    writer = tensorboardX.SummaryWriter(str(tmp_path))
    writer.file_writer.add_event(event, step=3)
    writer.close()
    facts, _ = read(next(tmp_path.iterdir()).read_bytes())
    assert {"packed": 2.5, "listed": 2.5} == {row.name: row.last for row in facts.rows(Scalar)}


def test_a_damaged_file_is_read_up_to_the_damage(tmp_path: Path) -> None:
    data = written(tmp_path, loss=[1.0] * 100).read_bytes()
    whole = read(data)[1]
    assert (None, 100) == (whole.note, whole.understood)
    for cut in range(60, len(data) - 1, 97):
        reading = read(data[:cut])[1]
        assert reading.understood < 100
        assert reading.note is None or "ends in the middle of record" in reading.note or "no scalar" in reading.note
    middle = len(data) // 2
    assert "is damaged" in str(read(data[:middle] + b"\xff" * 40 + data[middle + 40 :])[1].note)
    assert "is damaged" in str(read(data + b"[0] NCCL INFO a log behind it\n" * 9)[1].note)


def test_a_large_record_is_passed_over(tmp_path: Path) -> None:
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("model", "x" * (3 << 20), 0)
        writer.add_scalar("loss", 1.0, 1)
    facts, reading = read(next(tmp_path.iterdir()).read_bytes())
    assert (["loss"], None) == ([row.name for row in facts.rows(Scalar)], reading.note)


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(tmp_path, loss=[1.0]).read_bytes()
    monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
    assert (tensorboard.MISSING, 0) == (read(data)[1].note, read(data)[1].understood)


def test_values_of_a_rare_evaluation_are_events_and_those_of_every_step_are_not(tmp_path: Path) -> None:
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        when = 1.7e9
        for step in range(STEPS):
            when += 2
            writer.add_scalar("loss/train", 2.0, step, walltime=when)
            writer.add_scalar("loss/val", 2.0, step, walltime=when)
            if step % 50 == 49:
                when += 20
                writer.add_scalar("accuracy/val", 0.5, step, walltime=when)
    facts, _ = read(next(tmp_path.iterdir()).read_bytes())
    events = facts.rows(TrainingEvent)
    assert [("evaluation", STEPS // 50)] == [(events[0].kind, len(events))]
