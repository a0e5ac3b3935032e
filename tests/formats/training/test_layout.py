"""The parallel layout that programs print at their start, and steps that did not count."""

import io

import pytest

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LossScale, Measure, RunSetting
from nccl_doctor.formats.training.steps import step_lines

MEGATRON = """\
using world size: 64, data-parallel size: 4, context-parallel size: 2, hierarchical context-parallel sizes: None, \
tensor-model-parallel size: 4, pipeline-model-parallel size: 2
  encoder_tensor_model_parallel_size .............. 0
  expert_model_parallel_size ...................... 4
  expert_tensor_parallel_size ..................... 1
  micro_batch_size ................................ 2
  global_batch_size ............................... 256
  seq_length ...................................... 8192
  virtual_pipeline_model_parallel_size ............ None
"""
STEP = " iteration {0}/ 100 | elapsed time per iteration (ms): 200.0 | global batch size: 256 | lm loss: 2.1E+00 |{1}\n"
DEEPSPEED = "[2026-05-07 12:00:20,101] [INFO] [config.py:1001:print]   "
SAMPLES = "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=157.1, CurrSamplesPerSec=157.3, MemAllocated=1.2GB\n"


def read(text: str) -> Facts:
    facts = Facts()
    step_lines.read_format(io.BytesIO(text.encode()), "train.log", facts)
    return facts


def layout(text: str) -> dict[str, str]:
    return {row.name: row.value for row in read(text).rows(RunSetting)}


def megatron(end: str = "") -> str:
    return "".join(STEP.format(number, end) for number in range(1, 9))


def test_megatron() -> None:
    expected = {
        "tensor parallel": "4", "pipeline parallel": "2", "data parallel": "4", "context parallel": "2",
        "expert parallel": "4", "expert tensor parallel": "1", "micro batch": "2", "global batch": "256", "sequence length": "8192",
    }  # fmt: skip
    assert expected == layout(MEGATRON + megatron())


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "[titan] 2026-05-07 12:00:00,123 - root - INFO - Building device mesh with parallelism: pp=2, dp_replicate=1,"
            " dp_shard=8, cp=1, tp=4, ep=1\n[titan] Trainer is initialized with local batch size 8, global batch size 64,"
            " gradient accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)",
            {"pipeline parallel": "2", "data parallel, replicas": "1", "data parallel, shards": "8", "context parallel": "1",
             "tensor parallel": "4", "expert parallel": "1", "micro batch": "8", "global batch": "64",
             "gradient accumulation": "1", "sequence length": "8192"},
        ),
        (
            "[NeMo I 2024-11-14 19:42:15 megatron_init:439] Rank 3 has tensor model parallel group: [2, 3]\n"
            "[NeMo I 2024-11-14 19:42:15 megatron_init:400] Rank 3 has data parallel group: [1, 3, 5, 7]\n"
            "[NeMo I 2024-11-14 19:42:15 megatron_init:443] All tensor model parallel group ranks: [[0, 1], [2, 3]]",
            {"tensor parallel": "2", "data parallel": "4"},
        ),
        (
            f"{DEEPSPEED}train_batch_size ............. 64\n{DEEPSPEED}train_micro_batch_size_per_gpu  4\n"
            f"{DEEPSPEED}gradient_accumulation_steps .. 2\n{DEEPSPEED}zero_optimization_stage ...... 3",
            {"global batch": "64", "micro batch": "4", "gradient accumulation": "2", "ZeRO stage": "3"},
        ),
        (
            "Config param ici_tensor_parallelism: 4\nConfig param per_device_batch_size: 0.5\nConfig param max_target_length: 2048",
            {"tensor parallel": "4", "micro batch": "0.5", "sequence length": "2048"},
        ),
        (
            "  Instantaneous batch size per device = 4\n  Gradient Accumulation steps = 8\n"
            "  Total train batch size (w. parallel, distributed & accumulation) = 1,024",
            {"micro batch": "4", "gradient accumulation": "8", "global batch": "1024"},
        ),
        ("nothing about it; parallel sizes: [a, b]\nseq_length ... 99999999999999999999", {}),
    ],
    ids=["TorchTitan", "NeMo", "DeepSpeed", "MaxText", "Hugging Face", "none"],
)  # fmt: skip
def test_other_programs(lines: str, expected: dict[str, str]) -> None:
    assert expected == layout(f"{lines}\n{megatron()}")


def test_each_launch_of_a_log_has_its_own() -> None:
    second = MEGATRON.replace("world size: 64", "world size: 32").replace(
        "data-parallel size: 4", "data-parallel size: 2"
    )
    facts = read(MEGATRON + megatron() + second + megatron())
    assert ["4", "2"] == [row.value for row in facts.rows(RunSetting) if row.name == "data parallel"]


def test_skipped_steps_are_counted() -> None:
    """Megatron counts them in each line; DeepSpeed since the first start of the run, before which they do not count."""
    lost = megatron(" number of skipped iterations:   2 | number of nan iterations:   0 |")
    assert [16] == [row.skipped for row in read(lost).rows(LossScale)]
    log = "[2026-05-07 12:00:20,101] [INFO] [logging.py:96:log_dist] [Rank 0] step={0}, skipped={1}, lr=[0.1], mom=[]\n"
    counts = [7, 7, 9, 10]
    facts = read("".join(log.format(n, count) + SAMPLES.format(n) for n, count in enumerate(counts, 1)))
    assert [3] == [row.skipped for row in facts.rows(LossScale)]
    derive_all(facts)
    assert [3.0] == [row.value for row in facts.rows(Measure) if row.name == "skipped_steps"]
    assert [] == read("".join(log.format(n, 7) + SAMPLES.format(n) for n in range(1, 9))).rows(LossScale)
