"""Step lines and bars that other programs print, as they came, and loops in which bars are parts of a step."""

import io
from statistics import median

import pytest
from helpers.places import ROOT

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Measure, Regime, Step, ThroughputRun
from nccl_doctor.formats.training.steps import step_lines

RECORDS = ROOT / "fixtures" / "records"


def read(data: bytes | str) -> Facts:
    facts = Facts()
    step_lines.read_format(io.BytesIO(data.encode() if isinstance(data, str) else data), "train.log", facts)
    return facts


def seconds(facts: Facts) -> float:
    return median(step.seconds for step in facts.rows(Step) if step.seconds is not None)


@pytest.mark.parametrize(
    ("name", "tool", "points", "last", "time"),
    [
        ("espnet.log", "own-loop", 28, None, 0.128),
        ("ignite.log", "own-loop", 24, 120, 0.082),
        ("tqdm_loggable.log", "tqdm-log", 9, 117, 0.081),
        ("ultralytics.log", "epoch-bar", 18, 24, 0.7),
    ],
)
def test_recorded_logs(name: str, tool: str, points: int, last: int | None, time: float) -> None:
    data = (RECORDS / name).read_bytes()
    facts = read(data)
    (run,) = facts.rows(ThroughputRun)
    assert (tool, points, last) == (run.tool, run.points, run.last_step)
    assert time == pytest.approx(seconds(facts), rel=0.3 if name == "ultralytics.log" else 0.02)
    for cut in (len(data) // 2, len(data) - 40):
        assert len(read(data[:cut] + b"\xff\x00" + data[cut : cut + 9]).rows(ThroughputRun)) <= 1


@pytest.mark.parametrize(("name", "first", "times"), [("ignite.log", 55, 2.2), ("espnet.log", None, 5.6)])
def test_the_slow_stretch_of_recorded_logs(name: str, first: int | None, times: float) -> None:
    facts = read((RECORDS / name).read_bytes())
    derive_all(facts)
    slow = [row for row in facts.rows(Regime) if row.rate]
    rates = [row.rate for row in slow]
    assert max(rates) > times * min(rates)


def test_steps_beside_bars_of_their_parts() -> None:
    parts = "".join(f"Train part [1/1]:  50%|##        | {n}/9 [00:0{n}<00:05,  9.50it/s]\n" for n in range(1, 9))
    steps = [
        f"{parts}Global step {n}: {{'loss': 0.5, 'timing/step_total': {1.2 + n % 3 / 100}}}\n" for n in range(1, 30)
    ]
    facts = read("".join(steps))
    (run,) = facts.rows(ThroughputRun)
    assert ("own-loop", 29, 29) == (run.tool, run.points, run.last_step)
    assert 1.21 == pytest.approx(seconds(facts))


def test_the_time_of_epochs_on_a_clock() -> None:
    facts = read("".join(f"trainer INFO: Epoch[{n}] Complete. Time taken: 00:01:3{n % 3}.500\n" for n in range(1, 10)))
    (run,) = facts.rows(ThroughputRun)
    assert ("epochs", 9, 9) == (run.tool, run.points, run.last_step)
    assert 91.5 == pytest.approx(seconds(facts))


def test_a_bar_of_an_evaluation_is_none() -> None:
    line = "Progress on:eval {n}.0it/90it rate:8.2it/s remaining:00:12 elapsed:00:01 postfix:-\n"
    assert [] == read("".join(line.format(n=n) for n in range(10, 40))).rows(ThroughputRun)


@pytest.mark.parametrize(("first", "steps"), [((1, 1), 60), ((1, 61), 120)])
def test_pods_of_one_rank_are_two_runs_unless_one_goes_on(first: tuple[int, int], steps: int) -> None:
    lines = [
        f"[pod/trainer-{pod}/main] [rank 0] step {begin + n} loss 0.5 step_time {0.5 + n % 3 / 100}s\n"
        for n in range(60)
        for pod, begin in enumerate(first)
    ]
    facts = read("".join(lines))
    derive_all(facts)
    assert 2 == len(facts.rows(ThroughputRun))
    assert [steps] == [row.value for row in facts.rows(Measure) if row.name == "steps"]


@pytest.mark.parametrize(
    ("form", "tool", "expected"),
    [
        (
            "{{'loss': 1.99, 'train_speed(iter/s)': 0.4, 'epoch': 0.1, 'global_step/max_steps': '{s}/900'}}",
            "ms-swift",
            (2.5, 0.4),
        ),
        ("[INFO:swift] {{'loss': '1.99', 'iteration': '{s}/900', 'train_speed(s/it)': '2.5'}}", "ms-swift", (2.5, 0.4)),
        (
            "(Actor pid=4711) perf {s}: {{'perf/train_wait_time': 101.2, 'perf/step_time': 152.5}}",
            "slime",
            (152.5, 1 / 152.5),
        ),
        (
            "{{'loss': 1.99, 'learning_rate': 1e-05, 'epoch': 0.1, 'throughput': 4123.5}}",
            "llama-factory",
            (None, 4123.5),
        ),
        ("epoch 1 step {s}: loss = 1.9, 0.5s per step", "own-loop", (0.5, 2.0)),
        ("{s} : iter_speed 7.82 seconds per iteration | Loss: 1.8906", "cosmos", (7.82, 1 / 7.82)),
        (
            "train epoch 12, step {s}, cost:output/output_prob 0.31, num_seqs 9, 0.5 sec/step, elapsed 0:11:47, exp. remaining 0:09",
            "returnn",
            (0.5, 2.0),
        ),
        (
            "Epoch: [3/50][{s}/743] Data 0.004 (0.031) Batch 0.5 (0.845) Remain 08:12:44 MainLoss 0.61 Loss 0.83 Accuracy 0.85.",
            "semseg",
            (0.5, 2.0),
        ),
        (
            "[2026-11-02 10:00:01,120 INFO test.py line 190 77] Test: [{s}/500] Data 0.21 (0.24) Batch 0.5 (0.6).",
            "semseg-test",
            (0.5, 2.0),
        ),
        (
            "0: INFO    26-11-02 10:01:47.7 - 0:01:47 - step: {s}  acc: 0  loss:  7.8750  wps: 1.44e+05  iter:  0.45  data: 0.002",
            "torchtitan",
            (None, 144000.0),
        ),
        (
            "[rank 0] Step: {s}     | Loss: 6.2000 | Tokens/s: 489.60K | Tokens/s/GPU:  61.20K | MFU: 44.10%",
            "own-loop",
            (None, 489600.0),
        ),
        (
            'json_stats: {{"RAM": "13.1/31.0G", "_type": "train_iter", "dt": 0.5, "dt_data": 0.01, "epoch": "3/40", "iter": "{s}/500"}}',
            "slowfast",
            (0.5, 2.0),
        ),
        (
            'json_stats: {{"_type": "train_epoch", "dt": 0.5, "dt_net": 0.4, "epoch": "{s}/40", "loss": 2.1}}',
            "slowfast-epochs",
            (0.5, 2.0),
        ),
        ("step {s} | loss: 1.9 | dt: 500.0ms | tok/sec: 1,271,400 | bf16_mfu: 48.21", "own-loop", (0.5, 1271400.0)),
    ],
)
def test_lines_of_newer_programs(form: str, tool: str, expected: tuple[float | None, float]) -> None:
    facts = read("".join(form.format(s=step) + "\n" for step in range(1, 13)))
    (run,) = facts.rows(ThroughputRun)
    assert (tool, 12) == (run.tool, run.points)
    assert {expected} == {(step.seconds, step.rate) for step in facts.rows(Step)}


def test_iterations_of_rsl_rl_below_their_number() -> None:
    block = (
        "                 Learning iteration {n}/1500\n"
        "      Computation: 83080 steps/s (collection: 0.861s, learning 0.320s)\n"
        "                    Iteration time: 1.18s\n"
    )
    facts = read("".join(block.format(n=n) for n in range(12)))
    (run,) = facts.rows(ThroughputRun)
    assert ("rsl-rl", 12) == (run.tool, run.points)
    assert {1.18} == {step.seconds for step in facts.rows(Step)}


@pytest.mark.parametrize("name", ["Elapsed Time", "Wall Time", "Total Time"])
def test_the_time_of_many_steps_is_not_that_of_one(name: str) -> None:
    facts = read("".join(f"Train Metrics (step {50 * n}) - Loss: 2.5 | {name}: {87 + n % 3}s\n" for n in range(1, 21)))
    assert [] == facts.rows(ThroughputRun)
