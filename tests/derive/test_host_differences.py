"""Hosts that differ: only where nearly all others agree, from three hosts on, and each with the value that its lines show."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from tests.helpers.examples import examples

NETWORK = "{host}:101:140 [0] NCCL INFO Using network {value}"
CARDS = "{host}:101:140 [0] NCCL INFO NET/IB : Using {list} [RO]; OOB eth0:10.1.0.4<0>"


@examples(40)
@given(st.lists(st.sampled_from(["IB", "Socket", "AWS Libfabric"]), min_size=1, max_size=12))
def test_a_host_is_odd_where_nearly_all_others_agree(networks: list[str]) -> None:
    hosts = {f"node{number:02}": network for number, network in enumerate(networks)}
    log = "\n".join(NETWORK.format(host=host, value=value) for host, value in hosts.items())
    found = analyze.read_text(log).query(
        "SELECT host, value, common, same, hosts FROM host_odd WHERE subject = 'network'"
    )
    common, same = Counter(networks).most_common(1)[0]
    others = len(networks) - same
    if len(networks) > 2 and (10 * same >= 7 * len(networks) or (len(networks), others) == (3, 1)):
        expected = [(host, value, common, same, len(networks)) for host, value in hosts.items() if value != common]
        assert expected == found
    else:
        assert [] == found


@examples(20)
@given(st.lists(st.integers(1, 8), min_size=3, max_size=8))
def test_a_host_that_lost_a_card_is_told_with_both_counts(counts: list[int]) -> None:
    lists = [" ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(count)) for count in counts]
    log = "\n".join(CARDS.format(host=f"node{number:02}", list=names) for number, names in enumerate(lists))
    for host, value, common in analyze.read_text(log).query(
        "SELECT host, value, common FROM host_odd WHERE subject = 'cards'"
    ):
        assert f"{counts[int(host[4:])]} x IB" == value != common
        assert f"{Counter(counts).most_common(1)[0][0]} x IB" == common
