"""Step lines: every program read, numbers checked against pandas over the raw lines, scaling tables, damage, speed faults."""

import io
import json
import random
import re
import statistics

import pytest
from helpers.examples import examples
from helpers.places import FIXTURES
from helpers.step_series import efficiencies, raw, scaling
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.derive.speed.change_points import bumps, change_points, drift, period
from nccl_doctor.derive.speed.scaling import amdahl
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import (
    CommOp,
    DipPeriod,
    LossScale,
    Regime,
    Scaling,
    Stall,
    Steady,
    Step,
    ThroughputRun,
    TrainingEvent,
)
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.training.steps import step_lines

FIXTURES = FIXTURES / "throughput"


def read(data: bytes | str, name: str = "train.log") -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, step_lines.read_format(io.BytesIO(data if isinstance(data, bytes) else data.encode()), name, facts)


def derived(data: bytes | str) -> Facts:
    facts, _ = read(data)
    derive_all(facts)
    return facts


def found(*names: str) -> set[tuple[str, str]]:
    report, _, _ = analyze.analyze([str(FIXTURES / name) for name in names])
    return {(finding.name, finding.severity) for finding in report.findings}


@pytest.mark.parametrize(
    ("names", "findings"),
    [
        (["megatron_8.log"], set()),
        (["megatron_8.log", "megatron_16.log"], {("scaling-measured", "note")}),
        (["megatron_8.log", "megatron_16.log", "megatron_32.log"], {("poor-scaling", "warning")}),
        (["drop.log"], {("throughput-drop", "warning")}),
        (["drift.log"], {("throughput-drift", "warning")}),
        (["checkpoints.log"], {("periodic-dips", "warning")}),
        (["loss_scale_collapse.log"], {("loss-scale-collapse", "warning")}),
        (["tf_cnn_real.log", "tf_cnn_synthetic.log"], {("input-pipeline-share", "warning")}),
        (["loader_every_8.log"], {("input-pipeline-stall", "warning"), ("periodic-dips", "warning")}),
        (["imagenet_steady.log"], set()),
        (["fairseq.log"], set()),
        (["torchtitan.log"], set()),
        (["bars_4_ranks.log"], set()),
        (["deepspeed.log"], set()),
    ],
)
def test_fixture_gives_these_findings(names: list[str], findings: set[tuple[str, str]]) -> None:
    assert findings == found(*names)


@pytest.mark.parametrize(
    ("name", "tool", "unit", "scope", "gpus", "points"),
    [
        ("megatron_8.log", "megatron", "samples/s", "job", 8, 40),
        ("tf_cnn_real.log", "tf-cnn-benchmarks", "samples/s", "job", 8, 21),
        ("fairseq.log", "fairseq", "tokens/s", "job", 16, 40),
        ("torchtitan.log", "torchtitan", "tokens/s", "gpu", 128, 41),
        ("imagenet_steady.log", "pytorch-example", "steps/s", "job", None, 400),
        ("bars_4_ranks.log", "tqdm", "steps/s", "job", None, 200),
        ("deepspeed.log", "deepspeed", "samples/s", "job", 8, 30),
    ],
)
def test_run_is_described(name: str, tool: str, unit: str, scope: str, gpus: int | None, points: int) -> None:
    facts, reading = read((FIXTURES / name).read_bytes(), name)
    (run,) = facts.rows(ThroughputRun)
    assert (tool, unit, scope, gpus, points) == (run.tool, run.unit, run.scope, run.gpus, run.points)
    assert reading.note is None
    assert reading.understood >= points


def test_rates_are_those_of_the_raw_lines() -> None:
    path = FIXTURES / "megatron_8.log"
    wanted = raw(path, r"iteration +(\d+)/.*?per iteration \(ms\): ([\d.]+) .*?batch size: +(\d+)")
    facts, _ = read(path.read_bytes())
    steps = facts.rows(Step)
    assert list(wanted[0]) == [step.step for step in steps]
    assert list(wanted[1] / 1000) == pytest.approx([step.seconds for step in steps])
    assert list(wanted[2] / wanted[1] * 1000) == pytest.approx([step.rate for step in steps])


def test_torchtitan_counts_one_gpu_and_the_job_all() -> None:
    facts = derived((FIXTURES / "torchtitan.log").read_bytes())
    text = re.sub(r"\x1b\[\d+m", "", (FIXTURES / "torchtitan.log").read_text())
    rates = [int(rate.replace(",", "")) for rate in re.findall(r"tps: ([\d,]+)", text)][1:]
    (steady,) = facts.rows(Steady)
    assert steady.warmup == 1
    assert statistics.median(rates) == steady.rate
    assert statistics.median(rates) * 128 == steady.job_rate


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("step: {n:2}  loss:  7.9000  memory: 30.12GiB(31.70%)  tps: {r:,}  tflops: 380.10  mfu: 38.43%", 7120),
        ("step: {n:2}  loss:  7.9000  step_time:  0.5100s  tps: 56,960  per_device_tps: {r:,}  tflops: 380.10", 7120),
    ],
)
def test_forms_of_torchtitan_tell_what_one_device_does(line: str, rate: int) -> None:
    text = "".join(
        f"[rank0]:[titan] 2026-05-07 12:00:{n:02},101 - root - INFO - {line.format(n=n, r=rate)}\n"
        f"[rank0]:[titan] 2026-05-07 12:00:{n:02},501 - root - INFO - evaluation:  step: {n:2}  loss: 7.0  tps: 9,999  mfu: 9.00%\n"
        for n in range(1, 20)
    )
    facts, _ = read(text)
    assert [(n, rate) for n in range(1, 20)] == [(step.step, step.rate) for step in facts.rows(Step)]


def test_fairseq_values_are_strings_and_stamps_are_kept() -> None:
    path = FIXTURES / "fairseq.log"
    entries = [json.loads(line.split(" | ", 3)[3]) for line in path.read_text().splitlines()[1:]]
    facts, _ = read(path.read_bytes())
    steps = facts.rows(Step)
    assert [float(entry["wps"]) for entry in entries] == [step.rate for step in steps]
    assert [1 / float(entry["ups"]) for entry in entries] == pytest.approx([step.seconds for step in steps])
    stamps = [step.stamp for step in steps if step.stamp is not None]
    assert len(steps) == len(stamps)
    assert stamps == sorted(stamps)


def test_bars_of_four_ranks_are_one_series() -> None:
    facts = derived((FIXTURES / "bars_4_ranks.log").read_bytes())
    (steady,) = facts.rows(Steady)
    assert (200, 2.0) == (steady.points, steady.rate)


def test_communication_logger_is_folded() -> None:
    facts, _ = read((FIXTURES / "deepspeed.log").read_bytes())
    times = [8.5 + step % 3 for step in range(10, 310, 10)]
    (op,) = facts.rows(CommOp)
    assert ("all_reduce", 30, statistics.median(times), max(times)) == (op.op, op.n, op.milliseconds, op.slowest)
    assert int(1.5 * (1 << 30)) == op.size


def test_loss_scale_and_skipped_iterations() -> None:
    facts, _ = read((FIXTURES / "loss_scale_collapse.log").read_bytes())
    (row,) = facts.rows(LossScale)
    assert (32768.0, 1.0, 15, 24) == (row.first, row.lowest, row.longest_fall, row.skipped)
    overflow = "[INFO] [loss_scaler.py:190] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"
    line = (FIXTURES / "deepspeed.log").read_text()
    falls = "".join(overflow.format(2**n, 2 ** (n - 1)) for n in range(16, 0, -1))
    facts, _ = read(line + falls)
    (row,) = facts.rows(LossScale)
    assert (1.0, 15) == (row.lowest, row.longest_fall)


def test_periodic_dips_find_the_number_of_workers() -> None:
    facts = derived((FIXTURES / "loader_every_8.log").read_bytes())
    (dip,) = facts.rows(DipPeriod)
    assert (8, 50) == (dip.period, dip.dips)
    frame = raw(FIXTURES / "loader_every_8.log", r"Time +([\d.]+).*?Data +([\d.]+)")
    (steady,) = facts.rows(Steady)
    assert frame[1].sum() / frame[0].sum() == pytest.approx(steady.data)
    middle = frame[0].median()
    lost = (frame[0][frame[0] > 1.3 * middle] - middle).sum() / frame[0].sum()
    assert lost == pytest.approx(steady.lost, abs=1e-6)
    assert len(frame[frame[0] > 3 * middle]) == len(facts.rows(Stall))


def test_a_line_of_nanogpt_times_one_step_of_many() -> None:
    """An evaluation of 9 s after each 250 steps of 60 ms, of which every tenth has a line."""
    times = [9000.0 if step % 250 == 0 else 60.0 for step in range(10, 2510, 10)]
    lines = [f"iter {10 * at}: loss 1.7 BPC, time {time:.2f}ms, mfu 6.72%\n" for at, time in enumerate(times, 1)]
    facts = derived("".join(lines))
    (dip,) = facts.rows(DipPeriod)
    assert (250, 10) == (dip.period, dip.dips)
    assert 9 / (9 + 250 * 0.06) == pytest.approx(dip.cost, abs=0.03)
    assert "step_mean" not in {name for (name,) in facts.query("SELECT name FROM measure")}


def test_the_first_step_of_a_restart_is_no_stall() -> None:
    steps = [(step, 1.3 if step == 1 else 0.05) for _ in range(2) for step in range(1, 301)]
    facts = derived("".join(f"step {step} loss 0.3 step_time: {seconds} s\n" for step, seconds in steps))
    assert [] == facts.rows(Stall)


def test_checkpoint_stands_beside_its_slow_step() -> None:
    facts = derived((FIXTURES / "checkpoints.log").read_bytes())
    assert {"checkpoint"} == {event.kind for event in facts.rows(TrainingEvent)}
    (dip,) = facts.rows(DipPeriod)
    assert (100, "checkpoint") == (dip.period, dip.event)


def test_drop_has_its_step() -> None:
    facts = derived((FIXTURES / "drop.log").read_bytes())
    before, after = facts.rows(Regime)
    assert (590, 600) == (before.last_step, after.first_step)
    assert 0.8 == pytest.approx(after.ratio, abs=0.01)


# --- scaling -----------------------------------------------------------------------------------------------------------


def test_scaling_of_fixtures_agrees_with_a_hand_calculation() -> None:
    paths = [FIXTURES / f"megatron_{gpus}.log" for gpus in (8, 16, 32)]
    per_gpu = {}
    for path, gpus in zip(paths, (8, 16, 32), strict=True):
        frame = raw(path, r"per iteration \(ms\): ([\d.]+) .*?batch size: +(\d+)")[1:]
        per_gpu[gpus] = (frame[1] / frame[0] * 1000).median() / gpus
    wanted = {gpus: value / per_gpu[8] for gpus, value in per_gpu.items()}
    facts = scaling(paths)
    assert wanted == pytest.approx(efficiencies(facts))
    assert {"rate"} == {row.basis for row in facts.rows(Scaling)}


def test_time_stamps_give_steps_where_no_line_was_printed_meanwhile() -> None:
    items = ", ".join(f"'BatchTimestamp<batch_index: {100 * n}, timestamp: {1000.0 + 50 * n}>'" for n in range(5))
    line = (
        f"{{'loss': 6.0, 'step_timestamp_log': [{items}], 'train_finish_time': 1200.0, 'avg_exp_per_second': 512.0}}\n"
    )
    facts, _ = read(line, "rn50_1n2g.log")
    (run,) = facts.rows(ThroughputRun)
    assert (256, 2, "file-name", 512.0) == (run.batch, run.gpus, run.gpus_source, run.total)
    assert [512.0] * 4 == [step.rate for step in facts.rows(Step)]


@pytest.mark.parametrize(
    ("text", "gpus", "source"),
    [
        ("using world size: 64, data-parallel-size: 4\n", 64, "world-size"),
        ("[config.py:978:print]   world_size ................... 16\n", 16, "world-size"),
        ("using world size: 64\n[config.py:978:print]   world_size ................... 16\n", 64, "world-size"),
        ("initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8\n", 8, "world-size"),
        ("torchrun --nnodes 4 --nproc_per_node 8 train.py\n", 32, "arguments"),
        ("LOCAL_WORLD_SIZE=4\n", None, None),
    ],
)
def test_gpu_count_comes_from_what_the_log_says(text: str, gpus: int | None, source: str | None) -> None:
    facts, _ = read(text + (FIXTURES / "imagenet_steady.log").read_text(), "train.log")
    (run,) = facts.rows(ThroughputRun)
    assert (gpus, source) == (run.gpus, run.gpus_source)


def test_amdahl_finds_the_serial_share() -> None:
    ideals = [1.0, 2.0, 4.0, 8.0]
    assert 0.1 == pytest.approx(amdahl(ideals, [1 / (0.1 + 0.9 / n) for n in ideals]))
    assert 0.0 == amdahl(ideals, ideals)


# --- series ------------------------------------------------------------------------------------------------------------


def megatron_line(step: int, milliseconds: float) -> str:
    return (
        f" iteration {step:8d}/ 1000000 | consumed samples: {step * 4:12d} | elapsed time per iteration (ms): {milliseconds:.1f} |"
        " global batch size:     4 | loss scale: 16384.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def test_long_run_is_folded_and_keeps_its_slowest_step() -> None:
    rng = random.Random(2)
    times = [rng.uniform(990, 1010) for _ in range(40_000)]
    times[31_234] = 55_000.0
    facts, reading = read("".join(megatron_line(step + 1, time) for step, time in enumerate(times)))
    steps = facts.rows(Step)
    assert 40_000 == reading.understood == sum(step.n for step in steps) == facts.rows(ThroughputRun)[0].points
    assert 1_000 < len(steps) <= 4_096
    worst = max(steps, key=lambda step: step.slowest * (step.seconds or 0))
    assert (31_235, 31_235) == (worst.slowest_step, int(re.search(r"\d+", facts.evidence_rows([worst.ref])[0].text)[0]))  # type: ignore[index]
    assert 31_235 == facts.evidence_rows([worst.ref])[0].line
    assert 55.0 == pytest.approx(worst.slowest * (worst.seconds or 0), rel=0.01)
    assert statistics.median(times) / 1000 == pytest.approx(statistics.median(s.seconds or 0 for s in steps), rel=0.001)


def test_ranks_of_a_launcher_are_series_of_their_own() -> None:
    text = "".join(
        f"[1,{rank}]<stdout>:{step}\timages/sec: {100 + rank}.0\t7.1\n"
        for step in range(10, 200, 10)
        for rank in (0, 1)
    )
    facts, _ = read(text + "total images/sec: 201.00\n")
    assert [(0, 19), (1, 19)] == [(run.rank, run.points) for run in facts.rows(ThroughputRun)]


def test_ordinary_output_has_no_steps() -> None:
    text = (
        "Loading checkpoint shards: 100%|####| 9/9 [00:03<00:00,  2.50it/s]\nhttps: //example\nTrain: done\nEpoch: [x]\n"
        * 20
    )
    facts, reading = read(text)
    assert (0, []) == (reading.understood, facts.rows(ThroughputRun))


@examples(60)
@given(st.data())
def test_damaged_logs_never_raise(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(path.name for path in FIXTURES.glob("*.log"))))
    content = bytearray((FIXTURES / name).read_bytes()[:6000])
    for _ in range(data.draw(st.integers(0, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    facts = derived(bytes(content[: data.draw(st.integers(1, len(content)))]))
    assert sum(run.points for run in facts.rows(ThroughputRun)) == sum(step.n for step in facts.rows(Step))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pieces_of_a_stream_make_no_difference(size: int) -> None:
    data = (FIXTURES / "bars_4_ranks.log").read_bytes()[:3000]

    class Pieces:
        def __init__(self) -> None:
            self.at = 0

        def read(self, _: int, /) -> bytes:
            self.at += size
            return data[self.at - size : self.at]

    facts = Facts()
    step_lines.read_format(Pieces(), "train.log", facts)
    whole, _ = read(data)
    assert whole.rows(Step) == facts.rows(Step)


def test_every_program_prints_a_declared_literal() -> None:
    inside = next(known.inside for known in registry.FORMATS if known.kind == "training-steps")
    for path in FIXTURES.glob("*.log"):
        assert any(literal in path.read_bytes() for literal in inside), path.name


@pytest.mark.parametrize(
    "line",
    [
        "iteration {step:8d}/  500 | elapsed time per iteration (ms): 812.4/809.9 | global batch size:    64 | lm loss: 8.1 |",
        "[2025-01-10 09:43:36,161][I][megatron/training_log:402:log]  iteration=  {step}/  500 | consumed_tokens=1310720"
        " | elapsed_time_per_iteration_ms=812.4 | learning_rate=2e-05 | global_batch_size=   64 | lm loss=8.1 | loss_scale=1.0 |",
    ],
    ids=["Primus", "ALCF"],
)  # fmt: skip
def test_megatron_lines_of_other_forks(line: str) -> None:
    facts = derived("".join(line.format(step=step) + "\n" for step in range(20, 60)))
    ((tool, seconds, rate),) = facts.query("SELECT tool, seconds, rate FROM steady JOIN throughput_run USING (run)")
    assert ("megatron", 0.8124) == (tool, pytest.approx(seconds))
    assert 64 / 0.8124 == pytest.approx(rate)


# --- change points -----------------------------------------------------------------------------------------------------


def test_change_points_find_levels_and_not_single_stalls() -> None:
    rng = random.Random(1)
    values = [rng.gauss(1, 0.01) for _ in range(60)] + [rng.gauss(1.2, 0.01) for _ in range(60)]
    for index in range(5, 120, 20):
        values[index] = 9.0
    (place,) = change_points(values)
    assert abs(place - 60) <= 2
    assert [] == change_points([rng.gauss(1, 0.05) for _ in range(300)])
    assert [] == change_points([1.0] * 50)
    assert [] == change_points([])


def test_bumps_find_a_slow_stretch_and_no_pattern() -> None:
    rng = random.Random(1)
    values = [rng.gauss(1, 0.03) for _ in range(40)]
    values[20:25] = [2 * value for value in values[20:25]]
    assert [] == change_points(values)
    assert [(20, 25)] == bumps(values)
    assert [] == bumps([*values[:20], 9.0, *values[25:]])
    repeated = [value for _ in range(5) for value in values[10:30]]
    assert [] == bumps(repeated)
    assert [] == bumps([])


def test_drift_needs_a_trend() -> None:
    rng = random.Random(1)
    assert -0.2 == pytest.approx(drift([1 - 0.2 * n / 499 + rng.gauss(0, 0.01) for n in range(500)]) or 0, abs=0.05)
    assert drift([rng.gauss(1, 0.05) for _ in range(500)]) is None
    assert drift([1.0, 2.0]) is None


def test_period_needs_a_fixed_distance() -> None:
    rng = random.Random(1)
    assert (100, 10) == period(range(50, 1050, 100), 1050)
    assert (8, 48) == period([n for n in range(0, 400, 8) if n != 80], 400)
    assert period(rng.sample(range(10_000), 30), 10_000) is None
    assert period([1, 2, 3], 100) is None
    assert period(range(100, 150, 10), 400, 10) is None  # neighbours: a stretch that was slow
