"""What `simulate` can plant is found in other words than its own too: of another version, driver or program."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.simulate import FAULTS

RULES = Path(__file__).parents[2] / "rules"


def _examples(name: str) -> list[dict[str, Any]]:
    """The examples of the rule that is named after a fault, which are logs in which it is found."""
    (file,) = RULES.rglob(f"{name}.toml")
    return [one for one in tomllib.loads(file.read_text("utf-8"))["example"] if one["expect"] and "log" in one]


def _wording(log: str) -> str:
    return re.sub(r"[\d:.x]+", "", log)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_cause_is_known_in_two_wordings(name: str) -> None:
    assert 2 <= len({_wording(example["log"]) for example in _examples(name)})


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_second_wording_gives_the_same_first_finding(name: str) -> None:
    for example in _examples(name):
        if example["name"].startswith("second wording"):
            found = analyze.report_of(analyze.read_text(example["log"])).findings
            assert name == found[0].name, example["name"]
