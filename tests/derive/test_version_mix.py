"""Components that have different versions on the hosts of one job."""

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.derive.registry import derive_all
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Library, VersionMix


def mix(*stated: tuple[str | None, str, str]) -> list[tuple[str, str, str, int, int]]:
    facts = Facts()
    facts.add(
        Library(host, None, number, name, version, None, 1, facts.evidence("job.log", number, version))
        for number, (host, name, version) in enumerate(stated, 1)
    )
    derive_all(facts)
    return [(row.host, row.version, row.usual, row.same, row.hosts) for row in facts.rows(VersionMix)]


def test_the_host_that_differs_is_named() -> None:
    stated = [(f"node0{n}", "libfabric", "1.22") for n in range(1, 4)]
    assert [("node04", "1.18", "1.22", 3, 4)] == mix(*stated, ("node04", "libfabric", "1.18"))


def test_components_are_not_compared_with_each_other() -> None:
    assert [] == mix(("node01", "libfabric", "1.22"), ("node02", "aws-ofi-nccl", "1.9.1-aws"))


def test_a_torn_version_and_a_line_without_a_host_are_left_out() -> None:
    stated = [("node01", "nccl", "2.21.5"), ("node02", "nccl", "2.2"), (None, "nccl", "2.19.3")]
    assert [] == mix(*stated)


def test_a_host_with_two_versions_is_not_compared() -> None:
    stated = [("node01", "pytorch", "2.1"), ("node01", "pytorch", "2.4"), ("node02", "pytorch", "2.3")]
    assert [] == mix(*stated)


@given(
    st.dictionaries(st.sampled_from([f"n{i}" for i in range(9)]), st.sampled_from(["1.7", "1.8", "1.9"]), min_size=1)
)
def test_every_host_is_usual_or_named(versions: dict[str, str]) -> None:
    rows = mix(*((host, "libfabric", version) for host, version in versions.items()))
    odd = {host for host, *_ in rows}
    assert len({version for host, version in versions.items() if host not in odd}) == 1
    assert all(same >= sum(version == other for other in versions.values()) for _, version, _, same, _ in rows)
