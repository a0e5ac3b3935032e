"""Long logs of each program whose step lines are known: neighbours are folded by one number of each line, and nothing is lost."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.run_settings import Settings
from nccl_doctor.formats.training.steps import step_lines

LINES = 20_000
SLOW = 15_003  # ten times slower than the others
# what a program prints of a step of so many seconds, with a rate of 1000 in a second
FORMS = {
    "horovod-synthetic": "Iter #{s}: {r:.1f} img/sec per GPU",
    "fairseq": "epoch 001: {s} / 90000 loss=8.9, wps={r:.1f}, ups={u:.3f}, wpb=65000, num_updates={s}, lr=0.0005, wall=40",
    "deepspeed": "[2026-05-07 12:00:20,101] [INFO] [timer.py:199:stop] 0/{s}, SamplesPerSec={r:.3f}, MemAllocated=11.2GB",
    "tqdm": " 3%|###   | {s}/900000 [{c}<01:37, {d:.4f}s/it]",
    "composer": "[batch={s}/900000]:\n\t throughput/samples_per_sec: {r:.1f}\n\t loss/train/total: 2.1",
    "tf-official": "I0507 keras.py:145] TimeHistory: {d:.3f} seconds, {r:.1f} examples/second between steps {s0} and {s}",
    "tf-tutorial": "2026-05-07 12:00:20.101: step {s}, loss = 4.68 ({r:.1f} examples/sec; {d:.3f} sec/batch)",
    "tf-estimator": "INFO:tensorflow:loss = 4.68, step = {s} ({d:.3f} sec)",
    "pytorch-example": "Epoch: [0][{s}/900000]\tTime  {d:.4f} ( 0.400)\tData  0.004 ( 0.100)\tLoss 6.9012e+00 (6.9100e+00)",
    "nanogpt": "iter {s}: loss 3.2000, time {m:.2f}ms, mfu 12.30%",
    "torchtune": "Step {s} | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:{r:.2f} peak_memory_active:9.1",
    "maxtext": "completed step: {s}, seconds: {d:.3f}, TFLOP/s/device: 470.000, Tokens/s/device: {r:.3f}, loss: 2.1",
    "axolotl": "{{'loss': 1.2, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'tokens_per_second_per_gpu': {r:.2f}}}",
    "axolotl quoted": "{{'loss': '1.2', 'grad_norm': '0.9', 'tokens/train_per_sec_per_gpu': '{r:.2f}', 'epoch': '0.1'}}",
    "gnmt": "0: TRAIN [0][{s}/900000]\tTime {d:.4f} (0.400)\tData 1.2e-04 (1.3e-04)\tTok/s {r:.1f} (10000)\tLoss/tok 8.9 (9.1)",
    "timm": "Train: 0 [{s}/900000 (  4%)]  Loss: 6.9  Time: {d:.3f}s, {r:.2f}/s  (0.4s,  457.55/s)  LR: 1.0e-05  Data: 0.004 (0.1)",
    "detection": "Epoch(train) [1][{s}/900000]  lr: 2.0e-02  eta: 1:02:03  time: {d:.4f}  data_time: 0.0102  loss: 1.2",
    "detection iterations": "[05/07 12:00:20 d2.utils.events]:  iter: {s}  total_loss: 1.2  time: {d:.4f}  data_time: 0.0102",
}  # fmt: skip


@pytest.mark.parametrize("program", FORMS)
def test_all_steps_count_and_the_slow_one_is_kept(program: str) -> None:
    text = io.StringIO()
    passed = 0.0
    for step in range(1, LINES + 1):
        seconds = (10.0 if step == SLOW else 1.0) + step % 7 / 1000
        passed += seconds
        clock = f"{passed // 60:.0f}:{passed % 60:02.0f}"
        text.write(FORMS[program].format(s=step, s0=step - 1, d=seconds, m=1000 * seconds, r=1000 / seconds, u=1 / seconds,
                                         c=clock) + "\n")  # fmt: skip
    facts = Facts()

    reading = step_lines.read_format(io.BytesIO(text.getvalue().encode()), "job.log", facts)

    (run,) = facts.rows(ThroughputRun)
    steps = facts.rows(Step)
    assert LINES == run.points == sum(step.n for step in steps)
    assert LINES <= reading.understood
    assert len(steps) <= 4_096
    worst = max(steps, key=lambda step: step.slowest)
    assert 10.0 == pytest.approx(worst.slowest, rel=0.02)
    assert (worst.slowest_step or SLOW) % 900_000 == SLOW
    lines_each = FORMS[program].count("\n") + 1
    (evidence,) = facts.evidence_rows([worst.ref])
    assert SLOW == (evidence.line + lines_each - 1) // lines_each


def test_a_launch_after_a_known_one_is_read_with_all_that_it_prints() -> None:
    """What a program is not needed for in one launch may be all that the next one prints."""
    known = [FORMS["torchtune"].format(s=step, r=1000.0) for step in range(1, 3000)]
    own = [f"step {step} loss 2.0 {2000 + step % 5} tokens/s" for step in range(1, 3000)]
    text = "\n".join(["WORLD_SIZE=8", *known, "WORLD_SIZE=16", *own, ""])
    facts = Facts()

    step_lines.read_format(io.BytesIO(text.encode()), "job.log", facts)

    assert [("torchtune", 2999), ("own-loop", 2999)] == [(run.tool, run.points) for run in facts.rows(ThroughputRun)]


def test_settings_without_a_line_end_between_them_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them once searched the whole line: 10 s for 420 kB."""
    asked = list[bytes]()
    note = Settings.note

    def counted(settings: Settings, line: bytes) -> bool:
        asked.append(line)
        return note(settings, line)

    monkeypatch.setattr(Settings, "note", counted)
    text = "".join(f"world_size ... 8 num_layers ... 24 seq_length ... {number} " for number in range(1_000, 2_000))
    facts = Facts()
    step_lines.read_format(io.BytesIO(f"{text}\rworld_size ... 8 num_layers ... 24\n".encode()), "job.log", facts)

    assert 2 == len(asked)
