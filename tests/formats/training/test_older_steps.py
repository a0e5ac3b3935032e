"""Step lines of programs that people still run: TorchTitan before 0.2, MaxText of 2023, modded-nanogpt; records of ms-swift."""

import io
import json

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LossScale, MlperfRun, Step, ThroughputRun
from nccl_doctor.formats.training import records
from nccl_doctor.formats.training.steps import step_lines


@pytest.mark.parametrize(
    ("tool", "line", "seconds", "rate"),
    [
        ("torchtitan", "[rank0]:2024-11-27 14:29:40,378 - INFO - step: {s}  loss:  1.5  memory: 9.1GiB(11%)  wps: 1,786", None, 1786.0),
        ("internevo", "INFO train.py:323 -- tflops=63.27,step={s},loss=11.6,tgs (tokens/gpu/second)=1424.64,lr=4e-07", None, 1424.64),
        ("llm.c", "step {s:4d}/18865 | loss 11.0 (+nanz)| lr 1e-07 | 3321.91 ms | 48.3% bf16 MFU | 157849 tok/s", 3.32191, None),
        ("llm.c", "step {s:4d}/74: train loss 5.356082 (acc 5.356082) (83.28 ms, 49187 tok/s)", None, 49187.0),
        ("fairseq2", "fairseq2 - Train Metrics (step {s}) - Loss: 2.31 | Elements per Second: 151,020", None, 151020.0),
        ("marian", "Ep. 1 : Up. {s} : Sen. 41,234 : Cost 9.1 * 5,1 @ 1 after 9 : Time 46.02s : 11332.97 words/s : gNorm 1", None, 11332.97),
        ("wenet", "2026-11-20 08:00:00,123 DEBUG TRAIN | steps/sec 2.500| Batch 0/{s} loss 120.1 loss_ctc 130.2 lr 0.0001", 0.4, None),
        ("nemo-rl", "===== Step {s}/1000 =====\n  • Total step time: 64.25s\n  • generation: 38.40s (60.0%)", 64.25, None),
        ("deepspeed-chat", "|E2E latency=3.84s |Generate time=2.53s |CurSamplesPerSec=16.67 |AvgSamplesPerSec=1{s}.19", None, 16.67),
        ("deepspeed-chat", "End-to-End => Latency: 5.11s, TFLOPs: 12.31, Samples/sec: 6.26, Time/seq 0.1{s}s, Batch Size: 32", 5.11, None),
        ("deepspeed-chat", "Model Parameters: 1.429 B, Latency: 0.41s, TFLOPs: 66.1, Samples/sec: 39.02, Time/seq 0.0{s}s", None, 39.02),
        ("gnmt-epochs", "0: Performance: Epoch: {s}\tTraining: 661440 Tok/s\tValidation: 355792 Tok/s", None, 661440.0),
        ("maxtext", "completed step: {s}, seconds: 2.167, TFLOP/s: 36.722, loss: 2.191", 2.167, None),
        ("nanogpt-speedrun", "step:{s}/2000 train_time:{s}60ms step_avg:100.00ms", 0.1, None),
        ("nanogpt-speedrun", "step:{s}/2000 val_loss:3.41 train_time:{s}.134s step_avg:1000.51ms", 1.0, None),
    ],
)  # fmt: skip
def test_steps(tool: str, line: str, seconds: float | None, rate: float | None) -> None:
    facts = Facts()
    step_lines.read_format(
        io.BytesIO("".join(line.format(s=step) + "\n" for step in (1, 2, 3)).encode()), "job.log", facts
    )

    assert [(tool, 3)] == [(run.tool, run.points) for run in facts.rows(ThroughputRun)]
    (last, *_) = facts.rows(Step)[::-1]
    assert (last.rate if rate else last.seconds) == pytest.approx(rate or seconds)


def test_the_rate_of_epochs_counts_where_only_their_first_steps_are_printed() -> None:
    def tools(lines: int) -> list[str]:
        steps = "".join(
            f"{rank}: TRAIN [0][{step}/981]\tTime 3.74 (3.74)\tData 3.55e+00 (3.55e+00)\tTok/s 18239 (18239)\tLoss/tok 9.1\n"
            for step in range(0, 10 * lines, 10)
            for rank in (0, 1)
        )
        facts = Facts()
        text = steps + "0: Performance: Epoch: 0\tTraining: 661440 Tok/s\tValidation: 355792 Tok/s\n"
        step_lines.read_format(io.BytesIO(text.encode()), "job.log", facts)
        return [run.tool for run in facts.rows(ThroughputRun)]

    assert (["gnmt-epochs"], ["gnmt", "gnmt"]) == (tools(1), tools(20))


def test_a_step_of_rlhf_counts_with_its_generation() -> None:
    facts = Facts()
    lines = "".join(
        f"[Rank 0] step={n}, skipped=2, lr=[1e-05]\n"
        f"epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=86.1, CurrSamplesPerSec=85.9\n"
        f"|E2E latency=3.8{n}s |Gather latency=0.00s (0.00%) |CurSamplesPerSec=16.67 |AvgSamplesPerSec=15.19\n"
        for n in range(1, 9)
    )
    step_lines.read_format(io.BytesIO(lines.encode()), "job.log", facts)
    assert [("deepspeed-chat", 8)] == [(run.tool, run.points) for run in facts.rows(ThroughputRun)]


def test_ranks_print_each_skipped_step() -> None:
    """Eight ranks say that the scale fell, and the count of skipped steps is that of the job."""
    line = "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=86.1, CurrSamplesPerSec=85.9\n"
    fall = "Grad overflow on iteration {}\n[fused_optimizer.py:363:_update_scale] Reducing dynamic loss scale from {}.0 to {}.0\n"
    text = "".join(8 * fall.format(n, 2**n, 2 ** (n - 1)) for n in (16, 15))
    text += "".join(f"[Rank 0] step={n}, skipped=2, lr=[1e-05]\n" + line.format(n) for n in (10, 20))
    facts = Facts()
    step_lines.read_format(io.BytesIO(text.encode()), "job.log", facts)
    assert [2] == [row.skipped for row in facts.rows(LossScale)]


def test_a_slow_step_is_not_hidden_in_an_average() -> None:
    """The clock counts; where it begins anew, after a validation or in another run, the average of the line does."""
    times = (
        (1, 100, 100),
        (2, 200, 100),
        (3, 500, 166.67),
        (4, 600, 150),
        (4, 600, 150),
        (6, 800, 133.33),
        (7, 90, 90),
    )
    lines = [f"step:{step}/1750 train_time:{clock}ms step_avg:{mean:.2f}ms" for step, clock, mean in times]
    facts = Facts()
    step_lines.read_format(io.BytesIO(("\n".join(lines) + "\n").encode()), "job.log", facts)

    assert [(1, 0.1), (2, 0.1), (3, 0.3), (4, 0.1), (6, 0.1), (7, 0.09)] == [
        (step.step, pytest.approx(step.seconds)) for step in facts.rows(Step)
    ]


def _swift(step: int, clock: str, **more: object) -> str:
    return json.dumps(
        {"loss": 1.4, "global_step/max_steps": f"{step}/30", "elapsed_time": clock, "train_speed(iter/s)": 0.1, **more}
    )


def test_a_steady_run_of_swift_with_an_evaluation_does_not_get_slower() -> None:
    """Its own speed is a mean since the start, evaluations and all."""
    lines = [
        _swift(10, "50s"),
        _swift(20, "1m 40s"),
        _swift(20, "4m 10s", eval_loss=1.2),
        _swift(30, "1h 5m 0s", eval_runtime=3600),
    ]
    facts = Facts()
    records.read_format(io.BytesIO(("\n".join(lines) + "\n").encode()), "logging.jsonl", facts)

    assert ["ms-swift"] == [run.tool for run in facts.rows(ThroughputRun)]
    assert [5.0, 5.0] == [step.seconds for step in facts.rows(Step)]


def test_mlperf_events_with_seconds() -> None:
    event = (
        ':::MLLOG {{"namespace": "", "time_s": {}, "key": "{}", "value": null, "metadata": {{"status": "success"}}}}\n'
    )
    facts = Facts()
    records.read_format(
        io.BytesIO((event.format(1593353300.5, "run_start") + event.format(1593353331.7, "run_stop")).encode()),
        "a",
        facts,
    )

    (run,) = facts.rows(MlperfRun)
    assert run.seconds == pytest.approx(31.2)
