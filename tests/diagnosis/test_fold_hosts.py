"""Names of hosts that a log gives are folded, and never looked up in the groups of the site's ClusterShell."""

from unittest import mock

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.fleet import most_nodes
from nccl_doctor.diagnosis import diagnose
from nccl_doctor.diagnosis.diagnose import fold_hosts
from nccl_doctor.watch.view.findings import expand

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters=",", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
)


class NoGroups:
    """Stands in for the groups of a site; any question is an error."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the groups of the site were asked: {name}")


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ClusterShell.NodeSet.RESOLVER_STD_GROUP", NoGroups())


@pytest.mark.parametrize("odd", ["n*1", "n?1", "@all", "@*", "n[1-", "n1&n2", "%n", "*"])
@pytest.mark.usefixtures("no_groups")
def test_a_name_with_a_special_character_is_only_a_name(odd: str) -> None:
    assert ",".join(sorted(["node1", odd])) == fold_hosts([odd, "node1", None])
    assert expand(odd)


def test_names_with_numbers_become_a_range() -> None:
    assert "node[01-02]" == fold_hosts(["node02", "node01"])
    assert ("node01", "node02") == expand("node[01-02]")


@given(
    before=st.sampled_from(["node", "n-", "gpu_a."]),
    numbers=st.sets(st.integers(0, 120), min_size=2, max_size=8),
    width=st.sampled_from([0, 2, 4]),
    behind=st.sampled_from(["", ".cluster", "-x"]),
    other=st.sampled_from([[], ["n7"], ["node007"], ["a1b2"]]),
)
def test_one_series_folds_as_clustershell_folds_it(
    before: str, numbers: set[int], width: int, behind: str, other: list[str]
) -> None:
    names = [*(f"{before}{number:0{width}d}{behind}" for number in numbers), *other]
    nodes = NodeSet(",".join(names), resolver=RESOLVER_NOGROUP)
    assert str(nodes) == fold_hosts(names)


@given(
    st.sets(
        st.one_of(
            st.builds("r{}n{:02d}".format, st.integers(0, 4), st.integers(0, 120)),
            st.builds("node{:03d}s".format, st.integers(0, 9)),
            st.sampled_from(["login", "node7", "r1", "10.0.0.4"]),
        ),
        min_size=2,
        max_size=40,
    )
)
def test_names_of_several_kinds_fold_as_clustershell_folds_each(names: set[str]) -> None:
    assert str(NodeSet(",".join(names), resolver=RESOLVER_NOGROUP)) == fold_hosts(names)


def test_addresses_without_order_are_folded_by_their_last_number() -> None:
    names = [f"{at % 90 + 10}.{at % 7}.{at * 31 % 100}.{last}" for at in range(700) for last in (1, 2, 19)]
    folded = fold_hosts(names)
    assert {f"{name.rpartition('.')[0]}.[1-2]" for name in names} < set(folded.split(","))
    assert set(names) == set(expand(folded))


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [("n[1-3],m[01-20]", 23), ("n[1-9]-[1-9]", 81), ("n1", 1), ("a,b,c[1-2,4]", 5), ("n[0-99/10]", 100), ("n[x]", 1)],
)
def test_how_many_nodes_a_set_names_at_most(hosts: str, nodes: int) -> None:
    assert nodes == most_nodes(hosts)


@given(st.sets(st.from_regex(r"[a-c]?[0-9]{1,3}[x.]?[0-9]{0,3}[z]?", fullmatch=True), min_size=2, max_size=40))
def test_any_names_keep_their_digits_without_clustershell(names: set[str]) -> None:
    with mock.patch.object(diagnose, "_SERIES", 1):
        assert names == set(expand(fold_hosts(names)))


@given(st.sets(NAMES, min_size=1, max_size=5))
def test_any_names_give_a_text(names: set[str]) -> None:
    assert fold_hosts(names)
    assert expand(fold_hosts(names))
