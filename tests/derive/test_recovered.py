"""What came back: a failure counts as over only where the last word about the same thing is a good one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from tests.helpers.examples import examples

LIFE = (
    "node01:{pid}:140 [0] NCCL INFO ncclCommInitRank comm 0x{at}1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {rank}b000"
    " commId 0xa1 - Init COMPLETE"
)
CONNECT = "socketPollConnect: connect to 10.1.0.5<40001> returned Connection timed out,"
RETRY = f"node01:{{pid}}:140 [0] NCCL INFO {CONNECT} retrying (1/34) after sleep for 100 msec"
REFUSED = "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node01]:29500 (errno: 111 - Connection refused)."
EVENTS = {
    "file-system": (
        "[12.345678] nfs: server {thing} not responding, still trying",
        "[12.345678] nfs: server {thing} OK",
    ),
    "link": (
        "[12.345678] mlx5_core 0000:5d:00.0 {thing}: Link down",
        "[12.345678] mlx5_core 0000:5d:00.0 {thing}: Link up",
    ),
    "port": (
        "node01:101:140 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : {thing}:1 Got async event : port error",
        "node01:101:140 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : {thing}:1 Got async event : port active",
    ),
}
THINGS = {"file-system": ("fs01", "fs02"), "link": ("ib0", "ib1"), "port": ("mlx5_0", "mlx5_1")}


def _back(log: str) -> set[tuple[str, str]]:
    return set(analyze.read_text(log).query("SELECT kind, what FROM recovered"))


@examples(40)
@given(st.sampled_from(sorted(EVENTS)), st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=8))
def test_a_thing_is_back_where_its_last_line_says_so(kind: str, story: list[tuple[int, bool]]) -> None:
    log = "".join(EVENTS[kind][good].format(thing=THINGS[kind][which]) + "\n" for which, good in story)
    expected = {
        (kind, thing)
        for which, thing in enumerate(THINGS[kind])
        if any(not good for at, good in story if at == which) and [good for at, good in story if at == which][-1]
    }
    assert expected == {(found, what.split(":")[0]) for found, what in _back(log)}


@examples(20)
@given(st.lists(st.sampled_from(["retry 1", "retry 2", "up 1", "up 2"]), max_size=8))
def test_a_connection_is_back_where_the_same_process_comes_up_after_it(story: list[str]) -> None:
    shapes = [(RETRY if one.startswith("retry") else LIFE, one[-1]) for one in story]
    lines = [shape.format(pid=pid, rank=int(pid) - 1, at=at) for at, (shape, pid) in enumerate(shapes)]
    facts = analyze.read_text("".join(f"{line}\n" for line in lines))
    last_up = {pid: max((at for at, one in enumerate(story) if one == f"up {pid}"), default=-1) for pid in "12"}
    expected = {int(pid) for pid in "12" if f"retry {pid}" in story and story.index(f"retry {pid}") < last_up[pid]}
    found = facts.query("SELECT s.pid FROM recovered r JOIN socket_error s ON s.ref = r.ref")
    assert expected == {pid for (pid,) in found}


def test_a_connection_that_was_given_up_is_not_back() -> None:
    gave_up = f"node01:1:140 [0] misc/socket.cc:484 NCCL WARN {CONNECT} exceeded error retry count after 35 attempts"
    assert set() == _back("\n".join([RETRY.format(pid=1), gave_up, LIFE.format(pid=1, rank=0, at=1)]))


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (REFUSED, "rendezvous"),
        (
            "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
            "rendezvous",
        ),
        ("(autoscaler +1m2s) Error: No available node types can fulfill resource request {'GPU': 1.0}.", "placement"),
    ],
)
def test_a_meeting_that_failed_at_first_is_over_when_all_came(failure: str, kind: str) -> None:
    met = "All distributed processes registered. Starting with 2 processes"
    assert [kind] == [found for found, _ in _back(f"{failure}\n{met}\n")]
    assert set() == _back(f"{met}\n{failure}\n")


def test_an_evicted_client_did_not_come_back_unharmed() -> None:
    lines = (
        "[12.345678] LustreError: 167-0: fs0-OST0001-osc-ffff: This client was evicted by fs0-OST0001; in progress operations will fail.",
        "[13.345678] Lustre: fs0-OST0001-osc-ffff: Connection restored to 10.1.2.8@o2ib (at 10.1.2.8@o2ib)",
    )
    assert set() == _back("\n".join(lines))


STACK = 'Traceback (most recent call last):\n  File "/opt/s3.py", line 10, in get\nConnectionError: 503 Slow Down\n'
DONE = "training finished, saved the model\n"
EPOCHS = "".join(f"epoch {n} loss 0.{9 - n}\n" for n in range(4))
FAILED = (
    "E1121 01:51:17.515000 29640 torch/distributed/elastic/multiprocessing/api.py:1002]"
    " failed (exitcode: 1) local_rank: 1 (pid: 29645) of binary: python3\n"
)


@pytest.mark.parametrize(
    ("log", "handled"),
    [
        (STACK + EPOCHS + DONE, True),
        (DONE + EPOCHS + STACK, False),
        (STACK + DONE, False),  # the script may say so, whatever happened
        (STACK + EPOCHS, False),
        (STACK + EPOCHS + DONE + FAILED, False),
    ],
)
def test_an_exception_is_handled_where_training_is_done_later(log: str, handled: bool) -> None:
    assert handled == (("exception", "ConnectionError") in _back(log))


@pytest.mark.parametrize("steps", [0, 12])
def test_a_refused_call_of_grpc_is_over_once_the_job_made_steps(steps: int) -> None:
    call = '{"description":"Failed to connect to remote host: OS Error","errno":111,"os_error":"Connection refused"}'
    bars = "".join(
        f"{at:3d}%|          | {10 * at}/1000 [00:{10 * at}<16:30,  1.00s/it]\n" for at in range(1, steps + 1)
    )
    log = f"I0320 05:57:29.309552659    3803 subchannel.cc:677]          Connect failed: {call}\n{bars}"
    assert ({("rendezvous", "TensorFlow or XLA")} if steps else set()) == _back(log)


POD = {
    "fails": '9m  Warning  FailedMount  pod/train-{which}  MountVolume.SetUp failed for volume "data": exit status 32',
    "starts": "9m  Normal  Started  pod/train-{which}  Started container train",
}


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(sorted(POD))), max_size=6))
def test_a_pod_is_back_where_its_own_container_starts_after_its_last_failure(story: list[tuple[int, str]]) -> None:
    log = "".join(POD[what].format(which=which) + "\n" for which, what in story)
    mine = {which: [what for at, what in story if at == which] for which in (0, 1)}
    expected = {("pod", f"train-{which}") for which, own in mine.items() if "fails" in own and own[-1] == "starts"}
    assert expected == _back(log)


def test_a_container_of_a_pod_that_was_scheduled_in_between_is_another_one() -> None:
    failed = '  Warning  FailedMount  9m  kubelet  MountVolume.SetUp failed for volume "data": exit status 32\n'
    started = "  Normal   Started      8m  kubelet  Started container train\n"
    assigned = "  Normal   Scheduled    9m  default-scheduler  Successfully assigned ml/train-1 to gpu-02\n"
    assert {("pod", "a pod")} == _back(failed + started)
    assert set() == _back(failed + assigned + started)
