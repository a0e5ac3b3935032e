"""Who came to a meeting: whatever ranks say, those that came and those that are absent are all, and no rank is both."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.start.numbers import ranges
from tests.helpers.examples import examples


def _numbers(text: str | None) -> set[int]:
    parts = [part.split("-") for part in (text or "").split(",") if part]
    return {number for low, *high in parts for number in range(int(low), int(high[0] if high else low) + 1)}


def _rows(log: str) -> list[tuple[object, ...]]:
    return analyze.read_text(log).query(
        "SELECT source, size, came, absent, doubled, certain FROM roll_call ORDER BY source"
    )


@given(st.sets(st.integers(0, 3_000)))
def test_ranges_hold_every_number_once(numbers: set[int]) -> None:
    assert numbers == _numbers(ranges(numbers))


@examples(25)
@given(st.integers(2, 64), st.data())
def test_who_came_and_who_is_absent_are_all(size: int, data: st.DataObject) -> None:
    came = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    log = "".join(
        f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{size}\n" for rank in sorted(came)
    )
    ((source, announced, count, absent, doubled, certain),) = _rows(log)
    assert ("announced", size, len(came), None, 0) == (source, announced, count, doubled, certain)
    assert set(range(size)) - came == _numbers(absent)


@examples(15)
@given(st.integers(2, 16), st.data())
def test_a_rank_that_two_took_is_doubled_only_where_others_are_silent(size: int, data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size + 3))
    twice = {rank for rank in ranks if ranks.count(rank) > 1}
    assume(twice)
    ((_, _, count, absent, doubled, _),) = _rows("".join(f"Process {rank}, total {size}.\n" for rank in ranks))
    assert (len(set(ranks)), None) == (count, absent)
    assert (twice if len(ranks) <= size else set()) == _numbers(doubled)


@examples(15)
@given(st.integers(2, 16), st.data())
def test_a_barrier_names_the_absent_where_all_that_came_speak(size: int, data: st.DataObject) -> None:
    came = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1))
    speak = data.draw(st.sets(st.sampled_from(sorted(came)), min_size=1))
    log = "".join(
        f"RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key:"
        f" store_based_barrier_key:1 (world_size={size}, worker_count={len(came)}, timeout=0:30:00)\n"
        for rank in speak
    )
    ((source, announced, count, absent, _, certain),) = _rows(log)
    assert ("store-barrier", size, len(came), 1) == (source, announced, count, certain)
    assert (set(range(size)) - came if speak == came else set()) == _numbers(absent)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "DistStoreError: Timed out waiting on barrier on rank 0, for key prefix: torchelastic/role_info"
            " (world_size=4, missing_ranks=[1, 3], timeout=300)",
            ("agents", 4, 2, "1,3", None, 1),
        ),
        ("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 30000 ms", ("monitored-barrier", None, None, "1-2", None, 1)),
        (
            "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:\n"
            "/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:5\n",
            ("jax", None, None, "3,5", None, 1),
        ),
        (
            "node01:101:150 [0] bootstrap.cc:205 NCCL WARN Bootstrap Root : rank 3 of 8 ranks has already checked in",
            ("nccl-bootstrap", 8, None, None, "3", 1),
        ),
    ],
)  # fmt: skip
def test_messages_that_name_ranks(log: str, expected: tuple[object, ...]) -> None:
    assert [expected] == _rows(log)


def test_a_communicator_that_came_up_has_nobody_absent() -> None:
    line = "node01:101:140 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 3b000 commId 0xa1 - Init "
    assert [("nccl-init", 4, 1, "1-3", None, 0)] == _rows(f"{line}START\n")
    assert [] == _rows(f"{line}START\n{line}COMPLETE\n")


def test_nodes_and_ranks_are_counted_apart() -> None:
    nodes = "[2026-05-07 12:00:00,123] [INFO] [launch.py:152:main] nnodes=2, num_local_procs=2, node_rank=1"
    rows = analyze.read_text(f"{nodes}\nProcess 0, total 2.\n").query(
        "SELECT unit, size, came, absent FROM roll_call ORDER BY unit"
    )
    assert [("node", 2, 1, "0"), ("process", 2, 1, "1")] == rows


@examples(10)
@given(st.lists(st.sampled_from(["Running", "Pending", "ImagePullBackOff", "Completed"]), min_size=1, max_size=12))
def test_pods_of_a_list_that_were_not_started_are_absent(states: list[str]) -> None:
    """Only beside others of the set that run: where none does, nothing was started yet."""
    ready = {"Running": "1/1", "Completed": "0/1"}
    rows = [
        f"train-worker-{number}   {ready.get(state, '0/1')}   {state}   0   12m\n"
        for number, state in enumerate(states)
    ]
    waits = {number for number, state in enumerate(states) if state not in ready}
    found = _rows("NAME   READY   STATUS   RESTARTS   AGE\n" + "".join(rows))
    if waits and "Running" in states:
        ((source, size, came, absent, _, certain),) = found
        assert ("pods", len(states), len(states) - len(waits), waits, 1) == (
            source,
            size,
            came,
            _numbers(absent),
            certain,
        )
    else:
        assert not found


def test_a_list_of_pods_right_after_the_start_says_nothing() -> None:
    assert not _rows("a-worker-0   1/1   Running   0   9s\na-worker-1   0/1   Pending   0   9s\n")


@pytest.mark.parametrize(("times", "absent"), [(2, None), (7, "1,3")])
def test_tasks_that_tensorflow_waits_for_a_minute_are_absent(times: int, absent: str | None) -> None:
    line = (
        "2024-05-06 12:00:{:02}.1: I tensorflow/core/distributed_runtime/master.cc:267] CreateSession still waiting for response "
        "from worker: /job:worker/replica:0/task:{}\n"
    )
    found = _rows("".join(line.format(second, task) for second in range(times) for task in (1, 3)))
    assert ([] if absent is None else [("tensorflow", absent)]) == [(row[0], row[3]) for row in found]


SRUN_STATES = ("running", "exited", "exited abnormally", "failed to start", "unknown")


@examples(15)
@given(st.lists(st.sampled_from(SRUN_STATES), min_size=1, max_size=40))
def test_tasks_that_srun_lists_are_started_or_absent(states: list[str]) -> None:
    lists = {state: [task for task, of in enumerate(states) if of == state] for state in states}
    found = _rows(
        "".join(
            f"srun: StepId=77.0 task{'s' if len(tasks) > 1 else ''} {ranges(tasks)}: {state}\n"
            for state, tasks in lists.items()
        )
    )
    absent = {task for task, state in enumerate(states) if state in ("failed to start", "unknown")}
    if absent:
        ((source, size, came, missing, _, certain),) = found
        assert ("srun", len(states), len(states) - len(absent), 1) == (source, size, came, certain)
        assert absent == _numbers(missing)
    else:
        assert not found


@examples(15)
@given(
    st.dictionaries(st.sampled_from(["Pending", "Running", "Bound", "Pipelined"]), st.integers(1, 99)),
    st.integers(1, 300),
)
def test_a_gang_lacks_what_found_no_node(states: dict[str, int], least: int) -> None:
    tasks = sum(states.values())
    listed = "".join(f", {number} {state}" for state, number in states.items())
    found = _rows(
        f"{states.get('Pending', 0)}/{tasks} tasks in gang unschedulable: pod group is not ready{listed}, {least} minAvailable\n"
    )
    came = tasks - states.get("Pending", 0)
    assert ([("gang", least, came, None, None, 1)] if came < least else []) == found


def test_a_gang_of_which_a_pod_found_its_node_later_is_over() -> None:
    waits = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable\n"
    assert _rows(waits)
    assert not _rows(f"{waits}Successfully assigned ml/train-worker-0 to gpu-03\n")


def test_a_list_that_no_job_can_have_is_not_expanded() -> None:
    assert not _rows("srun: StepId=77.0 tasks 0-999999999: unknown\n")


def test_gpus_that_ray_lacks_are_counted() -> None:
    rows = _rows("ValueError: Total available GPUs 8.0 is less than total desired GPUs 16\n")
    assert [("ray", 16, 8, None, None, 0)] == rows


def test_ranks_of_a_program_of_ones_own() -> None:
    ready = "".join(f"init done: rank={rank} world_size=8\n" for rank in (0, 1, 2, 3, 5, 6, 7))
    ((source, size, came, absent, doubled, _),) = _rows(ready)
    assert ("announced", 8, 7, "4", None) == (source, size, came, absent, doubled)
    assert [] == _rows("rank 0 world_size 8 reads data\nrank 0 world_size 8 makes the model\n")
    assert [] == _rows("rank 0 world_size 8 reads data\n")
