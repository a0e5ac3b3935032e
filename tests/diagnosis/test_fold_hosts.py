"""Names of hosts that a log gives are folded, and never looked up in the groups of the site's ClusterShell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.sets(NAMES, min_size=1, max_size=5))
def test_any_names_give_a_text(names: set[str]) -> None:
    assert fold_hosts(names)
    assert expand(fold_hosts(names))
