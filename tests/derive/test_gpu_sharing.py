"""GPUs that several processes use: ranks are told only where the host name is one machine, and little memory is a context."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.derive import registry
from nccl_doctor.derive.start.gpu_sharing import CONTEXT
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Communicator, Env, GpuProcess, GpuSharing, NodeCount
from tests.helpers.examples import examples


def _job(addresses: list[int], nodes: int, setting: str = "") -> str:
    """A communicator on one host name, the ranks with these PCI addresses; NCCL counts so many machines behind the name."""
    size = len(addresses)
    lines = [
        f"node01:100:150 [0] NCCL INFO comm 0x1 rank 0 nRanks {size} nNodes {nodes} localRanks {size // nodes} localRank 0 MNNVL 0"
    ]
    lines += [
        f"node01:{100 + rank}:{150 + rank} [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks {size} cudaDev 0 nvmlDev 0"
        f" busId {bus}b000 commId 0xa1 - Init COMPLETE"
        for rank, bus in enumerate(addresses)
    ]
    return "\n".join([*lines, *([setting] if setting else [])])


def _shared(log: str) -> set[tuple[str, str]]:
    return set(analyze.read_text(log).query("SELECT gpu, others FROM gpu_sharing WHERE kind = 'ranks'"))


@examples(25)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=8))
def test_ranks_share_a_gpu_where_their_addresses_are_equal(addresses: list[int]) -> None:
    found = {gpu for gpu, _ in _shared(_job(addresses, 1))}
    assert {f"{bus}b000" for bus in addresses if addresses.count(bus) > 1} == found


@examples(10)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_equal_addresses_of_two_machines_with_one_name_are_none(addresses: list[int]) -> None:
    assert set() == _shared(_job([*addresses, *addresses], 2))


def test_a_gpu_that_is_shared_on_purpose_is_none() -> None:
    allowed = "node01:100:150 [0] NCCL INFO Multiple ranks on the same GPU detected and allowed. Disabling NVLS."
    assert set() == _shared(f"{_job([1, 1], 1)}\n{allowed}")


@pytest.mark.parametrize(("device", "expected"), [("0", 1), ("MIG-1234abcd", 0)])
def test_instances_of_a_divided_gpu_have_one_address(device: str, expected: int) -> None:
    log, facts = analyze.read_text(_job([1, 1], 1)), Facts()
    facts.add([Env("node01", 0, 100, "CUDA_VISIBLE_DEVICES", device, 1, facts.evidence("env", 1, device))])
    for table in (Communicator, NodeCount):
        facts.add(log.rows(table))
    registry.derive_all(facts)
    assert expected == len(facts.rows(GpuSharing))


def test_a_job_that_was_started_again_elsewhere_shares_nothing() -> None:
    first = _job([1, 2], 1)
    assert set() == _shared(f"{first}\n{_job([2, 1], 1).replace('0xa1', '0xb2').replace('node01:1', 'node01:2')}")


@examples(30)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(100, 104), st.floats(1, 60_000)),
        max_size=12,
        unique_by=lambda one: one[:2],
    )
)
def test_a_guest_holds_little_here_and_more_elsewhere(held: list[tuple[int, int, float]]) -> None:
    facts = Facts()
    ref = facts.evidence("smi", 1, "x")
    facts.add(
        GpuProcess("node01", gpu, None, pid, "C", "python", memory, None, 1, 0, 0, ref) for gpu, pid, memory in held
    )
    registry.derive_all(facts)
    expected: dict[str, set[int]] = {}
    for gpu, pid, memory in held:
        if memory < CONTEXT and any(other == pid and 2 * memory < size for _, other, size in held):
            expected.setdefault(str(gpu), set()).add(pid)
    rows = facts.query("SELECT gpu, others, processes FROM gpu_sharing")
    assert expected == {gpu: set(json.loads(f"[{others}]")) for gpu, others, _ in rows}
    assert all(len(json.loads(f"[{others}]")) == count for _, others, count in rows)
