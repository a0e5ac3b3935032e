"""Rows of `connection`: what one rank says of its peers on one host, over one medium."""

from helpers.scanning import life

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts

SAYS = "node00:100:150 [0] NCCL INFO "  # rank 0


def of_ranks(*lines: str, ranks: int = 6) -> Facts:
    """The facts of a job with two ranks a host that says these lines, too."""
    lives = [life(rank, ranks, f"node{rank // 2:02d}", rank % 2, 100 + rank % 2) for rank in range(ranks)]
    return analyze.read_text("\n".join([*lives, *lines]) + "\n")


def test_the_peers_of_a_host_that_one_medium_reaches_are_one_row() -> None:
    facts = of_ranks(
        f"{SAYS}Channel 00/1 : 0[0] -> 2[0] [send] via NET/IB/0",
        f"{SAYS}Channel 00/1 : 0[0] -> 4[0] [send] via NET/IB/0",
        f"{SAYS}Channel 00/1 : 0[0] -> 3[1] [send] via NET/IB/0",
        f"{SAYS}Channel 01/1 : 0[0] -> 3[1] [send] via NET/IB/0",
        f"{SAYS}Channel 00/1 : 3[1] -> 0[0] [receive] via NET/IB/0",
    )
    rows = facts.query(
        "SELECT c.peer_host, own, own_gpu, peers, direction, connections, channels, n, substr(text, instr(text, 'Channel'))"
        " FROM connection c JOIN evidence e ON e.id = c.ref"
    )
    assert [
        ("node01", 0, "0", "2[0],3[1]", "send", 2, 3, 3, "Channel 00/1 : 0[0] -> 2[0] [send] via NET/IB/0"),
        ("node02", 0, "0", "4[0]", "send", 1, 1, 1, "Channel 00/1 : 0[0] -> 4[0] [send] via NET/IB/0"),
        ("node01", 0, "0", "3[1]", "receive", 1, 1, 1, "Channel 00/1 : 3[1] -> 0[0] [receive] via NET/IB/0"),
    ] == rows
    links = facts.query("SELECT src_host, dst_host, connections, channels FROM link")
    assert [("node00", "node01", 2, 3), ("node00", "node02", 1, 1), ("node01", "node00", 1, 1)] == links


def test_inside_a_host_each_peer_is_a_row() -> None:
    facts = of_ranks(
        f"{SAYS}Channel 00 : 0[1b000] -> 1[1c000] via P2P/IPC",
        f"{SAYS}Channel 00 : 0[1b000] -> 7[1d000] via P2P/IPC",  # no communicator has a rank 7
        f"{SAYS}Channel 00 : 0 -> 2 via P2P/MNNVL",
    )
    rows = facts.query("SELECT peer_host, own_gpu, peers FROM connection ORDER BY peers")
    assert [("node00", "1b000", "1[1c000]"), ("node01", None, "2"), ("node00", "1b000", "7[1d000]")] == rows


def test_a_peer_that_two_communicators_place_on_different_hosts_has_no_host() -> None:
    facts = of_ranks(
        f"{SAYS}comm 0x5 rank 0 nranks 2 cudaDev 0 busId 1b000 commId 0x77 - Init COMPLETE",
        "node02:101:151 [0] NCCL INFO comm 0x6 rank 1 nranks 2 cudaDev 0 busId 1b000 commId 0x77 - Init COMPLETE",
        f"{SAYS}Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
        f"{SAYS}Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0",
    )
    assert [(None, "1[0]"), ("node01", "2[0]")] == facts.query("SELECT peer_host, peers FROM connection")
