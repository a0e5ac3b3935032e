"""Many runs as JSON, described by `reporters/schema/runs-1.json`."""

import json
from dataclasses import asdict
from importlib import resources
from typing import Any

from nccl_doctor import __version__
from nccl_doctor.diagnosis.comparison import RUNS_SCHEMA, RunsTable
from nccl_doctor.reporters import Options
from nccl_doctor.reporters.json_report import cleaned


def render(table: RunsTable, options: Options) -> str:
    """The table as one JSON document."""
    return json.dumps(document(table), indent=1, ensure_ascii=False, default=str) + "\n"


def document(table: RunsTable) -> dict[str, Any]:
    """The table as plain dictionaries and lists, free of control characters."""
    content = {"schema": RUNS_SCHEMA, "tool": {"name": "nccl-doctor", "version": __version__}, **asdict(table)}
    return {key: cleaned(value) for key, value in content.items()}


def schema() -> dict[str, Any]:
    """The JSON Schema of `document`."""
    text = (resources.files("nccl_doctor.reporters") / "schema" / "runs-1.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
