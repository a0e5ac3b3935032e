"""What gpustat prints as text: with and without fans, power and processes, once or in a loop."""

import io
from pathlib import Path

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import GpuUse
from nccl_doctor.formats.gpu import samples
from nccl_doctor.formats.registry import recognise


def table(second: int, states: list[str], host: str = "gpu07") -> str:
    rows = "".join(
        f"[{gpu}] NVIDIA A100-SXM4-80GB | {state} | 70211 / 81920 MB | ada(70000M)\n"
        for gpu, state in enumerate(states)
    )
    return f"{host}                     Wed Mar  4 08:00:{second:02d} 2026  570.86.15\n{rows}"


def read(text: str) -> list[GpuUse]:
    facts = Facts()
    samples.read_format(io.BytesIO(text.encode()), "gpustat.txt", facts)
    return facts.rows(GpuUse)


@pytest.mark.parametrize(
    ("state", "power"),
    [
        ("55°C,  97 %", None),
        ("55'C,  97 %", None),
        ("55°C,  30 %,  97 %,  310 / 400 W", 310.0),  # the speed of the fan comes first
        ("55'C,  97 %,  E:  0 %  D:  0 %,  310 / 400 W", 310.0),
    ],
)
def test_columns(state: str, power: float | None) -> None:
    text = table(0, [state] * 2)
    known = recognise(text.encode())
    assert known is not None
    assert "gpu-samples" == known.kind
    rows = read(text)
    assert [("gpu07", 0, "NVIDIA A100-SXM4-80GB"), ("gpu07", 1, "NVIDIA A100-SXM4-80GB")] == [
        (row.host, row.gpu, row.model) for row in rows
    ]
    assert {(97.0, 55.0, power, 70211.0)} == {
        (row.util_mean, row.temperature_max, row.power_median, row.memory_max) for row in rows
    }


def test_a_loop_is_samples_over_time() -> None:
    rows = read("".join(table(second, ["55°C, 97 %"] * 4) for second in range(20)))
    assert {(20, 19.0)} == {(row.samples, row.seconds) for row in rows}


def test_the_idle_gpu_is_named(tmp_path: Path) -> None:
    states = ["60°C, 97 %"] * 8
    states[4] = "41°C, 0 %"
    (tmp_path / "gpustat.log").write_text("".join(table(second, states) for second in range(40)))
    report, _, _ = analyze.analyze([str(tmp_path / "gpustat.log")])
    assert "GPU 4" in report.findings[0].message


@pytest.mark.parametrize("text", ["", table(0, ["55°C, 97 %"])[:40], table(0, ["?"]), table(0, ["9" * 50])])
def test_cut_and_odd_text_says_nothing_false(text: str) -> None:
    assert [] == [row for row in read(text) if row.util_mean is not None and row.util_mean > 100]
