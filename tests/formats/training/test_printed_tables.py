"""Tables on the terminal: Stable-Baselines3, skorch and fastai."""

import io

import pytest

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Step, ThroughputRun
from nccl_doctor.formats.training import printed_tables


def _block(fps: int, elapsed: int, total: int) -> str:
    rows = (("rollout/", ""), ("   ep_rew_mean", "19.2"), ("time/", ""), ("   fps", fps), ("   iterations", 1))
    rows += (("   time_elapsed", elapsed), ("   total_timesteps", total))
    line = "-" * 40 + "\n"
    return line + "".join(f"| {name:<19} | {value:<9} |\n" for name, value in rows) + line


SKORCH = """  epoch    train_loss    valid_acc    valid_loss     dur
-------  ------------  -----------  ------------  ------
      1        \x1b[36m0.3502\x1b[0m       \x1b[32m1.0000\x1b[0m        \x1b[35m0.2248\x1b[0m  1.2781
      2        0.1966       0.9900        0.1709  1.4206
"""
FASTAI = """epoch     train_loss  valid_loss  accuracy  time
0         0.350214    0.224811    0.901000  00:12
1         0.196612    0.170912    0.951000  01:02:13
"""


def _read(text: str) -> Facts:
    facts = Facts()
    printed_tables.read_format(io.BytesIO(text.encode()), "job.log", facts)
    return facts


def test_rates_are_those_between_two_rows() -> None:
    """`fps` is an average since the start; where less than a second passed it is all there is."""
    facts = _read(_block(900, 0, 256) + _block(800, 1, 1056) + _block(420, 5, 2256) + _block(430, 5, 2512))

    assert [(256, 900.0), (1056, 800.0), (2256, 300.0), (2512, 430.0)] == [
        (step.step, step.rate) for step in facts.rows(Step)
    ]
    assert [("stable-baselines3", "samples/s")] == [(run.tool, run.unit) for run in facts.rows(ThroughputRun)]


@pytest.mark.parametrize(("text", "epochs"), [(SKORCH, [(1, 1.2781), (2, 1.4206)]), (FASTAI, [(0, 12.0), (1, 3733.0)])])
def test_epochs(text: str, epochs: list[tuple[int, float]]) -> None:
    facts = _read("hello\n" + text + "bye\n")
    assert epochs == [(step.step, step.seconds) for step in facts.rows(Step)]
    assert ["epochs/s"] == [run.unit for run in facts.rows(ThroughputRun)]


def test_each_host_has_its_table() -> None:
    text = "".join(f"node{node:02}: {line}\n" for node in (1, 2) for line in _block(900, 0, 256).splitlines())
    assert {"node01", "node02"} == {run.host for run in _read(text).rows(ThroughputRun)}


@pytest.mark.parametrize(
    "text", ["", "|    fps  | x |\n", "|    total_timesteps | 5 |\n", "  epoch  a  dur\n  x 1 2\n", SKORCH[:90]]
)
def test_nothing_of_broken_tables(text: str) -> None:
    assert [] == _read(text).rows(Step)
