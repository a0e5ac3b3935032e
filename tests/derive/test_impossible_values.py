"""Values that cannot be: found where they are printed or set, and never where they can be."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.start.impossible import PORTS, impossible_values, not_a_host
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Env, NvlinkState
from tests.helpers.examples import examples

HOST = st.from_regex(r"[a-z][a-z0-9]{0,10}(-[a-z0-9]{1,8}){0,3}(\.[a-z]{2,8}){0,2}", fullmatch=True)


def _values(log: str) -> list[tuple[object, ...]]:
    return analyze.read_text(log).query("SELECT subject, value, limit_, certain FROM impossible_value")


@given(HOST.filter(lambda name: name not in ("null", "nil", "undefined")))
def test_a_name_can_be_that_of_a_host(name: str) -> None:
    assert not_a_host(name) is None


@given(HOST)
def test_a_name_that_was_cut_off_is_doubted(name: str) -> None:
    found = not_a_host(f"{name}-")
    assert found is not None
    assert ("name", 0) == (found[0], found[2])


@given(st.ip_addresses(v=4))
def test_an_address_is_refused_only_where_no_host_has_one(address: ipaddress.IPv4Address) -> None:
    nobody = address.is_multicast or int(address) >= 240 << 24 or (int(address) < 1 << 24 and int(address) != 0)
    assert nobody == (not_a_host(str(address)) is not None)


@given(st.ip_addresses(v=6))
def test_addresses_of_version_6_are_left_alone(address: ipaddress.IPv6Address) -> None:
    assert not_a_host(str(address)) is None


@examples(20)
@given(st.integers(0, 20), st.integers(1, 16))
def test_a_rank_is_impossible_from_the_number_of_ranks_on(rank: int, size: int) -> None:
    expected = [("rank", str(rank), size - 1, 1)] if rank >= size else []
    assert expected == _values(
        f"Training in distributed mode with multiple processes, 1 GPU per process. Process {rank}, total {size}.\n"
    )


@examples(15)
@given(st.integers(0, 200_000))
def test_a_port_is_impossible_beyond_the_last_one(port: int) -> None:
    log = f"[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to (node01, {port}).\n"
    assert ([("port", str(port), PORTS, 1)] if port > PORTS else []) == _values(log)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("node02:101:140 [0] init.cc:1700 NCCL WARN Invalid rank requested : 8/8", ("rank", "8", 7, 1)),
        ("ValueError: Invalid rank 9, rank should be in the interval [0, 7]", ("rank", "9", 7, 1)),
        ("OverflowError: getsockaddrarg: port must be 0-65535.", ("port", "not an integer up to 65535", PORTS, 1)),
    ],
)
def test_programs_that_refuse_a_value(log: str, expected: tuple[object, ...]) -> None:
    assert [expected] == _values(log)


@examples(15)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=4), st.sampled_from(["ncclCommInitRank", "ncclCommSplit"]))
def test_processes_of_one_communicator_give_one_size(sizes: list[int], call: str) -> None:
    log = "".join(
        f"node{n:02}:101:140 [0] NCCL INFO {call} comm 0x1 rank 0 nranks {size} cudaDev 0 nvmlDev 0 busId 3b000"
        f" commId 0xa1 - Init START\n"
        for n, size in enumerate(sizes)
    )
    differ = call == "ncclCommInitRank" and len(set(sizes)) > 1
    listed = " and ".join(map(str, sorted(set(sizes))))
    assert ([("size", listed, max(sizes), 1)] if differ else []) == _values(log)


@pytest.mark.parametrize(("hosts", "found"), [(["node01"], 0), (["node01", "node01"], 0), (["node01", "node02"], 2)])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_loopback_address_is_the_master_of_one_host_only(hosts: list[str], found: int, name: str) -> None:
    log = "".join(
        f"{host}: [E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to ({name}, 29500).\n"
        for host in hosts
    )
    assert [("address", name, None, 1)] * found == _values(log)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4))
def test_a_gpu_has_the_links_of_its_model_or_fewer(states: list[tuple[int, int]]) -> None:
    facts = Facts()
    for gpu, (active, inactive) in enumerate(states):
        row = NvlinkState("node01", "nvlink.txt", gpu, "NVIDIA A100-SXM4-80GB", active, inactive, 25.0, gpu + 1)
        facts.add([row])
    rows = list(impossible_values(facts) or ())
    most = max(active for active, _ in states)
    beyond = [gpu for gpu, (active, inactive) in enumerate(states) if active and active + inactive > 12]
    assert beyond == [int(row.value[4]) for row in rows if row.certain]
    assert all(states[int(row.value[4])][0] == most < 12 for row in rows if not row.certain)


@pytest.mark.parametrize(("world", "local", "found"), [(8, 8, []), (16, 8, []), (4, 8, [("size", "4", None, 1)])])
def test_a_node_has_no_more_processes_than_the_job(world: int, local: int, found: list[tuple[object, ...]]) -> None:
    facts = Facts()
    settings = (("WORLD_SIZE", world), ("LOCAL_WORLD_SIZE", local))
    facts.add([Env("node01", 0, 7, name, str(value), 1, 1) for name, value in settings])
    assert found == [(row.subject, row.value, row.limit_, row.certain) for row in impossible_values(facts) or ()]
