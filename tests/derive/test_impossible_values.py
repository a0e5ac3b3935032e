"""Values that cannot be: found where they are printed or set, and never where they can be."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive.start.impossible import PORTS, not_a_host
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
