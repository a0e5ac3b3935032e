"""Every rule and derivation is linear in hosts and ranks: SQLite's steps are counted at two sizes; no clock decides."""

import functools
from collections import Counter
from collections.abc import Iterator

import pytest

from nccl_doctor.app import analyze, rule_examples
from nccl_doctor.derive import registry
from nccl_doctor.facts.store import Facts
from nccl_doctor.rules import loader
from nccl_doctor.rules.row_sources import Present
from nccl_doctor.rules.schema import GROUPS, Example, Rule
from nccl_doctor.simulate import Spec, write_log
from tests.helpers.scaling import TICK, add_copies, cost, counted, restarted, traced_lines

SMALL = 16  # copies of the facts of an example; four times as many are compared with it
RATIO = 4.5
FAULTS = (
    None,
    "missing-rank-in-collective",
    "mixed-network-between-nodes",
    "env-differs-between-nodes",
    "ib-fabric-unreachable",
    "duplicate-ip-between-hosts",
    "rank-crash",
    "nccl-version-mismatch",
)
STARTS = 60  # of the processes of an example's log; four times as many are compared with it
CONSTANT = 4_000  # steps: what a query takes whatever it reads
PARTS = 100  # of an answer: what a query may return whatever it reads


def problems(rule: Rule, small: Facts, large: Facts, what: str) -> Iterator[str]:
    before, after = cost(small, rule.query, rule.params), cost(large, rule.query, rule.params)
    if after.steps > RATIO * before.steps + CONSTANT:
        yield f"{rule.id} {rule.name}: {before.steps:,} steps become {after.steps:,} for four times {what}"
    if after.parts > RATIO * before.parts + PARTS:
        yield f"{rule.id} {rule.name}: {before.parts:,} parts of an answer become {after.parts:,} for four times {what}"


@pytest.mark.parametrize("group", GROUPS)
def test_four_times_the_facts_of_an_example_take_four_times_the_steps(group: str) -> None:
    found: list[str] = []
    for rule in (rule for rule in loader.load_rules() if rule.group == group):
        for example in [*filter(_fires, rule.example)] or rule.example[:1]:
            given = rule_examples.facts_of(example)
            small, large = Facts(), Facts()
            add_copies(small, given, 0, SMALL, one_file=True)
            add_copies(large, given, 0, 4 * SMALL, one_file=True)
            small.index()
            large.index()
            found += problems(rule, small, large, f"the facts of example {example.name!r}")
    assert [] == found


def _fires(example: Example) -> bool:
    return bool(example.expect)


@pytest.mark.parametrize("group", GROUPS)
def test_four_times_the_processes_of_the_same_hosts_take_four_times_the_steps(group: str) -> None:
    found: list[str] = []
    for rule in (rule for rule in loader.load_rules() if rule.group == group):
        for example in [example for example in rule.example if example.log and example.expect][:1]:
            small, large = (analyze.read_text(restarted(example.log, times)) for times in (STARTS, 4 * STARTS))
            present = Present(large)
            for asked in loader.load_rules():
                if present.may_return(asked.row_sources):
                    found += problems(asked, small, large, f"the processes of {rule.id}, example {example.name!r}")
    assert [] == found


@functools.cache
def job(nodes: int, fault: str | None) -> Facts:
    return analyze.read_text("\n".join(write_log(Spec(nodes=nodes, fault=fault))))


@pytest.mark.parametrize("fault", FAULTS)
def test_four_times_the_ranks_take_four_times_the_steps(fault: str | None) -> None:
    small, large = job(6, fault), job(24, fault)
    present = Present(large)
    asked = [rule for rule in loader.load_rules() if present.may_return(rule.row_sources)]
    assert [] == [text for rule in asked for text in problems(rule, small, large, "the ranks")]


@pytest.mark.parametrize("fault", FAULTS)
def test_derivations_take_four_times_as_long_for_four_times_the_ranks(
    fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = costs(6, fault, monkeypatch), costs(24, fault, monkeypatch)
    found = {name: (cost, large[name]) for name, cost in small.items() if large[name] > RATIO * cost + CONSTANT}
    assert {} == found


def costs(nodes: int, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Steps of SQLite and lines of Python that each derivation takes for a job."""
    taken: Counter[str] = Counter()
    run = registry._run

    def counting(step: registry.Step, facts: Facts, given: set[str]) -> None:
        with counted(facts) as ticks, traced_lines("/derive/") as lines:
            run(step, facts, given)
        taken[f"steps of {step.function}"] = TICK * len(ticks)
        taken[f"lines of {step.function}"] = lines["line"]

    with monkeypatch.context() as patch:
        patch.setattr(registry, "_run", counting)
        job.__wrapped__(nodes, fault)
    return taken
