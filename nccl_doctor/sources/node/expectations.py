"""What a node should be: from the data on GPU models and machine types, and from the site's own file."""

from pathlib import Path

from nccl_doctor.facts import Facts


def add(facts: Facts, file: Path | None) -> None:
    """Fill `expected`. Raises UsageProblem where the file cannot be read."""
    facts.look("expected")
