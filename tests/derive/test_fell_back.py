"""Fall-backs that worked: only in a process that came up after the failure, and with another network than the wanted one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from tests.helpers.examples import examples

HEAD = "node01:{pid}:150 [0] "
LINES = {
    "plug-in": "NCCL INFO NET/Plugin : dlerror=libfabric.so.1: cannot open shared object file: No such file or directory No plugin"
    " found (libnccl-net.so), using internal implementation",
    "libfabric": "ofi.cc:120 NCCL WARN NET/OFI Couldn't find any optimal provider",
    "DMA-BUF": "misc/ibvwrap.cc:200 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
    "IB": "NCCL INFO Using network IB",
    "Socket": "NCCL INFO Using network Socket",
    "up": "NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0xa1 - Init COMPLETE",
}


def _found(story: list[str], pid: int = 100) -> list[tuple[str, str]]:
    log = "\n".join(HEAD.format(pid=pid if line != "other" else 200) + LINES[line] for line in story)
    return analyze.read_text(log).query("SELECT wanted, used FROM fell_back")


@examples(30)
@given(st.lists(st.sampled_from(sorted(LINES)), max_size=6, unique=True))
def test_a_failure_was_worked_around_where_the_process_came_up_after_it(story: list[str]) -> None:
    after = story[: story.index("up")] if "up" in story else []
    networks = [name for name in ("IB", "Socket") if name in story]
    expected = {
        wanted
        for wanted in ("plug-in", "libfabric", "DMA-BUF")
        if wanted in after and (wanted == "DMA-BUF" or networks)
    }
    assert expected == {wanted for wanted, _ in _found(story)}


@pytest.mark.parametrize("network", ["IB", "Socket"])
def test_the_network_that_was_used_instead_is_told(network: str) -> None:
    assert [("plug-in", network)] == _found(["plug-in", network, "up"])


def test_another_process_that_comes_up_proves_nothing() -> None:
    log = f"{HEAD.format(pid=100)}{LINES['DMA-BUF']}\n{HEAD.format(pid=200)}{LINES['up']}\n"
    assert [] == analyze.read_text(log).query("SELECT wanted FROM fell_back")
