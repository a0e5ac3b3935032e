"""Files of DVCLive and Sacred: each metric by its name, steps by their times, and broken input."""

import io
import json
from typing import Any

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import ProcessEnd, Scalar, Step
from nccl_doctor.formats import registry

RATES = "step\tsamples_per_second\n" + "".join(f"{step}\t{3200.0 if step != 7 else 800.0}\n" for step in range(12))
LOSSES = "timestamp\tstep\tloss\n" + "".join(
    f"{1763625600000 + 500 * step}\t{step}\t{5 - step / 10}\n" for step in range(12)
)
SACRED = json.dumps(
    {
        "train.loss": {"steps": [0, 1, 2], "timestamps": ["2026-11-20T08:00:00"] * 3, "values": [5.0, 4.9, 4.8]},
        "train.step_time": {"steps": [0, 1, 2], "timestamps": [], "values": [0.5, 0.5, 1.5]},
    },
    indent=2,
)
MEGATRON = json.dumps(
    {
        "lm loss": {
            "start_step": 1,
            "end_step": 15,
            "step_interval": 5,
            "values": {"1": 10.9, "5": 10.5, "10": 9.9, "15": 9.1},
        },
        "iteration-time": {
            "start_step": 1,
            "end_step": 15,
            "step_interval": 5,
            "values": {"1": 4.5, "5": 0.25, "10": 0.25, "15": 0.5},
        },
    },
    indent=4,
)
OLDER = json.dumps(
    {"iteration-time": {"start_step": 0, "end_step": 20, "step_interval": 10, "values": [4.5, 0.25, 0.5]}}
)
RUN = json.dumps(
    {"artifacts": [], "experiment": {"name": "ddp"}, "heartbeat": "", "host": {"hostname": "gpu-3"}, "status": "FAILED"}
)


def _read(text: str, name: str) -> tuple[Facts, str | None]:
    data = text.encode()
    known = registry.recognise(data)
    assert known is not None
    assert known.kind == "metric-files"
    facts = Facts()
    return facts, registry.read_file(known, io.BytesIO(data), name, facts).note


def _steps(facts: Facts) -> list[tuple[int | None, float | None, float | None]]:
    return [(step.step, step.seconds, step.rate) for step in facts.rows(Step)]


@pytest.mark.parametrize(
    ("text", "name", "steps"),
    [
        (
            RATES,
            "dvclive/plots/metrics/perf/samples_per_second.tsv",
            [(step, None, 3200.0 if step != 7 else 800.0) for step in range(12)],
        ),
        (LOSSES, "loss.tsv", [(step, 0.5, 2.0) for step in range(1, 12)]),
        (MEGATRON, "golden_values.json", [(1, 4.5, 1 / 4.5), (5, 0.25, 4.0), (10, 0.25, 4.0), (15, 0.5, 2.0)]),
        (OLDER, "golden_values.json", [(0, 4.5, 1 / 4.5), (10, 0.25, 4.0), (20, 0.5, 2.0)]),
        (SACRED, "metrics.json", [(0, 0.5, 2.0), (1, 0.5, 2.0), (2, 1.5, pytest.approx(2 / 3))]),
    ],
    ids=["rates", "losses with times", "megatron", "megatron before 2025", "sacred"],
)
def test_steps(text: str, name: str, steps: list[Any]) -> None:
    facts, note = _read(text, name)
    assert steps == _steps(facts)
    assert note is None


def test_every_metric_is_a_scalar() -> None:
    facts, _ = _read("step\taccuracy\n0\t0.1\n1\t0.2\n", "dvclive/plots/metrics/eval/accuracy.tsv")
    assert [] == _steps(facts)
    assert [("eval/accuracy", 0.2)] == [(scalar.name, scalar.last) for scalar in facts.rows(Scalar)]


@pytest.mark.parametrize(("status", "ends"), [("FAILED", 1), ("INTERRUPTED", 1), ("COMPLETED", 0), ("RUNNING", 0)])
def test_how_a_run_of_sacred_ended(status: str, ends: int) -> None:
    facts, _ = _read(RUN.replace("FAILED", status), "run.json")
    assert [("gpu-3", "sacred")] * ends == [(end.host, end.reporter) for end in facts.rows(ProcessEnd)]


def test_cut_files() -> None:
    facts, note = _read(RATES[:-9] + "\nx\n", "rates.tsv")
    assert 11 == len(_steps(facts))
    assert note is not None
    assert "is cut or damaged" in note
    assert "is no complete JSON" in str(_read(SACRED[:-20], "metrics.json")[1])


@pytest.mark.parametrize("value", ["null", '"x"', "1e999", "[]", "{}"])
def test_hostile_values_give_nothing(value: str) -> None:
    facts, _ = _read(
        f'{{"loss": {{"steps": [{value}], "timestamps": [{value}], "values": [{value}]}}, "x": {value}}}',
        "metrics.json",
    )
    assert [] == _steps(facts)


@pytest.mark.parametrize("value", ["1e999", "[]", '{"x": 1}', '{"5": {}}', "null", '{"' + "9" * 400 + '": 1}'])
@pytest.mark.parametrize("start", ["5", "9" * 400])
def test_hostile_values_of_megatron_give_nothing(value: str, start: str) -> None:
    text = f'{{"iteration-time": {{"start_step": 5, "end_step": 5, "step_interval": {start}, "values": {value}}}}}'
    assert [] == _steps(_read(text, "golden_values.json")[0])
