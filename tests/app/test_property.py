"""What happens to logs on their way does not change the diagnosis: noise, other orders, lost lines, torn and glued records.

A healthy log must not turn into an alarm. A fault must stay the first cause as long as its own lines are there: those that
the log of the same job without the fault does not have.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from helpers.examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.simulate import FAULTS, FRAMEWORKS, NETWORKS, VERSIONS, Spec, fit, write_log

STEPS = (
    "step {n}/5000 | loss 2.{n:04} | lr 3.0e-04 | grad_norm 0.{n} | 3412.{n} tok/s",
    "Epoch: [3][{n}/5004]\tTime  0.412 ( 0.4{n})\tData  0.002 ( 0.003)\tLoss 2.{n} (2.9)\tAcc@1  41.41 ( 40.{n})",
    "{{'loss': 1.{n}, 'grad_norm': 0.{n}, 'learning_rate': 4.9e-05, 'epoch': 0.{n}}}",
    "Training:  37%|███▋      | {n}/5000 [12:34<21:11,  3.63it/s, loss=1.{n}]",
    "\rTrain: {n}it [00:41,  2.31it/s]\rTrain: {n}it [00:42,  2.31it/s]",
    "validation error: 0.{n}, word error rate 12.{n} %, no errors in 512 samples",
    "epoch 3 valid | loss 2.{n} | ppl 11.{n} | timeout_s 1800 | best_loss 2.{n}",
)
NOISE = (
    "Saving checkpoint to /scratch/run7/checkpoint-{n} (14.2 GB, 31.{n} s)",
    "wandb: Currently logged in as: someone. Use `wandb login --relogin` to force relogin",
    "wandb: Network error resolved after 0:00:0{d}, resuming normal operation.",
    "/opt/venv/lib/python3.10/site-packages/torch/nn/modules/conv.py:{n}: UserWarning: Plan failed with a cudnnException: "
    "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR (Triggered internally at ../aten/src/ATen/native/cudnn/Conv_v8.cpp:919.)",
    "  return F.conv2d(input, weight, bias, self.stride,",
    "/opt/venv/lib/python3.10/site-packages/torch/utils/checkpoint.py:{n}: FutureWarning: `torch.cpu.amp.autocast(args...)` is "
    "deprecated. Please use `torch.amp.autocast('cpu', args...)` instead.",
    "[W CUDAFunctions.cpp:{n}] Warning: an optional kernel was not found, using the fallback (function operator())",
    "2026-05-02 21:24:{d}0.{n}: I tensorflow/core/platform/cpu_feature_guard.cc:193] This TensorFlow binary is optimized with "
    "oneAPI Deep Neural Network Library (oneDNN)",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling "
    "parallelism to avoid deadlocks...",
    "Token indices sequence length is longer than the specified maximum sequence length for this model ({n} > 512).",
    "[2026-05-02 21:24:{d}0,{n}] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[3e-05], mom=[(0.9, 0.999)]",
    "INFO:root:Reducer buckets have been rebuilt in this iteration.",
    "Downloading shards: 100%|██████████| 30/30 [00:00<00:00, 4{n}.11it/s]",
    "retrying request 1/3 to the data cache after 0.{n} s",
    "rank0 sampled text: the node was lost in the forest and the connection to the others closed for {n} days",
    "mem allocated 41.{n} GiB, reserved 52.{n} GiB, max 79 GiB",
    "",
)
KNOBS = examples(25, suppress_health_check=list(HealthCheck))

ABSENCE = {"hang-after-init"}  # faults that show by what does not follow

SPECS = st.builds(
    Spec,
    nodes=st.sampled_from((1, 2, 3)),
    gpus=st.sampled_from((2, 4)),
    version=st.sampled_from(VERSIONS),
    network=st.sampled_from(NETWORKS),
    framework=st.sampled_from(FRAMEWORKS),
    prefix=st.sampled_from(("none", "srun")),
    seed=st.integers(0, 20),
    steps=st.just(6),
)
FAULTY = st.builds(
    lambda spec, fault: fit(replace(spec, fault=fault)), SPECS, st.sampled_from(sorted(set(FAULTS) - ABSENCE))
).filter(
    lambda spec: spec.nodes * spec.gpus > 2
)  # of two ranks, one that waits does not prove that the other is missing
RANDOM = st.builds(
    Random, st.integers(0, 2**32 - 1)
)  # a seed: to draw each number would take longer than to read the log


@cache
def lines_of(spec: Spec) -> tuple[str, ...]:
    return tuple(write_log(spec))


def shape(line: str) -> str:
    """A line without what differs between ranks and runs."""
    return re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", line)


@cache
def own(spec: Spec) -> frozenset[str]:
    """Lines that the same job without the fault does not print."""
    usual = {shape(line) for line in lines_of(replace(spec, fault=None))}
    return frozenset(line for line in lines_of(spec) if line.strip() and shape(line) not in usual)


def told(lines: Sequence[str]) -> Report:
    return analyze.report_of(analyze.read_text("\n".join(lines) + "\n"))


def first(report: Report) -> str:
    alarms = [finding.name for finding in report.findings if finding.severity != "note"]
    return next(iter(alarms or [finding.name for finding in report.findings]), "")


def assert_healthy(report: Report, spec: Spec | None = None) -> None:
    """No alarm; with a spec, of which every line is there, also proven health and the right number of hosts and ranks.

    Where lines are lost or torn, health need not be proven, and the rest of a torn line may look like an error.
    """
    assert [] == [(f.name, f.message) for f in report.findings if f.severity != "note"]
    if spec is not None:
        assert 0 == report.unread_count
        assert report.verdict in ("healthy", "note")
        assert (spec.nodes, spec.nodes * spec.gpus) == (report.job["hosts"], report.job["ranks"])


def label(line: str) -> str:
    """The rank that srun put in front; empty for lines of srun itself."""
    match = re.match(r" *(\d+): ", line)
    return match[1] if match else ""


# --- what happens to a log -------------------------------------------------------------------------------------------


def noisy(lines: Sequence[str], rng: Random, prefix: str) -> list[str]:
    """Lines of the program and its libraries at any place, up to as many as the log has; the steps come from one rank."""
    ranks = sorted({label(line) for line in lines} - {""}) if prefix == "srun" else []
    places = sorted(rng.randint(0, len(lines)) for _ in range(rng.randint(1, len(lines))))
    result = list(lines)
    for number, place in enumerate(places):
        step = rng.random() < 0.4
        text = rng.choice(STEPS if step else NOISE).format(n=100 + number % 900, d=number % 6)
        front = f"{ranks[0] if step else rng.choice(ranks)}: " if ranks else ""
        result.insert(place + number, front + text)
    return result


def interleaved(lines: Sequence[str], rng: Random, reach: int) -> list[str]:
    """Lines of different ranks in another order, each moved by up to `reach` places; each rank's own order is kept."""
    last: dict[str, float] = defaultdict(float)
    keyed = []
    for index, line in enumerate(lines):
        source = label(line)
        last[source] = max(last[source], index + rng.random() * reach)
        keyed.append((last[source], index, line))
    return [line for _, _, line in sorted(keyed)]


def thinned(lines: Sequence[str], rng: Random, keep: frozenset[str] = frozenset()) -> list[str]:
    """Without up to a fifth of the lines."""
    share = rng.random() * 0.2
    return [line for line in lines if line in keep or rng.random() >= share]


def torn(lines: Sequence[str], rng: Random, keep: frozenset[str] = frozenset()) -> list[str]:
    """Some NCCL records broken over two lines behind their head, some behind another one on its line.

    Several writers to one file do that; srun puts its label on lines, whatever they hold.
    """
    result: list[str] = []
    for line in lines:
        front = re.match(r" *\d+: |", line)
        assert front is not None
        head = line.find("NCCL INFO") + 10
        fate = rng.random()
        if head < 10 or line in keep:
            result.append(line)
        elif fate < 0.02 and head < len(line):
            place = rng.randint(head, len(line) - 1)
            result += [line[:place], front[0] + line[place:]]
        elif (
            fate > 0.98
            and result
            and "NCCL INFO" in result[-1]
            and result[-1] not in keep
            and label(result[-1]) == label(line)
        ):
            result[-1] += line[front.end() :]
        else:
            result.append(line)
    return result


def in_files(lines: Sequence[str], rng: Random, bare: bool) -> Report:
    """One file for each rank and one for the launcher, in any order, with srun's label or without."""
    files: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        files[label(line)].append(re.sub(r"^ *\d+: ", "", line) if bare else line)
    with TemporaryDirectory() as folder:
        paths = []
        for number, written in files.items():
            path = Path(folder) / (f"rank.{number}.log" if number else "job.out")
            path.write_text("\n".join(written) + "\n")
            paths.append(str(path))
        rng.shuffle(paths)
        return analyze.analyze(paths)[0]


# --- and what must stay ----------------------------------------------------------------------------------------------


@KNOBS
@given(SPECS, RANDOM)
def test_noise_is_no_alarm(spec: Spec, rng: Random) -> None:
    assert_healthy(told(noisy(lines_of(spec), rng, spec.prefix)), spec)


@KNOBS
@given(FAULTY, RANDOM)
def test_noise_hides_no_fault(spec: Spec, rng: Random) -> None:
    assert spec.fault == first(told(noisy(lines_of(spec), rng, spec.prefix)))


@KNOBS
@given(SPECS, RANDOM, st.sampled_from((5, 50, 5000)))
def test_another_order_of_ranks_is_no_alarm(spec: Spec, rng: Random, reach: int) -> None:
    spec = replace(spec, prefix="srun")
    assert_healthy(told(interleaved(lines_of(spec), rng, reach)), spec)


@KNOBS
@given(FAULTY, RANDOM, st.sampled_from((5, 50, 5000)))
def test_another_order_of_ranks_hides_no_fault(spec: Spec, rng: Random, reach: int) -> None:
    spec = replace(spec, prefix="srun")
    assert spec.fault == first(told(interleaved(lines_of(spec), rng, reach)))


@KNOBS
@given(SPECS, RANDOM, st.booleans())
def test_a_file_for_each_rank_is_no_alarm(spec: Spec, rng: Random, bare: bool) -> None:
    spec = replace(spec, prefix="srun")
    assert_healthy(in_files(lines_of(spec), rng, bare), spec)


@KNOBS
@given(FAULTY, RANDOM, st.booleans())
def test_a_file_for_each_rank_hides_no_fault(spec: Spec, rng: Random, bare: bool) -> None:
    spec = replace(spec, prefix="srun")
    assert spec.fault == first(in_files(lines_of(spec), rng, bare))


@KNOBS
@given(SPECS, RANDOM)
def test_lost_lines_are_no_alarm(spec: Spec, rng: Random) -> None:
    assert_healthy(told(thinned(lines_of(spec), rng)))


@KNOBS
@given(FAULTY, RANDOM)
def test_lost_lines_hide_no_fault_that_is_still_there(spec: Spec, rng: Random) -> None:
    assert spec.fault == first(told(thinned(lines_of(spec), rng, own(spec))))


@KNOBS
@given(SPECS, RANDOM)
def test_torn_and_glued_records_are_no_alarm(spec: Spec, rng: Random) -> None:
    assert_healthy(told(torn(lines_of(spec), rng)))


@KNOBS
@given(FAULTY, RANDOM)
def test_torn_and_glued_records_hide_no_fault(spec: Spec, rng: Random) -> None:
    assert spec.fault == first(told(torn(lines_of(spec), rng, own(spec))))


@KNOBS
@given(SPECS, RANDOM)
def test_all_of_it_together_is_no_alarm(spec: Spec, rng: Random) -> None:
    spec = replace(spec, prefix="srun")
    assert_healthy(told(noisy(torn(interleaved(thinned(lines_of(spec), rng), rng, 50), rng), rng, spec.prefix)))
