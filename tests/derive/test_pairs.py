"""Runs of nccl-tests on many hosts: the slow host or link is named with its factor, and nothing where all are alike."""

import re
import statistics
from itertools import combinations
from pathlib import Path

import pytest
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app import analyze
from nccl_doctor.cli import main
from nccl_doctor.derive.speed.pairs import bench_hosts
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import BenchHost, BenchLimit, BenchLink, BenchMember, BenchRow, BenchRun
from nccl_doctor.reporters import Options, html_report, markdown, terminal
from nccl_doctor.simulate import Spec, write_pairs

SIZES = (64 << 20, 256 << 20, 1 << 30)


def facts_of(runs: list[tuple[tuple[str, ...], float]], noise: float = 0.0) -> Facts:
    """Facts of one run for each set of hosts and its bandwidth."""
    facts = Facts()
    facts.mark_covered("bench_run", "bench_row", "bench_member")
    for number, (hosts, busbw) in enumerate(runs, 1):
        ref = facts.evidence("bench.log", number, " ".join(hosts))
        jitter = 1 + noise * (number % 5 - 2) / 2
        facts.add(
            [
                BenchRun(number, "bench.log", "all_reduce", 8 * len(hosts), len(hosts), None, 0, None, None, len(SIZES), busbw,
                         0, "OK", 0, 1, 1, 1, None, ref),
                *(BenchMember(number, host, 8, ref) for host in hosts),
                *(BenchRow(number, size, size // 4, "float", "sum", -1, "out", 1.0, busbw, busbw * jitter, 0, None, ref)
                  for size in SIZES),
            ]
        )  # fmt: skip
    facts.add(bench_hosts(facts))
    return facts


def guilty(facts: Facts) -> tuple[dict[str, float], set[tuple[str, str, str]]]:
    hosts = {row.host: row.factor for row in facts.rows(BenchHost) if row.factor is not None}
    return hosts, {(row.src_host, row.dst_host, row.culprit) for row in facts.rows(BenchLink) if row.culprit}


def names(count: int) -> list[str]:
    return [f"node{number:02d}" for number in range(1, count + 1)]


@given(st.integers(4, 9), st.floats(0.2, 0.8), st.floats(0, 0.04), st.data())
@examples(25)
def test_slow_host_is_named_with_its_factor(count: int, factor: float, noise: float, data: st.DataObject) -> None:
    hosts = names(count)
    slow = data.draw(st.sets(st.sampled_from(hosts), max_size=max(1, (count - 1) // 4)))
    found = guilty(
        facts_of([(pair, 100 * (factor if slow & {*pair} else 1)) for pair in combinations(hosts, 2)], noise)
    )
    assert slow == found[0].keys()
    assert all(abs(value - factor) <= 2.5 * noise + 1e-9 for value in found[0].values())
    assert {culprit for *_, culprit in found[1]} <= {"src", "dst", "both"}


@given(st.integers(4, 9), st.floats(0.2, 0.8), st.floats(0, 0.04), st.data())
@examples(25)
def test_slow_link_is_named_and_not_its_hosts(count: int, factor: float, noise: float, data: st.DataObject) -> None:
    pairs = list(combinations(names(count), 2))
    slow = data.draw(st.sampled_from(pairs))
    found = guilty(facts_of([(pair, 100 * (factor if pair == slow else 1)) for pair in pairs], noise))
    assert ({}, {(*slow, "link")}) == found


def test_ring_of_pairs_tells_a_host_from_a_link() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e")]
    assert ({"c": 0.5}, {("b", "c", "dst"), ("c", "d", "src")}) == guilty(
        facts_of([(pair, 50.0 if "c" in pair else 100.0) for pair in ring])
    )
    assert ({}, {("c", "d", "link")}) == guilty(
        facts_of([(pair, 50.0 if pair == ("c", "d") else 100.0) for pair in ring])
    )


def test_each_host_in_one_run_leaves_it_open() -> None:
    found = guilty(facts_of([(("a", "b"), 100.0), (("c", "d"), 50.0), (("e", "f"), 101.0), (("g", "h"), 99.0)]))
    assert ({}, {("c", "d", "unclear")}) == found


def test_runs_of_single_hosts_and_of_groups() -> None:
    assert {"b": 0.4} == guilty(facts_of([(("a",), 100.0), (("b",), 40.0), (("c",), 101.0)]))[0]
    groups = [("a", "b", "c"), ("d", "e", "f"), ("a", "e", "g"), ("b", "d", "g"), ("c", "f", "g")]
    assert {"g": 0.6} == guilty(facts_of([(group, 60.0 if "g" in group else 100.0) for group in groups]))[0]


def test_slow_host_and_slow_link_of_another() -> None:
    speeds = {
        pair: 50.0 if "b" in pair else 30.0 if pair == ("c", "d") else 100.0 for pair in combinations("abcdef", 2)
    }
    hosts, links = guilty(facts_of(list(speeds.items())))
    assert {"b": 0.5} == hosts
    assert {("c", "d", "link")} == {link for link in links if link[2] == "link"}


@pytest.mark.parametrize("count", [1, 2])
def test_two_sets_of_hosts_compare_nothing(count: int) -> None:
    facts = facts_of([(("a", "b"), 100.0), (("c", "d"), 50.0)][:count])
    assert ([], []) == (facts.rows(BenchHost), facts.rows(BenchLink))


@pytest.mark.parametrize(("fault", "rule"), [("slow-node", "slow-node"), ("slow-link", "slow-link"), (None, None)])
def test_fourteen_pair_runs(fault: str | None, rule: str | None, tmp_path: Path) -> None:
    files = write_pairs(Spec(nodes=8, fault=fault, seed=3), 14)
    assert 14 == len(files)
    averages = {}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        averages[name] = statistics.fmean(float(row.split()[7]) for row in lines if row.startswith("  4294967296"))
    usual = statistics.median(averages.values())
    slow = {name: value / usual for name, value in averages.items() if value < 0.8 * usual}
    report, _, problems = analyze.analyze([str(tmp_path)], apart="auto")
    assert [] == problems
    assert [rule] * bool(rule) == [finding.name for finding in report.findings]
    text = terminal.render(report, Options(width=100, height=60))
    if rule is None:
        assert ({}, "healthy") == (slow, report.verdict)
        return
    (finding,) = report.findings
    common = set.intersection(*({*name.removesuffix(".log").split("-")} for name in slow))
    assert ("warning", True) == (report.verdict, text.startswith("WARNING: "))
    if fault == "slow-node":
        assert common == {finding.hosts}
        assert statistics.median(slow.values()) == pytest.approx(finding.values["percent"] / 100, abs=0.02)
    else:
        assert common == {finding.values["host"], finding.values["peer"]}
    worst = min(averages, key=averages.__getitem__).removesuffix(".log").split("-")
    pairs = {
        measure.of: measure.value for measure in report.measures if (measure.name, measure.scope) == ("busbw", "pair")
    }
    assert 14 == len(pairs)
    assert averages["-".join(worst) + ".log"] == pytest.approx(pairs[" ".join(worst)], rel=0.01)
    shown = f"| {' '.join(worst)} | {pairs[' '.join(worst)]:.4g} |"
    assert shown in markdown.render(report, Options(width=100, height=60))
    assert f"<td>{' '.join(worst)}</td><td>{pairs[' '.join(worst)]:.4g}</td>" in html_report.render(
        report, Options(width=100, height=60)
    )
    assert re.search(rf"By pair .*\n +{' '.join(worst)} ", text)


def test_pairs_that_cannot_be_are_refused() -> None:
    for spec, pairs in ((Spec(nodes=3), 4), (Spec(nodes=4), 0), (Spec(nodes=4, fault="xid-79-fallen-off-bus"), 2)):
        with pytest.raises(ValueError, match="pairs"):
            write_pairs(spec, pairs)


def test_command_writes_one_file_a_pair(tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    arguments = ["simulate", "--nodes", "4", "--pairs", "3", "--fault", "slow-link", "-o", str(folder)]
    assert 0 == main.main(arguments)
    wanted = write_pairs(Spec(nodes=4, fault="slow-link"), 3)
    assert wanted == {path.name: path.read_text().splitlines() for path in folder.iterdir()}


def test_half_of_the_plateau() -> None:
    lines = next(iter(write_pairs(Spec(nodes=2), 1).values()))
    facts = analyze.read_text("\n".join(lines))
    (limit,) = facts.rows(BenchLimit)
    rows = sorted((row.size, row.busbw) for row in facts.rows(BenchRow) if row.place == "out")
    assert limit.plateau is not None
    below = max(size for size, busbw in rows if busbw < limit.plateau / 2)
    assert limit.half_size is not None
    assert below < limit.half_size < 2 * below
