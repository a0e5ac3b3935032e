"""One log behind any launcher or collector: the same findings on the same hosts and ranks."""

from pathlib import Path
from typing import Any

import pytest
from helpers.log_prefixes import FAULTS, FORMS, Said, analysed, simulated

LOGGERS = {
    "vllm": "INFO 05-07 12:00:00 [parallel_state.py:903] ",
    "vllm-engine": "(EngineCore_DP0 pid=77) ",
    "deepspeed": "[2026-05-07 12:00:00,123] [INFO] [launch.py:133:main] ",
    "transformers": "[INFO|trainer.py:123] 2026-05-07 12:00:00,123 >> ",
    "loguru": "2026-05-07 12:00:00.123 | INFO     | mod.sub:func:12 - ",
    "sglang": "[2026-05-07 12:00:00 TP3] ",
    "tensorrt-llm": "[TensorRT-LLM][INFO] ",
    "nemo": "[NeMo I 2026-05-07 12:00:00 nemo_logging:349] ",
    "python": "INFO:root:",
    "glog": "I0507 12:00:00.123456  4242 worker.cc:12] ",
    "spark": "26/05/07 12:00:00 INFO Worker: ",
    "actions": "train\tRun\t2026-05-07T12:00:00.1234567Z ",
    "milabench": "resnet.D0.nolog [stderr] ",
}


@pytest.fixture(scope="module", params=FAULTS, ids=lambda fault: fault or "healthy")
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Said], tuple[Any, ...]]:
    lines = simulated(request.param)
    bare = "".join(f"{said.text}\n" for said in lines)
    return lines, analysed(bare, tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("form", FORMS)
def test_a_prefix_changes_no_finding(job: tuple[list[Said], tuple[Any, ...]], form: str, tmp_path: Path) -> None:
    lines, expected = job
    assert expected == analysed("".join(f"{FORMS[form](said)}\n" for said in lines), tmp_path)


@pytest.mark.parametrize("logger", LOGGERS)
def test_a_logger_changes_no_first_finding(
    job: tuple[list[Said], tuple[Any, ...]], logger: str, tmp_path: Path
) -> None:
    """What loggers of frameworks write in front of every line says nothing, so a finding may know less of where it was."""
    lines, (*expected, findings) = job
    *found, others = analysed("".join(f"{LOGGERS[logger]}{said.text}\n" for said in lines), tmp_path)
    assert [*expected[:3], *(finding[:3] for finding in findings[:1])] == [
        *found[:3],
        *(other[:3] for other in others[:1]),
    ]
