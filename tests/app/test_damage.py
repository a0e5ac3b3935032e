"""A damaged log: the first finding stays where the lines that prove it are left, and a fault is never called healthy."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from helpers.damage import DAMAGES, evidence, first, report_on

from nccl_doctor.simulate import FAULTS, Spec, fit, write_log

# Faults that show by what does not follow: any line that is lost, or comes later, may be the one that did not come.
ABSENCE = {"hang-after-init"}
SPECS = [
    fit(Spec(nodes=2, gpus=2, fault=name, seed=number, steps=2, prefix=("none", "srun")[number % 2]))
    for number, name in enumerate(sorted(set(FAULTS) - ABSENCE)[::4])
]


@pytest.mark.parametrize("number", range(len(SPECS)), ids=[str(spec.fault) for spec in SPECS])
def test_the_first_finding_stays_where_its_lines_are_left(number: int, tmp_path: Path) -> None:
    """Each fault meets one way of damage; neighbours in the list meet others."""
    spec = SPECS[number]
    lines = [line.encode() for line in write_log(spec)]
    found = first(report_on([lines], tmp_path / "before"))
    assert found is not None
    assert spec.fault == found.name
    name = sorted(DAMAGES)[number % len(DAMAGES)]

    report = report_on(DAMAGES[name](lines, evidence(found), Random(number)), tmp_path / "after")

    assert (name, spec.fault) == (name, getattr(first(report), "name", None))
    assert "healthy" != report.verdict


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_log_of_a_healthy_job_raises_no_alarm(name: str, tmp_path: Path) -> None:
    for seed in range(2):
        lines = [line.encode() for line in write_log(replace(SPECS[0], fault=None, seed=seed))]
        report = report_on(DAMAGES[name](lines, set(), Random(seed)), tmp_path / str(seed))
        assert [] == [one.name for one in report.findings if one.severity != "note"]


@pytest.mark.parametrize("twice", [{2}, {0, 2, 3}, {3}])
def test_lines_of_one_message_that_come_twice(twice: set[int], tmp_path: Path) -> None:
    lines = [
        b"Libfabric EFA provider has encountered an internal error:",
        b"",
        b"Libfabric error: (-12) Cannot allocate memory",
        b"EFA internal error: (4112) Failure to post internal receive buffers",
    ]
    found = first(
        report_on([[copy for at, line in enumerate(lines) for copy in [line] * (1 + (at in twice))]], tmp_path / "x")
    )
    assert found is not None
    assert ("memlock-limit", "likely") == (found.name, found.confidence)
