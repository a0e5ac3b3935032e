"""Step lines of loops that people write themselves: their steps, rates and times are read, and other lines are not."""

import io
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.steps import own_steps, step_lines
from nccl_doctor.formats.training.steps.step_columns import read_step

RATES = {
    "step {s} loss {l:.2f} tokens/s {r:.0f}": "tokens/s",
    "step: {s} loss: {l:.2f} tokens/s: {r:.0f}": "tokens/s",
    "rank0: step={s} loss={l:.2f} tok/s={r:.0f}": "tokens/s",
    "Step {s}/1000 | loss {l:.2f} | {r:.0f} tok/s": "tokens/s",
    "[2026-11-20 10:00:12] [Step {s}] loss={l:.3f} throughput={r:.1f} samples/s": "samples/s",
    "{{'loss': {l:.3f}, 'epoch': {e:.2f}, 'tokens_per_second': {r:.0f}}}": "tokens/s",
    "INFO:root:[step {s}]\tloss={l:.3f}\tthroughput={r:.1f} tks/s\tlr=0.0001 time=512.5": "tokens/s",
    "root - [Epoch 1 Batch {s}/90000] loss={l:.3f}, throughput={r:.1f} wps, wc=6521.9K": "tokens/s",
    "Iteration {s}, images/sec: {r:.1f}": "samples/s",
    "step {s}: {r:.2f} images/sec, loss {l:.3f}": "samples/s",
    "[{s}] loss: {l:.3f}, {r:.1f} img/s": "samples/s",
    '{{"step": {s}, "loss": {l:.3f}, "tokens_per_sec": {r:.1f}}}': "tokens/s",
    "train | epoch 1 | step {s} | lr 1e-4 | loss {l:.3f} | tps {r:.0f} | mem 60.1GiB": "tokens/s",
    "I1120 10:00:12.123456 140 train.py:88] iter {s} {r:.1f} examples/sec {d:.3f} s/iter": "samples/s",
    "| epoch 1 step {s} | batches {s} / 38403 | lr 0.01 | ms/batch {m:.1f} | tok/s {r:.0f} | loss {l:.3f} | ppl 280.1": "tokens/s",
}
TIMES = (
    "2026-11-20 10:00:12 INFO train.py:10 step {s}, loss: {l:.3f}, time: {d:.4f}s",
    "Train Epoch: 1 [{s}/60000 (1%)] Loss: {l:.4f} time: {d:.4f}",
    "rank0: step {s} | {d:.4f} s/it | loss {l:.3f}",
    "| epoch   1 | {s:5d}/ 9000 batches | lr 20.00 | ms/batch {m:.1f} | loss {l:.3f} | ppl  2057.39",
    "{s}/1000 [==>...........................] - ETA: 10:00 - loss: {l:.3f} {m:.1f}ms/step",
    "INFO:tensorflow:global_step/sec: {i:.4f}",
    "Batch {s} took {d:.4f} seconds, loss {l:.3f}",
    "{{'train_loss': {l:.3f}, 'step': {s}, 'step_time': {d:.4f}}}",
    "step {s}: loss {l:.3f}, {i:.4f} steps/s",
    "step {s}  loss {l:.3f}  {m:.1f} ms",
    "Epoch 1 | iter {s} step 7 | loss train: {l:.3f}, val: n/a | iter time: {m:.2f} ms (step)",
    "[11/02 09:30:00] trainer INFO: Epoch: [0] [{s:>4}/9000] loss: {l:.3f} batch_cost: {d:.4f} data_cost: 0.0001",
)


def log(form: str, rates: list[float]) -> str:
    lines = []
    for number, rate in enumerate(rates):
        seconds = 1000 / rate
        lines.append(
            form.format(
                s=10 * number + 10,
                l=3 - number / 100,
                r=rate,
                d=seconds,
                m=1000 * seconds,
                i=1 / seconds,
                e=number / 100,
            )
        )
    return "\n".join(lines) + "\n"


def read(text: str) -> tuple[list[ThroughputRun], list[Step]]:
    facts = Facts()
    step_lines.read_format(io.BytesIO(text.encode()), "train.log", facts)
    return facts.rows(ThroughputRun), facts.rows(Step)


@pytest.mark.parametrize("form", RATES)
def test_rates_are_read(form: str) -> None:
    rates = [1984.0 + 7 * (number % 5) for number in range(30)]
    (run,), steps = read(log(form, rates))
    assert (own_steps.NAME, RATES[form], 30) == (run.tool, run.unit, run.points)
    assert statistics.median(rates) == pytest.approx(statistics.median(step.rate or 0 for step in steps), rel=1e-3)


@pytest.mark.parametrize(
    "time", ["ms/batch {m:.1f}", "{m:.1f} ms/batch", "{d:.4f} s/it", "{m:.1f}ms/step", "time: {m:.2f} ms"]
)
def test_a_time_beside_a_rate_is_read_too(time: str) -> None:
    (run,), steps = read(log(f"step {{s}} | {time} | tok/s {{r:.0f}} | loss {{l:.3f}}", [2000.0] * 12))
    assert "tokens/s" == run.unit
    assert {(2000.0, 0.5)} == {(step.rate, step.seconds) for step in steps}


@pytest.mark.parametrize("form", TIMES)
def test_times_are_read(form: str) -> None:
    rates = [1984.0 + 7 * (number % 5) for number in range(30)]
    (run,), steps = read(log(form, rates))
    assert (own_steps.NAME, "steps/s", 30) == (run.tool, run.unit, run.points)
    assert 1000 / statistics.median(rates) == pytest.approx(
        statistics.median(step.seconds or 0 for step in steps), rel=2e-3
    )


@pytest.mark.parametrize(
    "form",
    [
        "step {s} loss {l:.3f}",
        "step {s} elapsed time: {c:.1f}s",  # counts up to the end
        "step {s} remaining time: {t:.1f}s",
        "val step {s} loss {l:.3f} {r:.0f} tokens/s",
        "n1:42:42 [0] NCCL INFO Channel {s:02d}/0 : 0[0] -> 1[1] via P2P/IPC time: {r:.1f}",
        "n1:42:42 [{s}] NCCL INFO Registration of the buffer took {d:.3f} ms",
        "request {s} took {d:.3f} seconds",
        "Avg prompt throughput: {r:.1f} tokens/s, Avg generation throughput: {r:.1f} tokens/s",
        "epoch {s} took {d:.3f} seconds",
    ],
)
def test_other_lines_are_not(form: str) -> None:
    lines = [form.format(s=n, l=3 - n / 100, c=12.5 * n, t=900 - n, r=1984.0 + 7 * (n % 5), d=0.5) for n in range(30)]
    assert ([], []) == read("\n".join(lines) + "\n")


@pytest.mark.parametrize(("text", "seconds"), [("0,51", 0.51), ("12,5", 12.5), ("1,820", 1820.0), ("1,820.5", 1820.5)])
def test_a_comma_is_a_decimal_sign_where_it_parts_no_thousands(text: str, seconds: float) -> None:
    _, steps = read("".join(f"step {n}, step_time: {text}, loss: 2,1\n" for n in range(1, 12)))
    assert {seconds} == {step.seconds for step in steps}


@pytest.mark.parametrize(("word", "hosts"), [("gpu{}", [None, None]), ("node{}", ["node3", "node7"])])
def test_lines_of_two_writers_are_two_runs(word: str, hosts: list[str | None]) -> None:
    """`gpu3: step 10` may be of a node or of a device: of one writer it is in any case."""
    lines = (f"{word.format(who)}: step {n} loss 2.0 {1000 * who} tokens/s\n" for n in range(1, 12) for who in (3, 7))
    runs, steps = read("".join(lines))
    assert (hosts, [11, 11]) == ([run.host for run in runs], [run.points for run in runs])
    assert {3000.0, 7000.0} == {step.rate for step in steps}


def test_a_time_is_read_at_the_end_of_a_log_and_beside_a_message() -> None:
    lines = [f'step {n}  loss 2.0  {500 + n % 3} ms msg="x"\nstep {n}  loss 2.0  {500 + n % 3} ms\n' for n in range(30)]
    (run,), _ = read("".join(lines).rstrip("\n"))
    assert 30 == run.points


def test_a_known_program_counts_alone() -> None:
    form = "iter {s}: loss {l:.4f}, time {m:.2f}ms, mfu 41.20%\nstep {s} | {d:.3f} s/it"
    (run,), _ = read(log(form, [1984.0] * 20))
    assert "nanogpt" == run.tool


@given(
    st.sampled_from([tool.literal.decode() for tool in own_steps.TOOLS]),
    st.text(" 0123456789.,:=/[]{}'\"ekKMs%-", max_size=40),
    st.text(" 0123456789.,:=/[]{}'\"ekKMs%-", max_size=40),
)
def test_any_line_gives_a_point_or_nothing(word: str, before: str, after: str) -> None:
    line = f"step 12 {before}{word}{after}".encode()
    for tool in own_steps.TOOLS:
        point = read_step(tool, line) if tool.literal in line else None
        assert point is None or 0 < (point[1] or point[2] or 0) < float("inf")


@pytest.mark.parametrize("form", [*list(RATES)[:9:4], TIMES[2]])
def test_a_long_log_says_the_same_as_its_lines(form: str) -> None:
    """From some thousand lines on neighbours are folded by the number beside the unit; the slow ones are kept."""
    rates = [1984.0 + 7 * (number % 5) for number in range(12_000)]
    rates[11_005] = 200.0
    (run,), steps = read(log(form, rates))
    assert 12_000 == run.points
    middle = steps[len(steps) // 2]
    assert 1998.0 == pytest.approx(1000 / middle.seconds if middle.seconds else middle.rate, rel=0.01)
    assert 9 < max(step.slowest for step in steps) < 11


@pytest.mark.parametrize("form", ["{s} s/it | data {d} s", "{s} s/it, data_time: {d}", "{s} s/it data: {m:.0f}ms"])
def test_the_part_that_waited_for_data_is_read(form: str) -> None:
    text = "".join(f"step {n} | {form.format(s=0.4, d=0.3, m=300)}\n" for n in range(12))
    _, steps = read(text)
    assert {0.3} == {step.data for step in steps}


def test_of_several_times_without_a_name_none_is_that_of_the_step() -> None:
    text = "".join(f"step {n}: forward 100.5 ms, backward 200.1 ms, optimizer {n}.2 ms\n" for n in range(12))
    assert ([], []) == read(text)


@pytest.mark.parametrize(
    "form",
    [
        "2026-11-02 09:32:23.401: Epoch time: {d:.3f} s",
        "[epoch {s}] train_loss {l:.3f} val_loss 0.3 epoch_time: {d:.3f}s",
        "Epoch {s}: loss {l:.3f}, epoch took {m:.1f} ms",
    ],
)
def test_times_of_epochs_where_no_steps_are_told(form: str) -> None:
    rates = [100 + number % 5 for number in range(20)]
    runs, steps = read(log(form, rates))
    assert [("epochs", "epochs/s", 20)] == [(run.tool, run.unit, run.points) for run in runs]
    assert pytest.approx([1000 / rate for rate in rates], abs=0.001) == [step.seconds for step in steps]
    both = log(form, rates) + log("step {s} | {d:.4f} s/it | loss {l:.3f}", rates)
    assert ["own-loop"] == [run.tool for run in read(both)[0]]
