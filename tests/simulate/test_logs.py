"""The simulator: equal specs give equal text, every fault shows its telling line, a healthy job shows none."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from nccl_doctor.simulate import FAULTS, FRAMEWORKS, NETWORKS, PREFIXES, VERSIONS, Spec, fit, write_files, write_log
from nccl_doctor.simulate.cluster import Cluster
from nccl_doctor.simulate.graph import Ring, Trees, channels

SMALL = Spec(nodes=2, gpus=4, steps=4)
NCCL = re.compile(r"(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] (?:\S.* )?NCCL (?:INFO|WARN) ")


def lines(spec: Spec) -> list[str]:
    """The whole log; every line must be one line."""
    written = list(write_log(spec))
    assert [] == [line for line in written if "\n" in line or "\x00" in line]
    return written


@pytest.mark.parametrize("fault", [None, "cuda-oom", "ib-link-flapping"])
def test_equal_specs_give_equal_text(fault: str | None) -> None:
    spec = replace(SMALL, fault=fault, seed=7)
    assert lines(spec) == lines(spec)
    assert lines(spec) != lines(replace(spec, seed=8))


@pytest.mark.parametrize("fault", ["xid-79-off-bus", "host-memory-oom", "cuda-oom"])
def test_split_files_hold_the_lines_of_the_log_once(fault: str) -> None:
    spec = fit(replace(SMALL, fault=fault, seed=7))
    files = write_files(spec)
    assert sorted(write_log(spec)) == sorted(line for text in files.values() for line in text)
    kernel = {name: text for name, text in files.items() if name != "job.log"}
    assert (fault != "cuda-oom") == bool(kernel)
    assert all(f" {name[7:-4]} kernel: " in line for name, text in kernel.items() for line in text)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("version", ["2.7.8", "2.10.3", "2.21.5", "2.30.7"])
def test_a_fault_shows_its_telling_line(name: str, version: str) -> None:
    fault = FAULTS[name]
    spec = fit(replace(SMALL, fault=name, version=version, seed=3))
    assert any(fault.signature.search(line) for line in lines(spec))
    assert fault.doc.endswith(".")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_by_every_framework_and_network(name: str) -> None:
    fault = FAULTS[name]
    for framework in fault.needs.frameworks or FRAMEWORKS:
        for network in fault.needs.networks or NETWORKS:
            spec = fit(replace(SMALL, fault=name, framework=framework, network=network, prefix="srun", seed=2))
            assert any(
                fault.signature.search(line.split(": ", 1)[-1]) or fault.signature.search(line) for line in lines(spec)
            )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_healthy_log_has_no_warning(version: str, network: str, framework: str) -> None:
    written = lines(replace(SMALL, version=version, network=network, framework=framework))
    assert [] == [
        line for line in written if "NCCL WARN" in line or "Traceback" in line or "rror" in line.split("Plugin")[0]
    ]
    assert 8 == sum("Init COMPLETE" in line for line in written)
    assert any(
        line.startswith(f"NCCL version {version}+") or f"INFO NCCL version {version}+" in line for line in written
    )


@pytest.mark.parametrize("name", PREFIXES)
def test_every_prefix_keeps_each_ranks_order(name: str) -> None:
    mixed = lines(replace(SMALL, prefix=name, version="2.27.7"))
    apart = lines(replace(SMALL, prefix=name, version="2.27.7", interleave=False))

    def by_process(written: list[str]) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for line in written:
            match = NCCL.search(line)
            # the values after these words are drawn anew in the order of the story
            if match and "timings" not in line:
                found.setdefault((match["host"], match["pid"]), []).append(line[match.end() :])
        return found

    assert by_process(mixed) == by_process(apart)
    assert 8 == len(by_process(mixed))


def test_ranks_are_mixed_unless_told_otherwise() -> None:
    def changes(spec: Spec) -> int:
        hosts = [match["pid"] for line in lines(spec) if (match := NCCL.search(line))]
        return sum(a != b for a, b in pairwise(hosts))

    assert changes(SMALL) > 3 * changes(replace(SMALL, interleave=False))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.4.8", r"Ring 00 : \d+ -> \d+ \[send\] via NET/IB/0$"),
        ("2.7.8", r"Channel 00 : \d+\[[0-9a-f]+\] -> \d+\[[0-9a-f]+\] \[send\] via NET/IB/0$"),
        ("2.14.3", r"Channel 00/0 : \d+\[[0-9a-f]+\] -> \d+\[[0-9a-f]+\] \[send\] via NET/IB/0/GDRDMA$"),
        ("2.21.5", r"Channel 00/0 : \d+\[\d\] -> \d+\[\d\] \[send\] via NET/IB/0\(\d+\)/GDRDMA$"),
        ("2.7.8", r"Trees \[0\] [-\d/>]+\|[-\d/>]+ \[1\]"),
        ("2.21.5", r"- Init START$"),
        ("2.30.7", r"NCCL INFO \[Rank 3\] ncclCommInitRankConfig comm 0x[0-9a-f]+ rank 3 nranks 8 .* - Init START$"),
        ("2.10.3", r"Bootstrap : Using \w+:10\.[\d.]+<0>$"),
        ("2.27.7", r"Bootstrap: Using \w+:10\.[\d.]+<0>$"),
    ],
)
def test_wording_follows_the_version(version: str, expected: str) -> None:
    assert any(re.search(expected, line) for line in lines(replace(SMALL, version=version)))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.21.5", r"^\S+:\d+:\d+ \[\d\] misc/ibvwrap.cc:\d+ NCCL WARN "),
        ("2.27.7", r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \S+:\d+:\d+ \[\d\] misc/ibvwrap.cc:\d+ NCCL WARN "),
        ("2.30.7", r"^\[[\d: -]+\] \S+:\d+:\d+ \[\d\] misc/ibvwrap.cc:\d+ \(wrap_ibv_modify_qp\) NCCL WARN "),
    ],
)
def test_a_warning_has_the_form_of_its_version(version: str, expected: str) -> None:
    written = lines(replace(SMALL, version=version, network="roce", fault="gid-index-wrong"))
    place = next(n for n, line in enumerate(written) if "NCCL WARN" in line)
    assert re.search(expected, written[place])
    assert "" == written[place - 1]


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 8), (2, 1), (5, 8), (3, 6)])
def test_rings_and_trees_hold_every_rank_once(nodes: int, gpus: int) -> None:
    cluster = Cluster(Spec(nodes=nodes, gpus=gpus))
    rings = [Ring(cluster, channel) for channel in range(channels(cluster))]
    everyone = list(range(nodes * gpus))
    trees = Trees(cluster, rings)
    for ring in rings:
        assert everyone == sorted(ring.order())
        assert all(ring.previous(ring.next(rank)) is rank for rank in cluster.ranks)
        links = {rank: trees.links(ring, rank) for rank in cluster.ranks}
        assert 1 == sum(up is None for up, _ in links.values())
        assert all(rank in links[up][1] for rank, (up, _) in links.items() if up is not None)
        assert max(len(downs) for _, downs in links.values()) <= 3


def test_a_large_job_prints_every_rank() -> None:
    written = lines(Spec(nodes=128))
    assert 1024 == sum("Init COMPLETE" in line for line in written)
    assert 1 == sum(" rank 1023 nranks 1024 " in line and "Init COMPLETE" in line for line in written)


def test_a_spec_that_cannot_be_is_refused() -> None:
    for spec in (
        Spec(fault="no-such-fault"),
        Spec(prefix="no-such-prefix"),
        Spec(version="1.0.0"),
        Spec(network="pigeons"),
        Spec(nodes=0),
        Spec(steps=0),
        Spec(nodes=1, fault="tcp-fallback"),
        Spec(network="socket", fault="ib-link-flapping"),
    ):
        with pytest.raises(ValueError):
            next(iter(write_log(spec)))
    assert 2 == fit(Spec(nodes=1, fault="tcp-fallback")).nodes
