"""Scaling of genuine training logs agrees with a calculation by hand."""

import re

import pandas
import pytest
from helpers.places import SHARED
from helpers.step_series import efficiencies, raw, scaling

from nccl_doctor.facts.tables import Scaling

BIGSCIENCE = SHARED / "real" / "bigscience-workshop__bigscience"
DLPERF = SHARED / "real" / "Oneflow-Inc__DLPerf"


def test_scaling_of_genuine_megatron_logs_agrees_with_a_hand_calculation() -> None:
    paths = sorted(BIGSCIENCE.glob("meg_gpt2_base_n*.out"))
    done: dict[int, float] = {}
    rates: dict[int, float] = {}
    for path in paths:
        text = path.read_text("utf-8", "replace")
        frame = raw(path, r"elapsed time per iteration \(ms\): ([\d.]+) .*?global batch size: +(\d+)")[1:]
        world, layers, hidden, length = (
            int(re.search(pattern, text)[1])  # type: ignore[index]
            for pattern in (
                r"using world size: (\d+)",
                r" num_layers \.+ (\d+)",
                r" hidden_size \.+ (\d+)",
                r" seq_length \.+ (\d+)",
            )
        )
        vocabulary = int(re.search(r"new size: (\d+)", text)[1])  # type: ignore[index]
        flops = 96 * length * layers * hidden**2 * (1 + length / (6 * hidden) + vocabulary / (16 * layers * hidden))
        rates[world] = (frame[1] / frame[0] * 1000).median()
        done[world] = rates[world] * flops / world
    wanted = {world: value / done[16] for world, value in done.items()}
    facts = scaling(paths)
    assert [16, 32, 64, 128, 256] == sorted(wanted)
    assert wanted == pytest.approx(efficiencies(facts), rel=1e-9)
    assert rates == pytest.approx({row.gpus: row.rate for row in facts.rows(Scaling)}, rel=1e-9)
    assert {"work"} == {row.basis for row in facts.rows(Scaling)}
    assert {"world-size"} == {row.gpus_source for row in facts.rows(Scaling)}


def test_scaling_of_genuine_dlperf_logs_agrees_with_a_hand_calculation() -> None:
    rates = {}
    for name, gpus in (("1n1g", 1), ("1n8g", 8), ("2n8g", 16), ("4n8g", 32)):
        text = (DLPERF / f"rn50_{name}_b128_1.log").read_text("utf-8", "replace")
        frame = (
            pandas.DataFrame(re.findall(r"batch_index: (\d+), timestamp: ([\d.]+)", text))
            .apply(pandas.to_numeric)
            .diff()
        )
        rates[gpus] = 128 * gpus / (frame[1] / frame[0])[2:].median()
    wanted = {gpus: rate / gpus / rates[1] for gpus, rate in rates.items()}
    facts = scaling(DLPERF / f"rn50_{name}_b128_1.log" for name in ("1n1g", "1n8g", "2n8g", "4n8g"))
    assert wanted == pytest.approx(efficiencies(facts), rel=2e-3)  # the log rounds its own rates
    assert 0.95 < efficiencies(facts)[8] < 0.97
    assert 0.0 < next(row.serial for row in facts.rows(Scaling) if row.serial is not None) < 0.01
