"""Records of training libraries: speeds against an independent reading, scaling by hand, and broken files."""

import io
import json
import statistics
from pathlib import Path

import pytest
from helpers.places import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import HostNumber, Measure, MlperfRun, Scalar, Scaling, Step, ThroughputRun
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.registry import recognise
from nccl_doctor.formats.training import records
from nccl_doctor.formats.training.metrics import speed_of

FIXTURES = FIXTURES / "records"


def read(data: bytes) -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, records.read_format(io.BytesIO(data), "file", facts)


def events(name: str) -> list[dict[str, object]]:
    return [json.loads(line.split(" ", 1)[1]) for line in (FIXTURES / name).read_text().splitlines()]


def measured(facts: Facts) -> dict[str, float]:
    return {measure.name: measure.value for measure in facts.rows(Measure)}


def test_mlperf_run_against_its_events() -> None:
    log = events("mlperf_8.log")
    rates = [event["value"]["throughput"] for event in log if event["key"] == "tracked_stats"]  # type: ignore[index]
    when = {event["key"]: event["time_ms"] for event in log}
    report, facts, problems = analyze.analyze([str(FIXTURES / "mlperf_8.log")])
    assert ([], "healthy", []) == (problems, report.verdict, report.findings)
    (run,) = facts.rows(MlperfRun)
    seconds = (when["run_stop"] - when["run_start"]) / 1000  # type: ignore[operator]
    assert ("mlp", "success", 15_360, 0.7) == (run.benchmark, run.status, run.samples, run.quality)
    assert run.seconds == pytest.approx(seconds)
    assert sum(event["key"] == "epoch_stop" for event in log) == run.epochs
    assert rates == [step.rate for step in facts.rows(Step)]
    assert measured(facts)["time_to_train"] == pytest.approx(seconds)
    assert measured(facts)["throughput"] == pytest.approx(statistics.median(rates), rel=0.02)


def test_mlperf_run_without_a_number_of_its_speed(tmp_path: Path) -> None:
    """Points of `tracked_stats` are no steps; a run that says that it succeeded made progress, whatever else it prints."""
    events: list[tuple[str, dict[str, object]]] = [
        ("init_start", {}), ("run_start", {}), ("epoch_start", {"epoch_num": 1}), ("epoch_stop", {"epoch_num": 1}),
        ("epoch_start", {"epoch_num": 2}), ("epoch_stop", {"epoch_num": 2}), ("run_stop", {"status": "success"}),
    ]  # fmt: skip
    path = tmp_path / "result_0.txt"
    with path.open("w") as log:
        for at, (key, details) in enumerate(events):
            record = {"time_ms": 1_700_000_000_000 + 60_000 * at, "key": key, "value": None, "metadata": details}
            log.write(f":::MLLOG {json.dumps(record)}\n")
    report, _, _ = analyze.analyze([str(path)])
    assert ("healthy", "1 successful MLPerf run, ended in order") == (report.verdict, report.basis)
    assert ["2 epochs · time to train 300 s · ended in order"] == report.job_lines


@pytest.mark.parametrize(("quality", "end"), [(0.75, "ended in order"), (0.74, None)])
def test_a_run_that_stops_at_its_target_and_says_no_more(tmp_path: Path, quality: float, end: str | None) -> None:
    events = ("run_start", "eval_target: 0.749", f"eval_accuracy: {quality}", "run_stop", "run_final")
    path = tmp_path / "result_0.txt"
    path.write_text(
        "".join(f":::MLPv0.5.0 resnet {1790000000 + at} (fit.py:4) {event}\n" for at, event in enumerate(events))
    )
    report, _, _ = analyze.analyze([str(path)])
    assert (end, end is not None) == (report.job.get("end"), report.verdict == "healthy")


@pytest.mark.parametrize("name", ["mlperf_{}.log", "dllogger_{}.json"])
def test_scaling_equals_the_calculation_by_hand(name: str) -> None:
    def rate(gpus: int) -> float:
        values = events(name.format(gpus))
        key = "value" if name.startswith("mlperf") else "data"
        return statistics.median(
            event[key]["throughput"]  # type: ignore[index]
            for event in values
            if isinstance(event.get(key), dict) and "throughput" in event[key] and event.get("step") != []  # type: ignore[operator]
        )

    facts, _ = analyze.read_facts([str(FIXTURES / name.format(gpus)) for gpus in (8, 16)])
    small, large = facts.rows(Scaling)
    assert (8, 16) == (small.gpus, large.gpus)
    assert small.rate == pytest.approx(rate(8), rel=0.02)
    assert large.efficiency == pytest.approx(rate(16) / rate(8) / 2, rel=0.02)


def test_trainer_state_has_the_time_of_the_whole_run() -> None:
    path = FIXTURES / "trainer_state.json"
    (last,) = [one for one in json.loads(path.read_text())["log_history"] if "train_runtime" in one]
    facts, problems = analyze.read_facts([str(path)])
    numbers = measured(facts)
    assert [] == problems
    assert (180, last["train_samples_per_second"]) == (numbers["steps"], numbers["throughput"])
    assert numbers["step_time"] == pytest.approx(last["train_runtime"] / 180)


def test_a_state_without_its_end_has_reached_more_steps_than_it_kept_losses_of() -> None:
    kept = [{"epoch": 0.2 * n, "loss": 3.0 - n / 10, "step": 10 * n} for n in range(1, 5)]
    text = json.dumps({"epoch": 1.0, "global_step": 46, "max_steps": 46, "log_history": kept}, indent=2)
    facts, _ = read(text.encode())
    assert 46 == max(row.last_step or 0 for row in facts.rows(Scalar))


def test_histories_and_summaries_of_wandb() -> None:
    history = [{"loss": 1.0, "_step": n, "_timestamp": 1e9 + 2.5 * n, "_runtime": 2.5 * n} for n in range(0, 40, 2)]
    text = "".join(json.dumps(one) + "\n" for one in history).encode()
    known = recognise(text)
    assert known is not None
    assert "training-records" == known.kind
    facts, reading = read(text + b'{"_step": 41, "_tim')
    assert (20, "1 records are cut or damaged, the last in line 21") == (reading.understood, reading.note)
    assert {2.5} == {round(step.seconds or 0, 9) for step in facts.rows(Step)}
    summary = {
        "train/loss": 0.3,
        "train/tokens_per_second": 81920.0,
        "_runtime": 60.0,
        "_step": 29,
        "_timestamp": 1e9,
        "_wandb": {},
    }
    facts, reading = read(json.dumps(summary).encode())
    (run,) = facts.rows(ThroughputRun)
    (step,) = facts.rows(Step)
    assert ("tokens/s", 81920.0, 2.0) == (run.unit, step.rate, step.seconds)


def dllogger(steps: list[object], seconds: list[float], **data: float) -> bytes:
    """Lines of DLLogger's file."""
    now, lines = 1.7e9, []
    for step, took in zip(steps, seconds, strict=True):
        now += took
        lines.append(
            "DLLL " + json.dumps({"timestamp": f"{now:.6f}", "type": "LOG", "step": step, "data": {"loss": 1.5} | data})
        )
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("data", [{}, {"train.total_ips": 2500.0}], ids=["times", "rates"])
@pytest.mark.parametrize("stride", [1, 10])
def test_steps_named_by_epoch_and_iteration_are_counted_through(stride: int, data: dict[str, float]) -> None:
    steps: list[object] = [[epoch, iteration] for epoch in range(5) for iteration in range(0, 400 * stride, stride)]
    facts, _ = read(dllogger(steps, [0.5] * len(steps), **data))
    found = facts.rows(Step)
    assert 1999 * stride == max(row.last_step or 0 for row in found)
    assert sorted(row.step or 0 for row in found) == [row.step for row in found]
    if not data:
        assert 0.5 / stride == pytest.approx(statistics.median(row.seconds for row in found if row.seconds))


def test_epochs_with_iterations_that_run_on_and_summaries_between_them() -> None:
    steps: list[object] = [[0, 0], [0, 1], [0, 2], [0], [1, 3], [1, 4], [1, 4, 7], [1], [1, 5], []]
    facts, _ = read(dllogger(steps, [1.0] * len(steps), throughput=10.0))
    assert [0, 1, 2, 3, 4, None, 5] == [row.step for row in facts.rows(Step)]
    for hostile in ([[0, True]], [[0, 1 << 90]], [[-1, 5]], [["a", {}]], [{}], [[[]]]):
        read(dllogger([*hostile, [0, 1]], [1.0] * (len(hostile) + 1)))


def test_rate_of_the_whole_run_is_shown_where_its_steps_have_none(tmp_path: Path) -> None:
    steps: list[object] = [[0, number] for number in range(50)]
    end = b'DLLL {"timestamp": "1700000200.0", "type": "LOG", "step": [], "data": {"training_sequences_per_second": 2460.5}}\n'
    (tmp_path / "run.json").write_bytes(dllogger(steps, [2.0] * 50) + end)
    report, _, _ = analyze.analyze([str(tmp_path / "run.json")])
    found = {row.name: row.value for row in report.measures}
    assert (2.0, 2460.5) == (found["step_time"], found["throughput"])


@pytest.mark.parametrize(
    ("rates", "efficiencies"), [({8: 10_000.0, 16: 19_600.0, 32: 22_080.0}, [1.0, 0.98, 0.552]), ({}, [])]
)
def test_steps_of_an_unknown_batch_are_not_compared(
    tmp_path: Path, rates: dict[int, float], efficiencies: list[float]
) -> None:
    """With the batch a GPU kept, twice the GPUs do twice as much in a step of the same length."""
    parameters = 'DLLL {{"timestamp": "1700000000.0", "type": "LOG", "step": "PARAMETER", "data": {{"gpus": {}}}}}\n'
    steps: list[object] = [[0, number] for number in range(50)]
    for gpus in (8, 16, 32):
        data = {"train.ips": rates[gpus]} if rates else {}
        text = parameters.format(gpus).encode() + dllogger(steps, [0.1 * gpus**0.1] * 50, **data)
        (tmp_path / f"{gpus}.json").write_bytes(text)
    _, facts, _ = analyze.analyze([str(tmp_path)])
    assert efficiencies == pytest.approx([row.efficiency for row in facts.rows(Scaling)])


def test_aborted_run_is_named_and_a_running_one_has_no_end() -> None:
    text = (FIXTURES / "mlperf_8.log").read_text()
    facts = analyze.read_text(text.replace('"status": "success"', '"status": "aborted"'))
    assert ["aborted"] == [run.status for run in facts.rows(MlperfRun)]
    assert [("run aborted",)] == facts.query("SELECT value FROM job_fact WHERE name = 'end'")
    running = analyze.read_text("".join(f"0: {line}\n" for line in text.splitlines()[:-1]))
    assert [(None, None)] == [(run.status, run.seconds) for run in running.rows(MlperfRun)]


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        ({"throughput": "1234.5"}, (1234.5, "samples/s", "job", None, None)),
        ({"tokens/train_per_sec_per_gpu": 10}, (10.0, "tokens/s", "gpu", None, None)),
        ({"train.total_ips": 2500.0, "val.total_ips": 1.0}, (2500.0, "samples/s", "job", None, None)),
        ({"train_step_timing in s": 1.5, "eval_step_time": 9}, (None, None, None, 1.5, None)),
        ({"step_time_ms": 250, "data_time": 0.1}, (None, None, None, 0.25, 0.1)),
        ({"throughput/device/samples_per_sec": 7}, (7.0, "samples/s", "gpu", None, None)),
        ({"iter_time": 0.5, "samples_per_sec": 64}, (64.0, "samples/s", "job", 0.5, None)),
        ({"batch_ms": 20, "data_ms": 4}, (None, None, None, 0.02, 0.004)),
        ({"time_per_step": 2.0, "ktok_per_sec": 3}, (3000.0, "tokens/s", "job", 2.0, None)),
        ({"train/step_duration_ms": 30}, (None, None, None, 0.03, None)),
        ({"seconds_per_iteration": 3, "images_per_min": 120}, (2.0, "samples/s", "job", 3.0, None)),
        ({"batches_per_min": 30}, (None, None, None, 2.0, None)),
        ({"tokens_per_gpu_per_sec": 9, "stepTimeMs": 5}, (9.0, "tokens/s", "gpu", 0.005, None)),
        # no time of a step and no rate: totals, parts of a step, extremes, clocks
        ({"seen_tokens": 5, "epoch_time": 9, "samples_per_epoch": 4, "tokens_per_step": 3}, (None,) * 5),
        ({"forward_time": 1, "step_time_max": 2, "step_time_min": 1, "train_time_s": 8, "time": 4}, (None,) * 5),
        ({"loss": 1, "throughput": float("nan"), "tokens_seen": 5, "peak_throughput": 8}, (None,) * 5),
    ],
)
def test_metrics_by_their_keys(metrics: dict[str, object], wanted: tuple[object, ...]) -> None:
    assert wanted == tuple(speed_of(metrics))


@pytest.mark.parametrize("name", ["mlperf_8.log", "dllogger_8.json", "trainer_state.json"])
@given(data=st.data())
def test_cut_and_changed_files_are_read_as_far_as_they_go(name: str, data: st.DataObject) -> None:
    whole = (FIXTURES / name).read_bytes()
    cut = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3)) if cut else 0):
        cut[data.draw(st.integers(0, len(cut) - 1))] = data.draw(st.integers(0, 255))
    facts, reading = read(bytes(cut))
    assert reading.understood <= len(whole.splitlines())
    assert all((step.rate or 1) > 0 for step in facts.rows(Step))


@pytest.mark.parametrize(
    "line",
    [
        b':::MLLOG {"key": "run_stop", "time_ms": 1e999, "metadata": {"status": "success"}}',
        b':::MLLOG {"key": "train_samples", "time_ms": 1, "value": ' + b"9" * 5000 + b"}",
        b':::MLLOG {"key": "tracked_stats", "time_ms": 1, "value": {"throughput": -1}, "metadata": []}',
        b"DLLL " + b'{"a":' * 100_000,
        b'DLLL {"type": "LOG", "step": [[]], "data": {"throughput": {}}}',
    ],
)
def test_hostile_records(line: bytes) -> None:
    facts, reading = read(line + b"\n")
    assert [] == facts.rows(Step)
    assert 1 == reading.lines


def test_step_lines_of_newer_programs(tmp_path: Path) -> None:
    lines = {
        "nanogpt": ("iter {n}: loss 3.2, time 250.00ms, mfu 12.30%", 0.25, None),
        "torchtune": ("Step {n} | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1200.5 peak_memory_active:9.1", None, 1200.5),
        "maxtext": ("completed step: {n}, seconds: 1.150, TFLOP/s/device: 470.000, Tokens/s/device: 57000.000, loss: 2.1", 1.15, 57000),
        "nemo": ("Training epoch 0, iteration {n}/99 | global_step: {n} | reduced_train_loss: 1.3 | train_step_timing in s: 2", 2, None),
        "axolotl": ("{{'loss': 1.2, 'epoch': 0.1, 'tokens_per_second_per_gpu': 2345.6}}", None, 2345.6),
        "gnmt": ("0: TRAIN [0][{n}/100]\tTime 0.500 (0.51)\tData 1.10e-04 (1.2e-04)\tTok/s 12345 (12000)\tLoss/tok 5.1", 0.5, 12345),
    }  # fmt: skip
    for tool, (line, seconds, rate) in lines.items():
        facts = analyze.read_text("".join(f"{line.format(n=number)}\n" for number in range(1, 20)))
        (run,) = [run for run in facts.rows(ThroughputRun) if run.tool == tool]
        steps = [step for step in facts.rows(Step) if step.run == run.run]
        assert (tool, 19) == (run.tool, run.points)
        assert {seconds or steps[0].seconds} == {step.seconds for step in steps}
        assert rate is None or {rate} == {step.rate for step in steps}


def test_validation_of_torchtitan_is_no_step() -> None:
    line = "[titan] 2026-05-07 12:00:00,000 - root - INFO - {}step: {:2}  loss:  5.1000  memory: 40.10GiB(50.00%)  tps: {:,}\n"
    text = "".join(
        line.format("", number, 8000) + line.format("validate ", number + 1, 21000) for number in range(1, 60, 5)
    )
    facts = analyze.read_text(text)
    assert {8000.0} == {step.rate for step in facts.rows(Step)}
    assert [12] == [run.points for run in facts.rows(ThroughputRun)]


@pytest.mark.parametrize("kind", ["dllogger", "mlperf"])
def test_a_long_series_is_folded_and_keeps_its_slow_step(kind: str) -> None:
    """Of neighbours only five are decoded; steps, medians and the slowest are those of all lines."""
    rates = [4000.0 + step % 7 for step in range(30_000)]
    rates[25_001] = 400.0
    lines = []
    for step, rate in enumerate(rates):
        if kind == "dllogger":
            record = {
                "timestamp": str(1.7e9 + step),
                "type": "LOG",
                "step": step,
                "data": {"loss": 2.5, "throughput": rate},
            }
            lines.append("DLLL " + json.dumps(record))
        else:
            record = {"time_ms": 1.7e12 + step, "key": "tracked_stats", "value": {"throughput": rate},
                      "metadata": {"samples_count": step}}  # fmt: skip
            lines.append(":::MLLOG " + json.dumps(record))
    facts, reading = read("\n".join(lines).encode())
    steps = facts.rows(Step)
    assert (30_000, None, 30_000) == (reading.understood, reading.note, sum(row.n for row in steps))
    assert len(steps) < 2_000
    worst = max(steps, key=lambda row: row.slowest)
    assert worst.slowest == pytest.approx(10, rel=0.02)
    assert 25_002 == worst.line
    assert statistics.median(row.rate or 0.0 for row in steps) == pytest.approx(4003, abs=1)
    if kind == "dllogger":
        assert (0, 29_999, 25_001) == (steps[0].step, steps[-1].last_step, worst.slowest_step)
    else:
        assert 29_999 == facts.rows(MlperfRun)[0].samples
    broken = "\n".join([*lines[:20_000], lines[20_000][:-30], *lines[20_001:]])
    facts, reading = read(broken.encode())
    assert (29_999, True) == (sum(row.n for row in facts.rows(Step)), "1 records are cut" in (reading.note or ""))


def test_a_cut_trainer_state_keeps_the_records_before_the_cut() -> None:
    whole = (FIXTURES / "trainer_state.json").read_bytes()
    before = len([one for one in json.loads(whole)["log_history"] if "train_runtime" not in one])

    facts, reading = read(whole[: whole.index(b'"train_runtime"')])

    assert before == reading.understood
    assert reading.note is not None
    assert f"{before:,} records before that were read" in reading.note
    assert {"loss", "learning_rate"} <= {row.name.rpartition("/")[2] for row in facts.rows(Scalar)}


@pytest.mark.parametrize(
    ("platform", "before", "gpus"),
    [
        ("2xSUBMISSION_PLATFORM_PLACEHOLDER", "+ srun --ntasks=16\nWORLD_SIZE=16\n", 16),
        ("PLACEHOLDER", "trainer:\n  devices: 8\n  num_nodes: 4\n", 32),
        ("PLACEHOLDER", "0: All distributed processes registered. Starting with 24 processes\n", 24),
        ("4xXE9680x8H100-SXM-80GB", "", 32),
        ("8xDGXH100", "", 64),
        ("PLACEHOLDER", "data_parallel_world_size: 4\n", None),
    ],
)
def test_gpus_of_mlperf_from_platform_or_launch(platform: str, before: str, gpus: int | None, tmp_path: Path) -> None:
    def line(key: str, value: object, at: int) -> str:
        event = {
            "namespace": "",
            "time_ms": 1716000000000 + at,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
        }
        return f"0: :::MLLOG {json.dumps({**event, 'metadata': {'file': 'train.py', 'lineno': 1}})}\n"

    steps = "".join(line("tracked_stats", {"throughput": 15.5}, 1000 * n) for n in range(1, 9))
    (tmp_path / "run.log").write_text(
        before + line("submission_platform", platform, 0) + line("run_start", None, 1) + steps
    )

    facts, _ = analyze.read_facts([str(tmp_path / "run.log")])

    assert [(gpus, 8)] == facts.query("SELECT gpus, points FROM throughput_run")


def test_the_total_of_two_steps_counts_more_than_they() -> None:
    text = "DLL 2026-11-02 10:00:00.100000 - PARAMETER epochs : 2 \n"
    for epoch, rate in enumerate((210.0, 980.0)):  # the first one warms up
        text += f"DLL 2026-11-02 10:00:1{epoch}.100000 - ({epoch}, 0) train_items_per_sec : {rate} \n"
    facts, _ = read((text + "DLL 2026-11-02 10:00:20.100000 - () train_items_per_sec : 980.0 \n").encode())
    derive_all(facts)
    assert measured(facts)["throughput"] == 980.0


@pytest.mark.parametrize(
    ("key", "rate"), [("train_perf_fps", 150.0), ("fps", 150.0), ("val_fps", None), ("camera_fps", None)]
)
def test_frames_a_second(key: str, rate: float | None) -> None:
    assert rate == speed_of({key: 150.0}).rate


def test_the_power_log_of_mlperf_tells_the_mean_and_the_energy(tmp_path: Path) -> None:
    def event(when: int, key: str, value: object) -> str:
        told = {
            "namespace": "",
            "time_ms": when,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": {},
        }
        return f":::MLLOG {json.dumps(told)}\n"

    path = tmp_path / "node_0.txt"
    readings = [event(1_000 * n, "power_reading", {"value": 9_000 + 100 * (n % 2)}) for n in range(1, 11)]
    start = event(0, "power_measurement_start", None) + event(0, "conversion_eff", {"value": 0.9})
    path.write_text(start + "".join(readings) + event(10_000, "power_measurement_stop", None))
    report, facts, _ = analyze.analyze([str(path)])
    assert [] == report.findings
    assert {"mean power": 8145.0, "highest power": 8190.0, "energy": 81.5} == pytest.approx(
        {row.name: row.value for row in facts.rows(HostNumber)}, abs=0.1
    )
    assert [] == facts.rows(MlperfRun)


def test_things_that_wandb_logs_by_turns_have_the_pace_of_one_of_them() -> None:
    # `wandb.log` twice a loop without `step=`: each call is a step, the second a moment after the first
    lines = []
    for turn in range(60):
        lines.append(
            {"reward": 1.0 + turn, "_runtime": 2.5 * turn, "_timestamp": 1.7e9 + 2.5 * turn, "_step": 2 * turn}
        )
        after = 2.5 * turn + 0.01
        lines.append({"mean_reward": 2.0, "_runtime": after, "_timestamp": 1.7e9 + after, "_step": 2 * turn + 1})
    facts, _ = read("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert [] == facts.query("SELECT * FROM stall")
    times = [row.seconds for row in facts.rows(Step) if row.seconds]
    assert 1.25 == pytest.approx(statistics.median(times))


def test_an_evaluation_now_and_then_keeps_its_own_time() -> None:
    lines = []
    when = 0.0
    for step in range(60):
        name = "eval/accuracy" if step % 10 == 9 else "train/accuracy"
        when += 30.0 if step % 10 == 9 else 1.0
        lines.append({name: 0.5, "_runtime": when, "_timestamp": 1.7e9 + when, "_step": step})
    facts, _ = read("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert 30.0 == pytest.approx(max(row.seconds for row in facts.rows(Step) if row.seconds))
