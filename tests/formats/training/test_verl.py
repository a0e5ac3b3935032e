"""Steps of verl, whose console logger prints all numbers of a step in one line (`verl/utils/logger/aggregate_logger.py`)."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training.steps import step_lines

_STEP = "(TaskRunner pid=712) step:{} - actor/pg_loss:-0.012 - timing_s/gen:20.5 - timing_s/step:{} - timing_per_token_ms/gen:0.9"


def _read(*lines: str) -> Facts:
    facts = Facts()
    step_lines.read_format(io.BytesIO("\n".join([*lines, ""]).encode()), "job.log", facts)
    return facts


@pytest.mark.parametrize(("number", "of"), [("{:.3f}", 31.5), ("np.float64({:.6f})", 31.5)])
def test_seconds_of_a_step(number: str, of: float) -> None:
    facts = _read(*(_STEP.format(step, number.format(of)) for step in range(1, 4)))

    (run,) = facts.rows(ThroughputRun)
    assert ("verl", 3) == (run.tool, run.points)
    assert [of] * 3 == [step.seconds for step in facts.rows(Step)]


def test_tokens_a_second_and_gpu_of_newer_versions() -> None:
    facts = _read(
        *(_STEP.format(step, 31.5) + " - perf/total_num_tokens:81920 - perf/throughput:650.25" for step in (1, 2))
    )

    (run,) = facts.rows(ThroughputRun)
    assert ("tokens/s", "gpu") == (run.unit, run.scope)
    assert [650.25, 650.25] == [step.rate for step in facts.rows(Step)]


def test_a_validation_and_a_cut_line_are_no_steps() -> None:
    facts = _read("step:0 - val/test_score/gsm8k:0.42", _STEP.format(1, 31.5), _STEP.format(2, 31.5)[:60])

    assert [1] == [run.points for run in facts.rows(ThroughputRun)]
