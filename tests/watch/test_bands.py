"""When the rules have to run again."""

import itertools
from typing import Any

import pytest

from nccl_doctor.watch.bands import Bands
from nccl_doctor.watch.live_diagnosis import LATEST, LiveDiagnosis
from nccl_doctor.watch.sources.demo import STOPS, Demo
from nccl_doctor.watch.state import State


def gpu(**changes: Any) -> dict[str, Any]:
    known = {"index": 0, "utilization.gpu": 90, "power.draw": 600.0, "enforced.power.limit": 700.0, "clock_reasons": 0}
    return {"kind": "gpu", "gpus": [{**known, **changes}]}


def port(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "port",
        "ports": [{"name": "mlx5_0/1", "state": "ACTIVE", "rx": 5, "errors": {"symbol_error": 0}, **changes}],
    }


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (gpu(), gpu(), False),
        (gpu(), gpu(**{"utilization.gpu": 60}), False),  # one sample is no change
        (gpu(), gpu(clock_reasons=0x40), True),
        (gpu(), gpu(clock_reasons=0x4), False),  # the power cap comes and goes
        (gpu(), gpu(error="GPU is lost"), True),
        (gpu(), gpu(processes=[{"pid": 7}]), True),
        (port(), port(rx=10**9), False),
        (port(), port(state="DOWN"), True),
        (port(), port(errors={"symbol_error": 1}), True),
        ({"kind": "host", "host": {"cpu": "x"}}, {"kind": "host", "host": None}, False),
    ],
)
def test_states_count_at_once_and_values_do_not(before: dict[str, Any], after: dict[str, Any], changed: bool) -> None:
    bands = Bands()
    assert bands.add(before)
    assert changed == bands.add(after)


def test_a_value_that_stays_elsewhere_changes_its_band_once() -> None:
    bands = Bands()
    bands.add(gpu())
    changes = [bands.add(gpu(**{"utilization.gpu": 0})) for _ in range(100)]
    assert 1 <= sum(changes) <= 5
    assert not any(changes[60:])
    wobbles = [bands.add(gpu(**{"utilization.gpu": 15 + 10 * (n % 2)})) for n in range(100)]
    assert sum(wobbles) <= 1


def test_rules_run_on_change_and_else_at_least_once_a_minute() -> None:
    demo, state, diagnosis = Demo(), State(), LiveDiagnosis()
    ran = []

    def second() -> None:
        for record in demo.step():
            state.add_record(record)
            diagnosis.add_record(record)
        if diagnosis.due(state):
            ran.append(demo.second)
            diagnosis.ran_at = state.now  # as a run does, without its cost

    for _ in range(55):
        second()
    assert len(ran) <= 8
    for _ in range(STOPS + 10 - 55):
        second()
    assert any(STOPS < at <= STOPS + 10 for at in ran)
    assert max(b - a for a, b in itertools.pairwise(ran)) <= LATEST
