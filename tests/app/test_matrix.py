"""Every simulated fault is found first, whatever the size of the job and the launcher; a healthy job raises no alarm.

Faults: all x 3 sizes x 2 prefixes. The prefixes of a fault are consecutive ones of the list, so that over
the matrix every prefix meets many faults; version, network and framework go round in the same way, with other periods.
Healthy jobs: a cover in which every two values of version, network, framework and prefix meet.
"""

from collections.abc import Iterator
from itertools import combinations, product

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.diagnosis.report import Report
from nccl_doctor.rules import loader
from nccl_doctor.simulate import FAULTS, FRAMEWORKS, NETWORKS, PREFIXES, VERSIONS, Spec, fit, write_log

SIZES = {2: 2, 16: 2, 128: 1}  # nodes: GPUs in each
JOBS = {2: 2, 16: 1, 128: 1}  # nodes: jobs with each fault; one of the largest size takes as long as all others
STEPS = 4


def told(spec: Spec) -> Report:
    return analyze.report_of(analyze.read_text("\n".join(write_log(spec)) + "\n"))


def alarms(report: Report) -> list[str]:
    return [finding.name for finding in report.findings if finding.severity != "note"]


def first(report: Report) -> str:
    """What the report says first: an alarm, or the first note where there is none."""
    return next(iter(alarms(report) or [finding.name for finding in report.findings]), "")


def faulty(fault: str, nodes: int) -> Iterator[Spec]:
    """Jobs with a fault, each with another prefix."""
    start = 7 * list(FAULTS).index(fault) + 2 * list(SIZES).index(nodes)
    for number in range(start, start + JOBS[nodes]):
        yield fit(
            Spec(
                nodes=nodes,
                gpus=SIZES[nodes],
                version=VERSIONS[(5 * number) % len(VERSIONS)],
                network=NETWORKS[number % len(NETWORKS)],
                framework=FRAMEWORKS[number % len(FRAMEWORKS)],
                prefix=list(PREFIXES)[number % len(PREFIXES)],
                fault=fault,
                seed=number,
                steps=STEPS,
            )
        )


@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_first(fault: str, nodes: int) -> None:
    for spec in faulty(fault, nodes):
        report = told(spec)
        assert fault == first(report), spec
        assert [] == [check for check in report.checks if check.outcome == "broken"], spec


def test_every_fault_bears_the_name_of_a_rule() -> None:
    assert set() == set(FAULTS) - {rule.name for rule in loader.load_rules()}


def test_every_prefix_meets_many_faults() -> None:
    met = {(spec.prefix, spec.fault) for fault, nodes in product(FAULTS, SIZES) for spec in faulty(fault, nodes)}
    assert all(10 <= sum(prefix == name for prefix, _ in met) for name in PREFIXES)


def pairwise_cover(*lists: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Rows in which every two values of different lists meet at least once; greedy, the same each time."""
    wanted = {
        (a, x, b, y) for a, b in combinations(range(len(lists)), 2) for x, y in product(lists[a], lists[b])
    }  # fmt: skip
    rows = []
    while wanted:
        row: dict[int, str] = {}
        a, x, b, y = min(wanted)
        row[a], row[b] = x, y
        for column in range(len(lists)):
            if column not in row:
                row[column] = max(lists[column], key=lambda value: _met(wanted, {**row, column: value}))
        wanted -= _pairs(row)
        rows.append(tuple(row[column] for column in range(len(lists))))
    return rows


def _pairs(row: dict[int, str]) -> set[tuple[int, str, int, str]]:
    return {(a, row[a], b, row[b]) for a, b in combinations(sorted(row), 2)}


def _met(wanted: set[tuple[int, str, int, str]], row: dict[int, str]) -> int:
    return len(wanted & _pairs(row))


HEALTHY = pairwise_cover(VERSIONS, NETWORKS, FRAMEWORKS, tuple(PREFIXES))


def assert_healthy(spec: Spec) -> None:
    report = told(spec)
    assert ([], True) == (alarms(report), report.verdict in ("healthy", "note")), spec
    assert (spec.nodes, spec.nodes * spec.gpus) == (report.job["hosts"], report.job["ranks"]), spec
    assert report.inputs[0].understood == report.inputs[0].nccl_lines, spec


@pytest.mark.parametrize("row", HEALTHY, ids="-".join)
def test_a_healthy_job_raises_no_alarm(row: tuple[str, ...]) -> None:
    version, network, framework, prefix = row
    assert_healthy(
        Spec(nodes=2, gpus=2, version=version, network=network, framework=framework, prefix=prefix, steps=STEPS)
    )


@pytest.mark.parametrize("nodes", [16, 128])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_large_healthy_job_raises_no_alarm(prefix: str, nodes: int) -> None:
    number = list(PREFIXES).index(prefix) + nodes
    assert_healthy(
        Spec(
            nodes=nodes,
            gpus=SIZES[nodes],
            version=VERSIONS[number % len(VERSIONS)],
            network=NETWORKS[number % len(NETWORKS)],
            framework=FRAMEWORKS[number % len(FRAMEWORKS)],
            prefix=prefix,
            seed=number,
            steps=STEPS,
        )
    )


def test_the_healthy_jobs_cover_every_pair() -> None:
    met = {pair for row in HEALTHY for pair in _pairs(dict(enumerate(row)))}
    lists = (VERSIONS, NETWORKS, FRAMEWORKS, tuple(PREFIXES))
    assert len(met) == sum(len(a) * len(b) for a, b in combinations(lists, 2))
