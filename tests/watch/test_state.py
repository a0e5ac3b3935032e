"""Rates, silence, the hang and hostile records: what the screen knows."""

import gc
import json
from itertools import pairwise
from typing import Any

import pytest
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.common.printable import is_printable
from nccl_doctor.common.timestamps import iso_seconds
from nccl_doctor.watch.live_diagnosis import LiveDiagnosis
from nccl_doctor.watch.metrics import render_metrics
from nccl_doctor.watch.snapshot import render_json
from nccl_doctor.watch.snapshot import render_text as page
from nccl_doctor.watch.sources.demo import STOPS, Demo
from nccl_doctor.watch.state import Node, State, record_time, spinning, throttle
from nccl_doctor.watch.view import detail
from nccl_doctor.watch.view.cells import GAP, Look, choose
from nccl_doctor.watch.view.chart import binned
from nccl_doctor.watch.view.findings import FINDINGS, expand, fold
from nccl_doctor.watch.view.gpus import Peers, gpu_columns, odd_first, peers
from nccl_doctor.watch.view.headline import headline
from nccl_doctor.watch.view.nodes import node_columns, node_state, verdicts, worst_first
from nccl_doctor.watch.view.overview import alert_lines, alerts, port_lines
from nccl_doctor.watch.view.ports import PORTS
from nccl_doctor.watch.view.processes import PROCESSES, cpu_set, in_tree
from nccl_doctor.watch.view.wrapping import wrap_text


def stamp(second: float) -> str:
    return f"2026-01-01T00:{int(second) // 60:02}:{second % 60:06.3f}+00:00"


def port(second: float, rx: object, tx: object = 0, **more: object) -> dict[str, Any]:
    one = {
        "name": "mlx5_0/1",
        "kind": "ib",
        "state": "ACTIVE",
        "rx": rx,
        "tx": tx,
        "speed": 400.0,
        "errors": {},
        **more,
    }
    return {"kind": "port", "hostname": "a", "query_time": stamp(second), "ports": [one]}


def test_rates_are_deltas_over_time() -> None:
    state = State()
    for second, count in ((0, 0), (1, 125_000_000), (3, 625_000_000)):
        state.add_record(port(second, count))
    found = state.nodes["a"].ports["mlx5_0/1"]
    assert [None, 1.0, 2.0] == list(found.series["rx"].values)


@pytest.mark.parametrize(
    ("then", "now"), [(1 << 32, 5), ((1 << 64) - 1, 100), (7, None), (None, 7), (10**400, 0), (0, 10**400)]
)
def test_a_counter_that_wraps_resets_or_fails_gives_no_rate(then: object, now: object) -> None:
    state = State()
    state.add_record(port(0, then))
    state.add_record(port(1, now))
    assert state.nodes["a"].ports["mlx5_0/1"].last("rx") is None
    state.add_record(port(2, 1000))
    state.add_record(port(3, 2000))
    assert 8e-6 == pytest.approx(state.nodes["a"].ports["mlx5_0/1"].last("rx"))


def test_a_clock_that_goes_back_gives_no_rate() -> None:
    state = State()
    state.add_record(port(5, 100))
    state.add_record(port(4, 200))
    assert state.nodes["a"].ports["mlx5_0/1"].last("rx") is None


def test_errors_count_from_the_start_of_the_watch() -> None:
    state = State()
    for second, count in ((0, 5), (1, 5), (2, 9), (3, 0), (4, 1)):
        state.add_record(port(second, 0, errors={"symbol_error": count}))
    assert {"symbol_error": 5} == state.nodes["a"].ports["mlx5_0/1"].errors


def record(kind: str, second: float, **more: object) -> dict[str, Any]:
    return {"kind": kind, "hostname": "a", "query_time": stamp(second), **more}


def test_a_kind_that_blocks_is_said_and_the_others_go_on() -> None:
    state = State()
    for kind in ("gpu", "port", "host", "process"):
        state.add_record(record(kind, 0), 100.0)
    for second in range(1, 13):
        for kind in ("port", "host", "process"):
            state.add_record(record(kind, second), 100.0 + second)
    assert (2, "gpu: no answer for 12 s") == node_state(state.nodes["a"], 112.0)
    state.add_record(record("gpu", 13), 113.0)
    assert (0, "ok") == node_state(state.nodes["a"], 113.0)


def test_a_kind_that_never_answered_is_said() -> None:
    state = State()
    for second in range(8):
        for kind in ("port", "host", "process"):
            state.add_record(record(kind, second), 100.0 + second)
    assert (2, "gpu: no answer for 7 s") == node_state(state.nodes["a"], 107.0)


def test_a_node_that_never_answered_is_said() -> None:
    state = State()
    state.expect("b", 100.0)
    assert (0, "ok") == node_state(state.nodes["b"], 103.0)
    assert (3, "no answer for 20 s") == node_state(state.nodes["b"], 120.0)


def test_a_wrong_clock_of_a_node_is_no_silence() -> None:
    state = State()
    for kind in ("gpu", "port", "host", "process"):
        state.add_record(record(kind, 0), 5_000_000_000.0)
    assert (0, "ok") == node_state(state.nodes["a"], 5_000_000_001.0)


def test_long_intervals_are_no_silence() -> None:
    state = State()
    for second in (0, 10, 20):
        for kind in ("gpu", "port", "host", "process"):
            state.add_record(record(kind, second, host={}), 100.0 + second)
    assert (0, "ok") == node_state(state.nodes["a"], 129.0)
    assert 3 == node_state(state.nodes["a"], 136.0)[0]


def test_nodes_stand_worst_first() -> None:
    state = State()
    for name, util in (("a", 90), ("b", 10), ("c", 95)):
        state.add_record({**record("gpu", 0, gpus=[{"index": 0, "utilization.gpu": util}]), "hostname": name}, 100.0)
        for kind in ("port", "host", "process"):
            state.add_record({**record(kind, 0), "hostname": name}, 100.0)
    state.add_record({"kind": "gone", "hostname": "c", "error": "lost"})
    assert ["c", "b", "a"] == [node.name for node in worst_first(state, 101.0)]
    state.add_record({**record("gpu", 1, error="dlopen failed", gpus=[]), "hostname": "a"}, 101.0)
    assert ["c", "a", "b"] == [node.name for node in worst_first(state, 101.0)]


def gpu(index: int, util: float, power: float, **more: object) -> dict[str, Any]:
    return {
        "index": index, "utilization.gpu": util, "power.draw": power, "enforced.power.limit": 700.0, "pcie_rx": 0.0,
        "nvlink_rx": 0.0, **more,
    }  # fmt: skip


def watched(
    gpus: list[dict[str, Any]], seconds: float = 61, step: float = 1, quiet: float | None = None, rate: int = 0
) -> Node:
    state = State()
    second = 0.0
    while second < seconds:
        state.add_record(record("gpu", second, gpus=gpus))
        state.add_record(port(second, int(second * rate)))
        state.add_record(record("process", second, processes=[{"rank": 0, "pid": 1, "quiet": quiet}]))
        second += step
    return state.nodes["a"]


SPINS = [gpu(0, 100, 120), gpu(1, 99, 130)]


def test_a_hang_is_seen() -> None:
    assert (2, pytest.approx(130 / 700)) == spinning(watched(SPINS))
    assert (1, pytest.approx(120 / 700)) == spinning(watched([gpu(0, 100, 120), gpu(1, 0, 70)]))


def test_a_hang_is_seen_at_any_interval() -> None:
    for step in (0.5, 2, 5, 10):
        assert spinning(watched(SPINS, 75, step)) is not None


@pytest.mark.parametrize(
    ("why", "node"),
    [
        ("too short", watched(SPINS, 50)),
        ("one works", watched([gpu(0, 100, 120), gpu(1, 100, 500)])),
        ("one is half busy", watched([gpu(0, 100, 120), gpu(1, 40, 120)])),
        ("NVLink moves", watched([gpu(0, 100, 120, nvlink_rx=1e9)])),
        ("PCIe moves", watched([gpu(0, 100, 120, pcie_rx=1e8)])),
        ("the network moves", watched(SPINS, rate=10**9)),
        ("a rank writes its log", watched(SPINS, quiet=3.0)),
        ("all idle", watched([gpu(0, 0, 70)])),
        ("no limit known", watched([{**gpu(0, 100, 120), "enforced.power.limit": None}])),
        ("no GPU", watched([])),
        ("a hole", watched(SPINS, 400, 100)),
    ],
)  # fmt: skip
def test_work_is_no_hang(why: str, node: Node) -> None:
    assert spinning(node) is None, why


def test_silent_logs_do_not_hide_a_hang() -> None:
    assert spinning(watched(SPINS, quiet=300.0)) is not None


def test_the_gravest_reason_for_low_clocks() -> None:
    assert ["HW thermal", "power cap", "", "", "idle"] == [throttle(x) for x in (0x44, 0x4, 0, None, 1)]


def test_sets_of_processors() -> None:
    assert {0, 1, 2, 8} == cpu_set("0-2,8")
    assert not cpu_set(None)
    assert not cpu_set("a-b")
    assert not cpu_set("0-999999999")


def test_history_of_findings() -> None:
    state, diagnosis, invented = State(), LiveDiagnosis(), Demo()
    seen = []
    for second in range(1, STOPS + 90):
        for one in invented.step():
            state.add_record(one)
            diagnosis.add_record(one)
        if second % 20 == 0:
            diagnosis.diagnose(state)
            seen.append({e.finding.name for e in diagnosis.episodes if not e.over})
    assert "gpu-thermal-throttle" not in seen[2]
    assert "gpu-thermal-throttle" in seen[5]
    assert "spinning-in-collective" not in seen[6]
    assert "spinning-in-collective" in seen[-1]
    assert all(episode.first <= episode.last for episode in diagnosis.episodes)


def test_two_gpus_with_the_same_fault_are_two_findings() -> None:
    state, diagnosis, invented = State(), LiveDiagnosis(), Demo()
    for _ in range(110):
        for one in invented.step():
            if one["kind"] == "gpu" and one["hostname"] == "gpu-b":
                one["gpus"][5]["clock_reasons"] = 0x40 if invented.second > 60 else 0
            state.add_record(one)
            diagnosis.add_record(one)
    diagnosis.diagnose(state)
    diagnosis.diagnose(state)
    hot = [e for e in diagnosis.episodes if e.finding.name in ("gpu-thermal-throttle", "gpu-hw-slowdown")]
    assert 2 == len({e.finding.values.get("gpu") for e in hot})
    assert len(hot) == len({(e.finding.rule, e.finding.values.get("gpu")) for e in hot})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**320) | st.just("0-3"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "index", "utilization.gpu", "power.draw", "enforced.power.limit", "memory.used", "memory.total", "clock_reasons",
    "processes", "name", "kind", "state", "rx", "tx", "speed", "errors", "cpu", "memory_used", "memory_total", "pid", "rank",
    "user", "ppid", "age", "threads", "cpus", "job", "command", "quiet", "temperature.gpu", "error",
)  # fmt: skip
things = st.lists(st.dictionaries(st.sampled_from(KEYS), values, max_size=6) | values, max_size=3) | values
records = st.fixed_dictionaries(
    {"kind": st.sampled_from(["gpu", "port", "host", "process", "gone", "other"])},
    optional={
        "hostname": values, "query_time": values | st.just(stamp(1)) | st.just(stamp(2)), "gpus": things, "ports": things,
        "processes": things, "host": st.dictionaries(st.sampled_from(KEYS), values, max_size=6) | values, "error": values,
    },
)  # fmt: skip


@examples(150)
@given(st.lists(records | values, max_size=6))
def test_hostile_records_do_no_harm(found: list[Any]) -> None:
    state, diagnosis, look = State(), LiveDiagnosis(), Look(ascii=True)
    for one in found:
        state.add_record(one)
        if isinstance(one, dict):
            diagnosis.add_record(one)
    diagnosis.diagnose(state)
    now = state.now
    assert page(state, [], now, 80, True).isascii()
    json.loads(render_json(state, [], now), parse_constant=pytest.fail)
    render_metrics(state, [], now)
    groups = fold(diagnosis.episodes)
    port_lines(state, look, 80, 4, now)
    headline(state, groups, look, 80, now, "")
    alert_lines(alerts(state, groups, now), look, 80, 4)
    rows = [(node, one) for node in state.nodes.values() for one in node.processes]
    assert len(rows) == len(in_tree(rows))
    for tab in ("overview", "GPUs", "network", "nodes"):
        one = next(iter(state.nodes.values()), None) if tab == "nodes" else next(state.gpus(), None)
        assert 20 == len(detail.draw(tab, one, state, look, now, 100, 20))
    for columns, lines in (
        (gpu_columns(peers(state, now), now), odd_first(state, now)),
        (PORTS, [(node, port) for node in state.nodes.values() for port in node.ports.values()]),
        (PROCESSES, rows),
        (node_columns(now, verdicts(groups)), worst_first(state, now)),
    ):  # fmt: skip
        for column in columns:
            for line in lines:
                column.cell(line, look)


@given(
    st.integers(1, 300),
    st.sampled_from([gpu_columns(Peers(None, None), 0.0), PORTS, PROCESSES, FINDINGS, node_columns(0.0, {})]),
)
def test_no_line_is_wider_than_the_screen(width: int, columns: Any) -> None:
    fitted = choose(columns, width)
    assert sum(wide for _, wide in fitted) + GAP * (len(fitted) - 1) <= width


@given(st.text(), st.integers(1, 40))
def test_text_is_cut_to_the_screen(text: str, width: int) -> None:
    from rich.cells import cell_len

    assert width == cell_len(Look().fit(text, width))
    assert all(cell_len(line) <= max(width, 2) for line in wrap_text(False, text, width))
    assert Look(ascii=True).fit(text, width).isascii()


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=700), st.integers(1, 200), st.integers(1, 5))
def test_charts_have_their_size(values: list[float | None], width: int, height: int) -> None:
    rows = Look().chart(values, 100.0, width, height)
    assert [width] * height == [len(row) for row in rows]


def test_columns_of_a_chart_are_means_and_gaps_stay_gaps() -> None:
    assert [1.5, 3.0, None, None, 7.0] == binned([0.0, 1.0, 2.0, 8.0], [1.0, 2.0, 3.0, 7.0], 0.0, 10.0, 5)
    assert [5.0] * 4 == binned([0.0, 2.0], [5.0, 5.0], 0.0, 4.0, 4)  # samples rarer than columns


def test_moments() -> None:
    assert record_time({"query_time": stamp(1)}) is not None
    assert [None] * 3 == [record_time({"query_time": value}) for value in (None, "soon", 5)]


def test_a_screen_left_open_holds_no_more_objects_after_its_window_is_full() -> None:
    state, diagnosis, invented = State(), LiveDiagnosis(), Demo()

    def objects(seconds: int) -> int:
        for _ in range(seconds):
            for record in invented.step():
                state.add_record(record)
                diagnosis.add_record(record)
        gc.collect()
        return len(gc.get_objects())

    full = objects(200)
    windows = [full, *(objects(60) for _ in range(3))]
    assert min(after - before for before, after in pairwise(windows)) < 200  # what is loaded once is in one of them


def test_a_slow_first_sample_of_ranks_is_not_time_in_which_they_were_watched() -> None:
    """The other kinds start earlier, and the first search for ranks takes longer than the later ones."""
    state = State()
    state.add_record({"kind": "host", "hostname": "n1", "query_time": stamp(0), "host": {}})

    def sample(second: float) -> None:
        rank = {"pid": 7, "rank": 0, "name": "job", "since": iso_seconds(stamp(10.6))}
        state.add_record({"kind": "process", "hostname": "n1", "query_time": stamp(second), "processes": [rank]})

    assert state.watched_ranks()
    sample(10.0)
    sample(10.9)
    assert not state.watched_ranks()
    assert not state.still_ranks()
    sample(11.4)
    assert state.watched_ranks()
    assert state.still_ranks()


def test_keys_that_a_node_invents_change_no_terminal() -> None:
    state = State()
    process = {"pid": 1, "\u202eknar": None, "command": "python \u202e\x1b[2J"}
    assert state.add_record({"kind": "process", "hostname": "n1", "processes": [process]}) is not None
    assert is_printable(render_json(state, [], 2.0).replace("\n", ""))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_null(number: float) -> None:
    state = State()
    process = {"pid": 4000, "ppid": number, "role": "rank", "rank": 0, "job": "1", "age": 9.0, "state": "running"}
    state.add_record({"kind": "process", "hostname": "n1", "query_time": stamp(1), "processes": [process]})
    text = render_json(state, [], state.now)
    assert "4000" in text
    json.loads(text, parse_constant=pytest.fail)


def test_a_host_that_is_named_like_millions_of_hosts_is_one() -> None:
    assert ("n[1-99999999]",) == expand("n[1-99999999]")
    assert ("n1", "n2") == expand("n[1-2]")
